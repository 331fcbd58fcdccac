/*
 * softmax(q k) v over a part of the positions that a token sees, for all heads that share a head of
 * the cache: a workgroup for each token, head of the cache and part. attend_join.comp joins the parts.
 */
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#define HAS_OWN_SIZE
#define SIZE 128
layout(local_size_x = SIZE) in;
#include "common.glsl"
#include "block_values.glsl"
#include "cache.glsl"
#include "math.glsl"
#define LEAST -1e30
#define MOST_QUERY 2048 /* values of all heads */
layout(constant_id = 1) const uint HEADS = 1; /* of q for one of the cache */
PARAMS(attend_args)

shared vec4 q[MOST_QUERY / 4];
shared float scores[HEADS][SIZE], tops[HEADS], fades[HEADS], totals[HEADS];
shared vec2 halves[SIZE]; /* sums of other threads with the same columns */
shared uvec2 pages[SIZE];

/* Four values of a row that begins at byte `at`, a multiple of 16: columns 4 i to 4 i + 3. */
vec4 four_at(pieces_at page, uint at, uint i)
{
    if (TYPE == DTYPE_F32)
        return uintBitsToFloat(page.v[at / 16 + i]);
    uvec4 all = page.v[at / 16 + i / 2];
    uvec2 w = (i & 1) == 0 ? all.xy : all.zw;
    return vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
}

/* Columns 2 i and 2 i + 1. */
vec2 two_at(words_at page, uint at, uint i)
{
    if (TYPE == DTYPE_F32)
        return vec2(uintBitsToFloat(page.v[at / 4 + 2 * i]), uintBitsToFloat(page.v[at / 4 + 2 * i + 1]));
    return unpackHalf2x16(page.v[at / 4 + i]);
}

void main()
{
    attend_args p = params.value;
    cache_args c = p.cache;
    uint t = GROUP.x, head = GROUP.y, part = GROUP.z, sequence = c.sequences.v[t];
    uint own = c.positions.v[t], end = c.seen.v[t], dim = c.head_dim, pairs = c.v_dim / 2;
    uint begin = p.window != 0 && own + 1 > p.window ? own + 1 - p.window : 0;
    if (p.chunk != 0)
        begin = max(begin, own / p.chunk * p.chunk);
    if (p.ahead != 0)
        end = min(end, own + 1 + p.ahead);
    uint length = (max(end, begin) - begin + p.n_parts - 1) / p.n_parts;
    length = (length + 31) / 32 * 32;
    begin = min(begin + part * length, end);
    end = min(begin + length, end);
    for (uint i = THREAD; i < HEADS * dim; i += SIZE)
        q[i / 4][i % 4] = p.q.v[t * p.q_stride + head * HEADS * dim + i];
    if (THREAD < HEADS) {
        tops[THREAD] = LEAST;
        totals[THREAD] = 0.0;
    }
    vec2 sums[HEADS];
    [[unroll]] for (uint h = 0; h < HEADS; h++)
        sums[h] = vec2(0.0);
    uint pair = THREAD % pairs, lane = THREAD / pairs, lanes = SIZE / pairs;
    barrier();
    for (uint at = begin; at < end; at += SIZE) {
        uint n = min(SIZE, end - at);
        if (THREAD < n) {
            words_at page = cache_page(c, sequence, at + THREAD);
            uint row = key_offset(c, head, at + THREAD);
            vec4 dots[HEADS];
            pages[THREAD] = uvec2(page);
            [[unroll]] for (uint h = 0; h < HEADS; h++)
                dots[h] = vec4(0.0);
            for (uint i = 0; i < dim / 4; i += 8) {
                vec4 k[8]; /* asked for at once; what is behind the row is not used */
                [[unroll]] for (uint j = 0; j < 8; j++)
                    k[j] = four_at(pieces_at(uvec2(page)), row, min(i + j, dim / 4 - 1));
                [[unroll]] for (uint j = 0; j < 8; j++)
                    [[unroll]] for (uint h = 0; h < HEADS; h++)
                        if (i + j < dim / 4)
                            dots[h] += k[j] * q[h * dim / 4 + i + j];
            }
            [[unroll]] for (uint h = 0; h < HEADS; h++) {
                float s = ((dots[h].x + dots[h].y) + (dots[h].z + dots[h].w)) * p.scale;
                scores[h][THREAD] = p.softcap > 0.0 ? p.softcap * exact_tanh(s / p.softcap) : s;
            }
        }
        barrier();
        /* Four threads for each head, 32 scores for each of them. */
        uint mine = THREAD / 4;
        float most = LEAST;
        for (uint i = THREAD & 3; mine < HEADS && i < n; i += 4)
            most = max(most, scores[mine][i]);
        halves[THREAD].x = most;
        barrier();
        if (mine < HEADS) {
            uint of = THREAD & ~3u;
            float now = max(max(halves[of].x, halves[of + 1].x), max(halves[of + 2].x, halves[of + 3].x));
            float before = tops[mine], all = 0.0;
            now = max(now, before);
            for (uint i = THREAD & 3; i < n; i += 4) {
                float weight = exact_exp(scores[mine][i] - now);
                scores[mine][i] = weight;
                all += weight;
            }
            halves[THREAD].y = all;
            if ((THREAD & 3) == 0)
                fades[mine] = exact_exp(before - now);
            most = now;
        }
        barrier();
        if (mine < HEADS && (THREAD & 3) == 0) {
            tops[mine] = most;
            totals[mine] = totals[mine] * fades[mine] +
                           ((halves[THREAD].y + halves[THREAD + 1].y) +
                            (halves[THREAD + 2].y + halves[THREAD + 3].y));
        }
        [[unroll]] for (uint h = 0; h < HEADS; h++)
            sums[h] *= fades[h];
        for (uint i = lane; lane < lanes && i < n; i += 8 * lanes) {
            vec2 v[8];
            [[unroll]] for (uint j = 0; j < 8; j++) {
                uint of = min(i + j * lanes, n - 1);
                v[j] = two_at(words_at(pages[of]), value_offset(c, head, at + of), pair);
            }
            [[unroll]] for (uint j = 0; j < 8; j++)
                [[unroll]] for (uint h = 0; h < HEADS; h++)
                    if (i + j * lanes < n)
                        sums[h] += scores[h][i + j * lanes] * v[j];
        }
        barrier();
    }
    for (uint h = 0; h < HEADS; h++) {
        uint to = ((t * p.n_heads + head * HEADS + h) * p.n_parts + part) * (c.v_dim + 2);
        halves[THREAD] = sums[h];
        barrier();
        if (lane == 0) {
            vec2 all = sums[h];
            for (uint i = 1; i < lanes; i++)
                all += halves[i * pairs + pair];
            p.parts.v[to + 2 + 2 * pair] = all.x;
            p.parts.v[to + 3 + 2 * pair] = all.y;
        }
        if (THREAD == 0) {
            p.parts.v[to] = tops[h];
            p.parts.v[to + 1] = totals[h];
        }
        barrier();
    }
}
