/*
 * softmax(q k) v for many tokens and a cache of F16, by cooperative matrices: a workgroup for ROWS rows
 * of q, which are the heads of some tokens that share a head of the cache. A subgroup has 16 of them.
 *
 * All positions are gone through twice, COLS at a time: first for the largest score of each row, then for
 * the weights and sums, which need no rescaling then. Keys and values are halves in the cache. q is two
 * halves, of which the second has what the first one lacks, so that scores are as good as by floats;
 * for the largest score the first is enough. Weights are one half: each is off by 2^-12 at most, and the
 * sum that they are divided by is that of the halves, or on NVIDIA (see shortened) of what they were made of.
 */
#extension GL_EXT_control_flow_attributes : require
#define HAS_OWN_SIZE
#include "common.glsl"
#include "cache.glsl"
#include "math.glsl"
layout(local_size_x_id = 1) in;
layout(constant_id = 1) const uint SIZE = 128;
layout(constant_id = 2) const uint HEADS = 1;  /* of q for one of the cache */
layout(constant_id = 3) const uint K_SIDES = 8; /* of a key: columns / 16 */
layout(constant_id = 4) const uint V_SIDES = 8; /* of a value */
layout(constant_id = 5) const uint PAGE = 32;   /* positions of a page */
#include "matrices.glsl"
#define LEAST -1e30
#define ROWS 64
#define COLS 32
#define MOST_SIDES 8
#define S_STRIDE (COLS + 4)
#define P_STRIDE (COLS / 8 + 1)
PARAMS(attend_args)

const uint K_STRIDE = 2 * K_SIDES + 1, V_STRIDE = 2 * V_SIDES + 1; /* of a row, in pieces of 8 halves */
const uint K_EACH = (COLS * 2 * K_SIDES + SIZE - 1) / SIZE, V_EACH = (COLS * 2 * V_SIDES + SIZE - 1) / SIZE;
const uint V_TILE = COLS * K_STRIDE; /* behind the keys */
const uint ROOM_KV = V_TILE + COLS * V_STRIDE, ROOM_Q = ROWS * K_STRIDE;

shared uvec4 room[ROOM_KV > ROOM_Q ? ROOM_KV : ROOM_Q]; /* keys and values; before that, q */
shared float scores[ROWS * S_STRIDE];
shared uvec4 weights[ROWS * P_STRIDE];
shared uint begins[ROWS], ends[ROWS]; /* positions that a row sees */
shared float halves[2 * ROWS];        /* of the two threads of a row */
shared float factors[ROWS];

uvec4 k_next[K_EACH], v_next[V_EACH];

words_at page_at(cache_args c, uint sequence, uint position)
{
    uint page = c.tables.v[sequence * c.pages_per_sequence + position / PAGE];
    return words_at(address_plus(uvec2(c.data), page, c.page_bytes));
}

/* Ask for the keys of COLS positions from `at` on; what is not seen by anybody is the last. */
void ask_keys(cache_args c, uint sequence, uint head, uint at, uint end)
{
    [[unroll]] for (uint i = 0; i < K_EACH; i++) {
        uint e = THREAD + SIZE * i, position = min(at + e / (2 * K_SIDES), end - 1);
        uint row = c.k_offset + (head * PAGE + position % PAGE) * c.row_bytes;
        k_next[i] = pieces_at(uvec2(page_at(c, sequence, position))).v[row / 16 + e % (2 * K_SIDES)];
    }
}

void ask_values(cache_args c, uint sequence, uint head, uint at, uint end)
{
    [[unroll]] for (uint i = 0; i < V_EACH; i++) {
        uint e = THREAD + SIZE * i, position = min(at + e / (2 * V_SIDES), end - 1);
        uint row = c.v_offset + (head * PAGE + position % PAGE) * c.v_row_bytes;
        v_next[i] = pieces_at(uvec2(page_at(c, sequence, position))).v[row / 16 + e % (2 * V_SIDES)];
    }
}

void put_keys()
{
    [[unroll]] for (uint i = 0; i < K_EACH; i++) {
        uint e = THREAD + SIZE * i;
        if (e < COLS * 2 * K_SIDES)
            room[e / (2 * K_SIDES) * K_STRIDE + e % (2 * K_SIDES)] = k_next[i];
    }
}

void put_values()
{
    [[unroll]] for (uint i = 0; i < V_EACH; i++) {
        uint e = THREAD + SIZE * i;
        if (e < COLS * 2 * V_SIDES)
            room[V_TILE + e / (2 * V_SIDES) * V_STRIDE + e % (2 * V_SIDES)] = v_next[i];
    }
}

