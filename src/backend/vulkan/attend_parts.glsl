/*
 * softmax(q k) v over a part of the positions that a token sees, for all heads that share a head of
 * the cache: a workgroup for each token, head of the cache and part. attend_join.glsl joins the parts.
 *
 * WHOLE: all of attention in one launch, for tokens of which no two are of one sequence. q is turned
 * here, by each workgroup; the one whose part has the token's own position turns k and puts k and v
 * into the cache, and takes them from shared memory itself. The last workgroup of a token and head
 * of the cache joins the parts: nobody waits for another.
 */
#extension GL_EXT_control_flow_attributes : require
#define HAS_OWN_SIZE
#define SIZE 128
layout(local_size_x = SIZE) in;
#include "common.glsl"
#include "block_values.glsl"
#include "cache.glsl"
#include "math.glsl"
#include "planes.glsl"
#define THREADS SIZE
#define LEAST -1e30
#define MOST_QUERY 2048 /* values of all heads */
#define MOST_WIDTH 256  /* of a head */
layout(constant_id = 1) const uint HEADS = 1; /* of q for one of the cache */
PARAMS(attend_args)

shared vec4 q[MOST_QUERY / 4];
shared float scores[HEADS][SIZE], tops[HEADS], fades[HEADS], totals[HEADS];
shared vec2 halves[SIZE]; /* sums of other threads with the same columns */
shared uvec2 pages[SIZE];

#ifdef WHOLE
/* What other workgroups have written is read. */
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer common_floats_at { float v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer common_words_at { uint v[]; };
#define PARTS_AT common_floats_at
shared float head_row[MOST_WIDTH];
shared float own_k[MOST_WIDTH], own_v[MOST_WIDTH]; /* as the cache keeps them */
shared uint is_last;
#include "cache_store.glsl"
#include "attend_join.glsl"

/* n values of head_row as the cache keeps them. */
float kept_value(uint i)
{
    if (TYPE == DTYPE_F32)
        return head_row[i];
    if (TYPE == DTYPE_F16)
        return float_of_half(half_of_float(head_row[i]));
    float most = 0.0;
    for (uint k = i / 32 * 32; k < i / 32 * 32 + 32; k++)
        most = max(most, abs(head_row[k]));
    float d = most / 127.0, inverse = d > 0.0 ? 1.0 / d : 0.0;
    return float_of_half(half_of_float(d)) * float(byte_of(head_row[i] * inverse));
}

/* q of all heads is turned where it lies. */
void turn_query(attend_args p, uint table, uint dim)
{
    uint stride = p.is_neox != 0 ? 1 : 2, apart = p.is_neox != 0 ? p.n_dims / 2 : 1;
    for (uint k = THREAD; k < HEADS * (p.n_dims / 2); k += SIZE) {
        uint i = k % (p.n_dims / 2), a = k / (p.n_dims / 2) * dim + i * stride, b = a + apart;
        float c = p.table.v[table + 2 * i], s = p.table.v[table + 2 * i + 1];
        float x0 = q[a / 4][a % 4], x1 = q[b / 4][b % 4];
        q[a / 4][a % 4] = x0 * c - x1 * s;
        q[b / 4][b % 4] = x0 * s + x1 * c;
    }
}

/* The token's own key and value, into the cache and into shared memory. */
void put_own(attend_args p, uint t, uint head, uint sequence, uint own, uint table)
{
    cache_args c = p.cache;
    words_at page = cache_page(c, sequence, own);
    uint stride = p.is_neox != 0 ? 1 : 2, apart = p.is_neox != 0 ? p.n_dims / 2 : 1;
    for (uint i = THREAD; i < c.head_dim; i += SIZE)
        head_row[i] = p.k.v[t * p.k_stride + head * c.head_dim + i];
    barrier();
    for (uint i = THREAD; i < p.n_dims / 2; i += SIZE) {
        float x0 = head_row[i * stride], x1 = head_row[i * stride + apart];
        float co = p.table.v[table + 2 * i], si = p.table.v[table + 2 * i + 1];
        head_row[i * stride] = x0 * co - x1 * si;
        head_row[i * stride + apart] = x0 * si + x1 * co;
    }
    barrier();
    store_row(page, key_offset(c, head, own), c.head_dim);
    for (uint i = THREAD; i < c.head_dim; i += SIZE)
        own_k[i] = kept_value(i);
    barrier();
    for (uint i = THREAD; i < c.v_dim; i += SIZE)
        head_row[i] = p.v.v[t * p.v_stride + head * c.v_dim + i];
    barrier();
    store_row(page, value_offset(c, head, own), c.v_dim);
    for (uint i = THREAD; i < c.v_dim; i += SIZE)
        own_v[i] = kept_value(i);
    barrier();
}
#else
#define PARTS_AT floats_at
#endif

/* Four bytes from byte i on, which is even. */
uint word_at(words_at base, uint i)
{
    uint w = base.v[i / 4];
    return (i & 2) == 0 ? w : w >> 16 | base.v[i / 4 + 1] << 16;
}

/* Four values of a row that begins at byte `at`, a multiple of 16 (Q8_0: of 2): columns 4 i to 4 i + 3. */
vec4 four_at(pieces_at page, uint at, uint i)
{
    if (TYPE == DTYPE_Q8_0) {
        words_at words = words_at(uvec2(page));
        uint block = at + i / 8 * 34;
        int w = int(word_at(words, block + 2 + 4 * (i & 7)));
        return half_at(words, block) * vec4(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8),
                                            bitfieldExtract(w, 16, 8), w >> 24);
    }
    if (TYPE == DTYPE_F32)
        return uintBitsToFloat(page.v[at / 16 + i]);
    uvec4 all = page.v[at / 16 + i / 2];
    uvec2 w = (i & 1) == 0 ? all.xy : all.zw;
    return vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
}

