/*
 * softmax(q k) v for many tokens: a workgroup for ROWS rows of q, which are the heads of some tokens
 * that share a head of the cache. Keys, then values, of COLS positions at a time come to shared memory.
 * A thread computes for two of the rows, with TEAM threads for each two. Sums are kept online.
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
layout(constant_id = 1) const uint HEADS = 1; /* of q for one of the cache */
layout(constant_id = 2) const uint FOURS = 16; /* of the wider of keys and values */
layout(constant_id = 3) const uint ROWS = 32;
layout(constant_id = 4) const uint COLS = 32;
const uint TEAM = 2 * SIZE / ROWS, MOST_FOURS = 4; /* of a thread's sums */
PARAMS(attend_args)

shared vec4 q[ROWS * FOURS], kv[COLS * (FOURS + 1)];
shared float scores[ROWS][COLS + 1], tops[ROWS], totals[ROWS], fades[ROWS];
shared uint begins[ROWS], ends[ROWS]; /* positions that a row sees */

/* Columns 4 i to 4 i + 3 of a row of the cache. */
vec4 four_at(words_at page, uint at, uint i)
{
    if (TYPE == DTYPE_F32)
        return uintBitsToFloat(pieces_at(uvec2(page)).v[at / 16 + i]);
    if (TYPE == DTYPE_F16) {
        uvec4 all = pieces_at(uvec2(page)).v[at / 16 + i / 2];
        uvec2 w = (i & 1) == 0 ? all.xy : all.zw;
        return vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
    }
    return vec4(block_value(page, at, 4 * i), block_value(page, at, 4 * i + 1),
                block_value(page, at, 4 * i + 2), block_value(page, at, 4 * i + 3));
}

/* COLS positions from `first` on, up to `end`, to shared memory; what is behind is zeros. */
void fill(cache_args c, uint sequence, uint head, uint first, uint end, bool is_value)
{
    uint fours = (is_value ? c.v_dim : c.head_dim) / 4;
    for (uint e = THREAD; e < COLS * fours; e += SIZE) {
        uint position = first + e / fours, i = e % fours;
        vec4 v = vec4(0.0);
        if (position < end) {
            words_at page = cache_page(c, sequence, position);
            v = four_at(page,
                        is_value ? value_offset(c, head, position) : key_offset(c, head, position), i);
        }
        kv[e / fours * (FOURS + 1) + i] = v;
    }
}

/* The scores of this thread's two rows: of every TEAM-th position. */
void score(attend_args p, uint row, uint lane, uint first)
{
    uint fours = p.cache.head_dim / 4;
    for (uint col = lane; col < COLS; col += TEAM) {
        vec4 a = vec4(0.0), b = vec4(0.0);
        for (uint i = 0; i < fours; i++) {
            vec4 k = kv[col * (FOURS + 1) + i];
            a += k * q[row * FOURS + i];
            b += k * q[(row + 1) * FOURS + i];
        }
        vec2 s = vec2((a.x + a.y) + (a.z + a.w), (b.x + b.y) + (b.z + b.w)) * p.scale;
        for (uint k = 0; k < 2; k++) {
            float one = p.softcap > 0.0 ? p.softcap * exact_tanh(s[k] / p.softcap) : s[k];
            bool is_seen = first + col >= begins[row + k] && first + col < ends[row + k];
            scores[row + k][col] = is_seen ? one : LEAST;
        }
    }
}

/* Scores become weights; a thread for each row. */
void weigh(uint row)
{
    float now = tops[row], all = 0.0;
    for (uint i = 0; i < COLS; i++)
        now = max(now, scores[row][i]);
    for (uint i = 0; i < COLS; i++) {
        float s = scores[row][i], weight = s > LEAST ? exact_exp(s - now) : 0.0;
        scores[row][i] = weight;
        all += weight;
    }
    fades[row] = exact_exp(tops[row] - now);
    totals[row] = totals[row] * fades[row] + all;
    tops[row] = now;
}