/* What a row of q sees. */
void find_rows(attend_args p, uint first, uint n)
{
    cache_args c = p.cache;
    if (THREAD >= ROWS)
        return;
    uint t = first + min(THREAD / HEADS, n - 1), own = c.positions.v[t], end = c.seen.v[t];
    uint begin = p.window != 0 && own + 1 > p.window ? own + 1 - p.window : 0;
    if (p.chunk != 0)
        begin = max(begin, own / p.chunk * p.chunk);
    if (p.ahead != 0)
        end = min(end, own + 1 + p.ahead);
    begins[THREAD] = begin;
    ends[THREAD] = THREAD < n * HEADS ? end : 0;
}

/*
 * Values with as many bits as halves have. Compilers may take what is packed as halves and unpacked again
 * for what it was, and NVIDIA's does: nothing would be left of the rest of q.
 */
vec2 shortened(vec2 v)
{
    uvec2 bits = floatBitsToUint(v);
    return uintBitsToFloat((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu);
}

/* Two values of a row of q as halves; or what these lack. */
uint two_halves(vec2 v, bool is_rest)
{
    vec2 most = shortened(v);
    return packHalf2x16(is_rest ? v - most : most);
}

/* q times the scale, to room. */
void put_query(attend_args p, uint head, uint first, uint n, bool is_rest)
{
    for (uint e = THREAD; e < ROWS * 2 * K_SIDES; e += SIZE) {
        uint row = e / (2 * K_SIDES), i = e % (2 * K_SIDES), t = first + min(row / HEADS, n - 1);
        uint from = t * p.q_stride + (head * HEADS + row % HEADS) * 16 * K_SIDES + 8 * i;
        uvec4 w;
        [[unroll]] for (uint k = 0; k < 4; k++)
            w[k] = two_halves(vec2(p.q.v[from + 2 * k], p.q.v[from + 2 * k + 1]) * p.scale, is_rest);
        room[row * K_STRIDE + i] = w;
    }
}

/* The score of a row with a position, which may not be seen. */
float score_at(attend_args p, uint row, uint at, uint col)
{
    float s = scores[row * S_STRIDE + col];
    if (p.softcap > 0.0)
        s = p.softcap * exact_tanh(s / p.softcap);
    return at + col >= begins[row] && at + col < ends[row] ? s : LEAST;
}

/* GLSL promises e^x within 3 + 2 |x| units in the last place: enough for weights. */
float weight_of(float s, float top)
{
    return s > LEAST ? exp(clamp(s - top, -80.0, 10.0)) : 0.0;
}

/* Tokens [first, first + n), all of one sequence. */
void attend(attend_args p, uint head, uint first, uint n)
{
    cache_args c = p.cache;
    uint sequence = c.sequences.v[first], begin = 0xffffffffu, end = 0;
    uint row0 = 16 * SUBGROUP, row = row0 + LANE / 2, part = LANE % 2 * (COLS / 2);
    bool is_mine = LANE < 32;
    MAT_A q[MOST_SIDES], rest[MOST_SIDES];
    find_rows(p, first, n);
    put_query(p, head, first, n, false);
    barrier();
    for (uint i = 0; i < ROWS; i++) {
        begin = ends[i] > begins[i] ? min(begin, begins[i]) : begin;
        end = max(end, ends[i]);
    }
    if (begin < end)
        ask_keys(c, sequence, head, begin, end);
    [[unroll]] for (uint k = 0; k < K_SIDES; k++)
        MATRIX_LOAD_A(q[k], room, row0 * K_STRIDE + 2 * k, K_STRIDE);
    barrier();
    put_query(p, head, first, n, true);
    barrier();
    [[unroll]] for (uint k = 0; k < K_SIDES; k++)
        MATRIX_LOAD_A(rest[k], room, row0 * K_STRIDE + 2 * k, K_STRIDE);
    barrier();

    float top = LEAST, total = 0.0;
    for (uint at = begin; at < end; at += COLS) {
        put_keys();
        barrier();
        ask_keys(c, sequence, head, at + COLS < end ? at + COLS : begin, end);
        [[unroll]] for (uint j = 0; j < COLS / FRAG; j++) {
            MAT_C s;
            MATRIX_CLEAR(s);
            [[unroll]] for (uint k = 0; k < K_SIDES; k++) {
                MAT_B b;
                MATRIX_LOAD_B(b, room, FRAG * j * K_STRIDE + 2 * k, K_STRIDE, true);
                MATRIX_ADD_PRODUCT(s, q[k], b);
            }
            MATRIX_STORE(s, scores, row0 * S_STRIDE + FRAG * j, S_STRIDE, false);
        }
        SUBGROUP_BARRIER();
        for (uint i = 0; i < COLS / 2 && is_mine; i++)
            top = max(top, score_at(p, row, at, part + i));
        barrier();
    }
    if (is_mine)
        halves[2 * row + LANE % 2] = top;
    SUBGROUP_BARRIER();
    if (is_mine)
        top = max(halves[2 * row], halves[2 * row + 1]);

    MAT_C sums[MOST_SIDES];
    [[unroll]] for (uint j = 0; j < MOST_SIDES; j++)
        MATRIX_CLEAR(sums[j]);
    if (begin < end)
        ask_values(c, sequence, head, begin, end);
    for (uint at = begin; at < end; at += COLS) {
        put_keys();
        put_values();
        barrier();
        if (at + COLS < end) {
            ask_keys(c, sequence, head, at + COLS, end);
            ask_values(c, sequence, head, at + COLS, end);
        }
        [[unroll]] for (uint j = 0; j < COLS / FRAG; j++) {
            MAT_C s;
            MATRIX_CLEAR(s);
            [[unroll]] for (uint k = 0; k < K_SIDES; k++) {
                MAT_B b;
                MATRIX_LOAD_B(b, room, FRAG * j * K_STRIDE + 2 * k, K_STRIDE, true);
                MATRIX_ADD_PRODUCT(s, rest[k], b);
                MATRIX_ADD_PRODUCT(s, q[k], b);
            }
            MATRIX_STORE(s, scores, row0 * S_STRIDE + FRAG * j, S_STRIDE, false);
        }
        SUBGROUP_BARRIER();
        [[unroll]] for (uint i = 0; i < COLS / 16; i++) {
            uvec4 w = uvec4(0);
            [[unroll]] for (uint k = 0; k < 4; k++) {
                uint col = part + 8 * i + 2 * k;
                if (is_mine) {
                    w[k] = packHalf2x16(vec2(weight_of(score_at(p, row, at, col), top),
                                             weight_of(score_at(p, row, at, col + 1), top)));
                    vec2 kept = unpackHalf2x16(w[k]);
                    total += kept.x + kept.y;
                }
            }
            if (is_mine)
                weights[row * P_STRIDE + part / 8 + i] = w;
        }
        SUBGROUP_BARRIER();
        [[unroll]] for (uint kk = 0; kk < COLS / FRAG; kk++) {
            MAT_A a;
            MATRIX_LOAD_A(a, weights, row0 * P_STRIDE + 2 * kk, P_STRIDE);
            [[unroll]] for (uint j = 0; j < V_SIDES; j++) {
                MAT_B b;
                MATRIX_LOAD_B(b, room, V_TILE + FRAG * kk * V_STRIDE + 2 * j, V_STRIDE, false);
                MATRIX_ADD_PRODUCT(sums[j], a, b);
            }
        }
        barrier();
    }
    if (is_mine)
        halves[2 * row + LANE % 2] = total;
    SUBGROUP_BARRIER();
    if (is_mine && LANE % 2 == 0) {
        float all = halves[2 * row] + halves[2 * row + 1], by = 1.0;
        if (!IS_NULL(p.sinks)) {
            float sink = p.sinks.v[head * HEADS + row % HEADS], most = max(top, sink);
            by = exact_exp(top - most);
            all = all * by + exact_exp(sink - most);
        }
        factors[row] = by / all;
    }
    /* Written out: a loop with barriers would not be unrolled, and sums would leave registers. */
#define PUT_SIDE(j)                                                                                \
    if (j < V_SIDES) {                                                                             \
        SUBGROUP_BARRIER();                                                                        \
        MATRIX_STORE(sums[j], scores, row0 * S_STRIDE, S_STRIDE, false);                           \
        SUBGROUP_BARRIER();                                                                        \
        for (uint e = LANE; e < FRAG * FRAG; e += 32) {                                            \
            uint r = row0 + e / FRAG;                                                              \
            if (r < n * HEADS && is_mine)                                                          \
                p.result.v[(first + r / HEADS) * p.out_stride +                                    \
                           ((head * HEADS + r % HEADS) * V_SIDES + j) * 16 + e % FRAG] =           \
                    scores[r * S_STRIDE + e % FRAG] * factors[r];                                  \
        }                                                                                          \
    }
    PUT_SIDE(0)
    PUT_SIDE(1)
    PUT_SIDE(2)
    PUT_SIDE(3)
    PUT_SIDE(4)
    PUT_SIDE(5)
    PUT_SIDE(6)
    PUT_SIDE(7)
    barrier();
}

void main()
{
    attend_args p = params.value;
    /* The last tokens see most: they come first. */
    uint tokens = ROWS / HEADS, first = (gl_NumWorkGroups.x - 1 - GROUP.x) * tokens;
    uint end = min(first + tokens, p.n_tokens);
    while (first < end) { /* the tokens of each sequence */
        uint n = 1;
        while (first + n < end && p.cache.sequences.v[first + n] == p.cache.sequences.v[first])
            n++;
        attend(p, GROUP.y, first, n);
        first += n;
    }
}