/* Columns 2 i and 2 i + 1. */
vec2 two_at(words_at page, uint at, uint i)
{
    if (TYPE == DTYPE_Q8_0) {
        uint block = at + i / 16 * 34;
        int w = int(u16_at(page, block + 2 + 2 * (i & 15)));
        return half_at(page, block) * vec2(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8));
    }
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
#ifdef WHOLE
    uint table = t * p.table_stride;
    turn_query(p, table, dim);
    if (own >= begin && own < end)
        put_own(p, t, head, sequence, own, table);
    barrier();
#endif
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
#ifdef WHOLE
                for (uint j = 0; j < 8 && at + THREAD == own; j++) {
                    uint col = 4 * min(i + j, dim / 4 - 1);
                    k[j] = vec4(own_k[col], own_k[col + 1], own_k[col + 2], own_k[col + 3]);
                }
#endif
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
#ifdef WHOLE
                if (at + of == own)
                    v[j] = vec2(own_v[2 * pair], own_v[2 * pair + 1]);
#endif
            }
            [[unroll]] for (uint j = 0; j < 8; j++)
                [[unroll]] for (uint h = 0; h < HEADS; h++)
                    if (i + j * lanes < n)
                        sums[h] += scores[h][i + j * lanes] * v[j];
        }
        barrier();
    }
    PARTS_AT parts = PARTS_AT(uvec2(p.parts));
    for (uint h = 0; h < HEADS; h++) {
        uint to = ((t * p.n_heads + head * HEADS + h) * p.n_parts + part) * (c.v_dim + 2);
        halves[THREAD] = sums[h];
        barrier();
        if (lane == 0) {
            vec2 all = sums[h];
            for (uint i = 1; i < lanes; i++)
                all += halves[i * pairs + pair];
            parts.v[to + 2 + 2 * pair] = all.x;
            parts.v[to + 3 + 2 * pair] = all.y;
        }
        if (THREAD == 0) {
            parts.v[to] = tops[h];
            parts.v[to + 1] = totals[h];
        }
        barrier();
    }
#ifdef WHOLE
    memoryBarrierBuffer();
    barrier();
    common_words_at counts = common_words_at(uvec2(p.counts));
    uint done = t * c.n_heads + head;
    if (THREAD == 0)
        is_last = atomicAdd(counts.v[done], 1) + 1 == p.n_parts ? 1 : 0;
    barrier();
    if (is_last == 0)
        return;
    memoryBarrierBuffer();
    for (uint h = 0; h < HEADS; h++)
        join_parts(p, parts, t, head * HEADS + h);
    if (THREAD == 0) /* for the next run */
        counts.v[done] = 0;
#endif
}