/* What a row of q sees, and its values. */
void load_rows(attend_args p, uint head, uint first, uint n)
{
    cache_args c = p.cache;
    if (THREAD < ROWS) {
        uint t = first + min(THREAD / HEADS, n - 1), own = c.positions.v[t], end = c.seen.v[t];
        uint begin = p.window != 0 && own + 1 > p.window ? own + 1 - p.window : 0;
        if (p.chunk != 0)
            begin = max(begin, own / p.chunk * p.chunk);
        if (p.ahead != 0)
            end = min(end, own + 1 + p.ahead);
        begins[THREAD] = begin;
        ends[THREAD] = THREAD < n * HEADS ? end : 0;
        tops[THREAD] = LEAST;
        totals[THREAD] = 0.0;
    }
    for (uint e = THREAD; e < ROWS * c.head_dim; e += SIZE) {
        uint row = e / c.head_dim, i = e % c.head_dim, t = first + min(row / HEADS, n - 1);
        q[row * FOURS + i / 4][i % 4] =
            p.q.v[t * p.q_stride + (head * HEADS + row % HEADS) * c.head_dim + i];
    }
    barrier();
}

/* Tokens [first, first + n), all of one sequence. */
void attend(attend_args p, uint head, uint first, uint n)
{
    cache_args c = p.cache;
    uint row = THREAD / TEAM * 2, lane = THREAD % TEAM, fours = c.v_dim / 4;
    uint sequence = c.sequences.v[first], begin = 0xffffffffu, end = 0;
    vec4 a[MOST_FOURS], b[MOST_FOURS];
    load_rows(p, head, first, n);
    for (uint i = 0; i < ROWS; i++) {
        begin = ends[i] > begins[i] ? min(begin, begins[i]) : begin;
        end = max(end, ends[i]);
    }
    [[unroll]] for (uint i = 0; i < MOST_FOURS; i++)
        a[i] = b[i] = vec4(0.0);
    for (uint at = begin; at < end; at += COLS) {
        fill(c, sequence, head, at, end, false);
        barrier();
        score(p, row, lane, at);
        barrier();
        if (THREAD < ROWS)
            weigh(THREAD);
        fill(c, sequence, head, at, end, true);
        barrier();
        [[unroll]] for (uint i = 0; i < MOST_FOURS; i++) {
            a[i] *= fades[row];
            b[i] *= fades[row + 1];
        }
        for (uint k = 0; k < COLS; k++) {
            float wa = scores[row][k], wb = scores[row + 1][k];
            [[unroll]] for (uint i = 0; i < MOST_FOURS; i++) {
                vec4 v = kv[k * (FOURS + 1) + min(lane + TEAM * i, FOURS)];
                a[i] += wa * v;
                b[i] += wb * v;
            }
        }
        barrier();
    }
    [[unroll]] for (uint k = 0; k < 2; k++) {
        uint mine = row + k, h = head * HEADS + mine % HEADS;
        float most = tops[mine], total = totals[mine];
        if (!IS_NULL(p.sinks)) {
            float now = max(most, p.sinks.v[h]);
            total = total * exact_exp(most - now) + exact_exp(p.sinks.v[h] - now);
            total /= exact_exp(most - now);
        }
        uint to = (first + mine / HEADS) * p.out_stride + h * c.v_dim;
        [[unroll]] for (uint i = 0; i < MOST_FOURS; i++)
            if (mine < n * HEADS && lane + TEAM * i < fours)
                [[unroll]] for (uint j = 0; j < 4; j++)
                    p.result.v[to + 4 * (lane + TEAM * i) + j] = (k == 0 ? a[i][j] : b[i][j]) / total;
    }
    barrier();
}

void main()
{
    attend_args p = params.value;
    uint tokens = ROWS / HEADS, first = GROUP.x * tokens, end = min(first + tokens, p.n_tokens);
    while (first < end) { /* the tokens of each sequence */
        uint n = 1;
        while (first + n < end && p.cache.sequences.v[first + n] == p.cache.sequences.v[first])
            n++;
        attend(p, GROUP.y, first, n);
        first += n;
    }
}
