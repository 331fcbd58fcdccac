/*
 * softmax(q k) v over a part of the positions that a token sees, for all heads that share a head of
 * the cache: a workgroup for each token, head of the cache and part. attend_join.glsl joins the parts;
 * of a short context there is only one, whose workgroup writes the result itself.
 *
 * COLS positions at a time: TEAM threads compute the scores of a position, each a share of its
 * columns; then a thread adds up four columns of every LANES-th position's values. What a thread reads of
 * the cache is asked for long before it is used: the first positions' keys and values before q is there.
 *
 * WHOLE: all of attention in one launch, for tokens of which no two are of one sequence. q is turned
 * here, by each workgroup; the one whose part has the token's own position turns k and puts k and v
 * into the cache, and takes them from shared memory itself. The last workgroup of a token and head
 * of the cache joins the parts: nobody waits for another.
 */
#extension GL_EXT_control_flow_attributes : require
#define HAS_OWN_SIZE
#define SIZE 256
layout(local_size_x = SIZE) in;
#include "common.glsl"
#include "block_values.glsl"
#include "cache.glsl"
#include "math.glsl"
#include "planes.glsl"
#include "attend_range.glsl"
#define THREADS SIZE
#define LEAST -1e30
#define MOST_WIDTH 256 /* of a head */
layout(constant_id = 1) const uint HEADS = 1; /* of q for one of the cache */
layout(constant_id = 2) const uint K_FOURS = 16; /* of a key */
layout(constant_id = 3) const uint V_FOURS = 16; /* of a value */
layout(constant_id = 4) const uint PAGE = 32;    /* positions of a page */
PARAMS(attend_args)

const uint TEAM = SIZE / COLS;
const uint UNIT = TYPE == DTYPE_F16 ? 2 : 1; /* fours of a key that are read at once */
const uint K_UNITS = K_FOURS / UNIT, K_EACH = (K_UNITS + TEAM - 1) / TEAM;
const uint LANES = SIZE / V_FOURS, V_EACH = (COLS + LANES - 1) / LANES;
const uint Q_FOURS = HEADS * (K_FOURS > V_FOURS ? K_FOURS : V_FOURS);
#define TOGETHER 4 /* heads whose sums are added up at once */

shared vec4 q[Q_FOURS]; /* then the result */
shared vec4 room[SIZE * TOGETHER]; /* shares of scores, then of sums */
shared vec4 scores[HEADS * COLS / 4]; /* then weights */
shared vec4 group_tops[HEADS * 2];
shared float tops[2][HEADS], fades[HEADS];

#define joined q
#define JOIN_HEADS HEADS
#ifdef WHOLE
/* What other workgroups have written is read. */
layout(buffer_reference, scalar, buffer_reference_align = 16) coherent buffer common_pieces_at { uvec4 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer common_floats_at { float v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer common_words_at { uint v[]; };
#define PARTS_AT common_pieces_at
#define PART_MARKS_AT common_floats_at
#define IS_WHOLE true
shared float own_k[MOST_WIDTH], own_v[MOST_WIDTH]; /* as the cache keeps them */
shared uint is_last;
#define ROW(i) room[(i) / 4][(i) % 4]
#include "cache_store.glsl"
#include "turn.glsl"
#else
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer written_pieces_at { uvec4 v[]; };
#define PARTS_AT written_pieces_at
#define PART_MARKS_AT floats_at
#define IS_WHOLE false
#endif
#include "attend_join.glsl"

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer twos_at { uvec2 v[]; };

uvec4 k_next[K_EACH];
uvec2 v_next[V_EACH];  /* F16 and Q8_0 */
uvec4 v_floats[V_EACH]; /* F32 */
vec4 sums[HEADS];
float totals[HEADS];

words_at page_of(cache_args c, uint sequence, uint position)
{
    uint page = c.tables.v[sequence * c.pages_per_sequence + position / PAGE];
    return words_at(address_plus(uvec2(c.data), page, c.page_bytes));
}

/* Four bytes from byte i on, which is even. */
uint word_at(words_at base, uint i)
{
    uint w = base.v[i / 4];
    return (i & 2) == 0 ? w : w >> 16 | base.v[i / 4 + 1] << 16;
}

/* Columns 4 i to 4 i + 3 of a row of Q8_0: the numbers, and the scale. */
uvec2 bytes_at(words_at page, uint at, uint i)
{
    uint block = at + i / 8 * 34;
    return uvec2(word_at(page, block + 2 + 4 * (i & 7)), u16_at(page, block));
}

vec4 four_bytes(uvec2 raw)
{
    int w = int(raw.x);
    return float_of_half(raw.y) * vec4(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8),
                                       bitfieldExtract(w, 16, 8), w >> 24);
}

vec4 four_halves(uvec2 raw)
{
    return vec4(unpackHalf2x16(raw.x), unpackHalf2x16(raw.y));
}

/* Ask for this thread's share of the keys of COLS positions from `at` on; what is behind `end` is the last. */
void ask_keys(cache_args c, uint sequence, uint head, uint at, uint end)
{
    uint position = min(at + THREAD / TEAM, end - 1);
    words_at page = page_of(c, sequence, position);
    uint row = c.k_offset + (head * PAGE + position % PAGE) * c.row_bytes;
    [[unroll]] for (uint i = 0; i < K_EACH; i++) {
        uint unit = min(THREAD % TEAM + TEAM * i, K_UNITS - 1);
        if (TYPE == DTYPE_Q8_0)
            k_next[i].xy = bytes_at(page, row, unit);
        else
            k_next[i] = pieces_at(uvec2(page)).v[row / 16 + unit];
    }
}

void ask_values(cache_args c, uint sequence, uint head, uint at, uint end)
{
    uint four = THREAD % V_FOURS, lane = THREAD / V_FOURS;
    [[unroll]] for (uint i = 0; i < V_EACH; i++) {
        uint position = min(at + lane + LANES * i, end - 1);
        words_at page = page_of(c, sequence, position);
        uint row = c.v_offset + (head * PAGE + position % PAGE) * c.v_row_bytes;
        if (TYPE == DTYPE_Q8_0)
            v_next[i] = bytes_at(page, row, four);
        else if (TYPE == DTYPE_F16)
            v_next[i] = twos_at(uvec2(page)).v[row / 8 + four];
        else
            v_floats[i] = pieces_at(uvec2(page)).v[row / 16 + four];
    }
}

/* Four of a key that was asked for: the n-th of a unit. */
vec4 key_four(uint i, uint n)
{
    if (TYPE == DTYPE_Q8_0)
        return four_bytes(k_next[i].xy);
    if (TYPE == DTYPE_F16)
        return four_halves(n == 0 ? k_next[i].xy : k_next[i].zw);
    return uintBitsToFloat(k_next[i]);
}

vec4 value_four(uint i)
{
    return TYPE == DTYPE_Q8_0  ? four_bytes(v_next[i])
           : TYPE == DTYPE_F16 ? four_halves(v_next[i])
                               : uintBitsToFloat(v_floats[i]);
}

#ifdef WHOLE
/* n values of the row from value `from` of ROW on, as the cache keeps them. */
float kept_value(uint from, uint i)
{
    if (TYPE == DTYPE_F32)
        return ROW(from + i);
    if (TYPE == DTYPE_F16)
        return float_of_half(half_of_float(ROW(from + i)));
    float most = 0.0;
    for (uint k = i / 32 * 32; k < i / 32 * 32 + 32; k++)
        most = max(most, abs(ROW(from + k)));
    float d = most / 127.0, inverse = d > 0.0 ? 1.0 / d : 0.0;
    return float_of_half(half_of_float(d)) * float(byte_of(ROW(from + i) * inverse));
}

/* Which two values of a head are pair i, and what they are turned by. */
uvec2 pair_of(attend_args p, uint i)
{
    uint turns = p.n_dims / 2;
    if (i >= turns)
        return uvec2(2 * i, 2 * i + 1);
    return p.is_neox != 0 ? uvec2(i, i + turns) : uvec2(2 * i, 2 * i + 1);
}

vec2 turned_pair(attend_args p, floats_at from, uint at, uvec2 pair, uint i, uint table)
{
    vec2 x = vec2(from.v[at + pair.x], from.v[at + pair.y]);
    if (i >= p.n_dims / 2)
        return x;
    return turned(x, p.table.v[table + 2 * i], p.table.v[table + 2 * i + 1]);
}

/* q of all heads, and the token's own key and value if they are of this part, to shared memory and the cache. */
void turn_all(attend_args p, uint t, uint head, uint sequence, uint own, bool has_own)
{
    cache_args c = p.cache;
    const uint PAIRS = 2 * K_FOURS;
    uint table = t * p.table_stride, from = t * p.q_stride + head * HEADS * 4 * K_FOURS;
    for (uint e = THREAD; e < HEADS * PAIRS; e += SIZE) {
        uint i = e % PAIRS, first = e / PAIRS * K_FOURS;
        uvec2 pair = pair_of(p, i);
        vec2 x = turned_pair(p, p.q, from + 4 * first, pair, i, table);
        q[first + pair.x / 4][pair.x % 4] = x.x;
        q[first + pair.y / 4][pair.y % 4] = x.y;
    }
    if (!has_own)
        return;
    if (THREAD < PAIRS) {
        uvec2 pair = pair_of(p, THREAD);
        vec2 x = turned_pair(p, p.k, t * p.k_stride + head * 4 * K_FOURS, pair, THREAD, table);
        ROW(pair.x) = x.x;
        ROW(pair.y) = x.y;
    }
    if (THREAD < 4 * V_FOURS)
        ROW(MOST_WIDTH + THREAD) = p.v.v[t * p.v_stride + head * 4 * V_FOURS + THREAD];
    barrier();
    words_at page = page_of(c, sequence, own);
    uint row = head * PAGE + own % PAGE;
    store_row(page, c.k_offset + row * c.row_bytes, 4 * K_FOURS, 0);
    store_row(page, c.v_offset + row * c.v_row_bytes, 4 * V_FOURS, MOST_WIDTH);
    if (THREAD < 4 * K_FOURS)
        own_k[THREAD] = kept_value(0, THREAD);
    if (THREAD < 4 * V_FOURS)
        own_v[THREAD] = kept_value(MOST_WIDTH, THREAD);
}

vec4 own_key(uint four)
{
    return vec4(own_k[4 * four], own_k[4 * four + 1], own_k[4 * four + 2], own_k[4 * four + 3]);
}

vec4 own_value(uint four)
{
    return vec4(own_v[4 * four], own_v[4 * four + 1], own_v[4 * four + 2], own_v[4 * four + 3]);
}
#endif

/* This thread's share of the scores of a position, to room. */
void score(uint at, uint end, uint own)
{
    uint col = THREAD / TEAM, share = THREAD % TEAM;
    bool is_own = min(at + col, end - 1) == own;
    vec4 dots[HEADS];
    [[unroll]] for (uint h = 0; h < HEADS; h++)
        dots[h] = vec4(0.0);
    [[unroll]] for (uint i = 0; i < K_EACH; i++) {
        uint unit = share + TEAM * i;
        if (unit < K_UNITS) {
            [[unroll]] for (uint n = 0; n < UNIT; n++) {
                vec4 k = key_four(i, n);
#ifdef WHOLE
                if (is_own)
                    k = own_key(UNIT * unit + n);
#endif
                [[unroll]] for (uint h = 0; h < HEADS; h++)
                    dots[h] += k * q[h * K_FOURS + UNIT * unit + n];
            }
        }
    }
    [[unroll]] for (uint h = 0; h < HEADS; h++) {
        uint to = (share * HEADS + h) * COLS + col;
        room[to / 4][to % 4] = (dots[h].x + dots[h].y) + (dots[h].z + dots[h].w);
    }
}

/* The shares as one: eight positions of a head for a thread. */
void join_scores(attend_args p, uint at, uint end)
{
    uint h = THREAD / 8, g = THREAD % 8;
    if (h >= HEADS)
        return;
    float top = LEAST;
    [[unroll]] for (uint i = 0; i < 2; i++) {
        vec4 s = vec4(0.0);
        [[unroll]] for (uint k = 0; k < TEAM; k++)
            s += room[((k * HEADS + h) * COLS + 8 * g) / 4 + i];
        s *= p.scale;
        [[unroll]] for (uint k = 0; k < 4; k++) {
            if (p.softcap > 0.0)
                s[k] = p.softcap * exact_tanh(s[k] / p.softcap);
            if (at + 8 * g + 4 * i + k >= end)
                s[k] = LEAST;
            top = max(top, s[k]);
        }
        scores[(h * COLS + 8 * g) / 4 + i] = s;
    }
    group_tops[THREAD / 4][THREAD % 4] = top;
}

/* Scores become weights. which: of tops, those so far. */
void weigh(uint at, uint end, uint which)
{
    for (uint e = THREAD; e < HEADS * COLS / 4; e += SIZE) {
        uint h = e / (COLS / 4), four = e % (COLS / 4);
        vec4 all = max(group_tops[2 * h], group_tops[2 * h + 1]), s = scores[e];
        float before = tops[which][h];
        float now = max(max(before, max(all.x, all.y)), max(all.z, all.w));
        [[unroll]] for (uint k = 0; k < 4; k++)
            s[k] = at + 4 * four + k < end ? exact_exp(s[k] - now) : 0.0;
        scores[e] = s;
        if (four == 0) {
            fades[h] = exact_exp(before - now);
            tops[which ^ 1][h] = now;
        }
    }
}

void add_values(uint at, uint end, uint own)
{
    uint four = THREAD % V_FOURS, lane = THREAD / V_FOURS;
    if (lane >= LANES)
        return;
    [[unroll]] for (uint h = 0; h < HEADS; h++) {
        sums[h] *= fades[h];
        totals[h] *= fades[h];
    }
    [[unroll]] for (uint i = 0; i < V_EACH; i++) {
        uint col = lane + LANES * i;
        if (col < COLS) {
            vec4 v = value_four(i);
#ifdef WHOLE
            if (min(at + col, end - 1) == own)
                v = own_value(four);
#endif
            [[unroll]] for (uint h = 0; h < HEADS; h++) {
                float weight = scores[(h * COLS + col) / 4][col % 4];
                sums[h] += weight * v;
                totals[h] += weight;
            }
        }
    }
}

/* The lanes' sums as one, of TOGETHER heads at a time: to joined, or to the part's place. */
void join_lanes(attend_args p, PARTS_AT parts, PART_MARKS_AT part_marks_of, uint t, uint first, uint part,
                bool is_alone, uint which)
{
    uint four = THREAD % V_FOURS, lane = THREAD / V_FOURS;
    barrier();
    [[unroll]] for (uint h = 0; h < HEADS; h++)
        if (lane < LANES && four == 0)
            scores[(h * LANES + lane) / 4][(h * LANES + lane) % 4] = totals[h];
    [[unroll]] for (uint h0 = 0; h0 < HEADS; h0 += TOGETHER) {
        [[unroll]] for (uint k = 0; k < TOGETHER; k++)
            if (h0 + k < HEADS && lane < LANES)
                room[(k * LANES + lane) * V_FOURS + four] = sums[h0 + k];
        barrier();
        for (uint e = THREAD; e < TOGETHER * V_FOURS; e += SIZE) {
            uint k = e / V_FOURS, h = h0 + k;
            if (h >= HEADS)
                break;
            vec4 all = vec4(0.0);
            for (uint i = 0; i < LANES; i++)
                all += room[(k * LANES + i) * V_FOURS + e % V_FOURS];
            if (is_alone)
                joined[h * V_FOURS + e % V_FOURS] = all;
            else
                parts.v[part_sums(p, t, first + h, part) / 4 + e % V_FOURS] = floatBitsToUint(all);
        }
        barrier();
    }
    if (THREAD < HEADS) {
        float total = 0.0;
        for (uint i = 0; i < LANES; i++)
            total += scores[(THREAD * LANES + i) / 4][(THREAD * LANES + i) % 4];
        uint at = part_marks(p, t, first + THREAD, part);
        marks[THREAD * MOST_PARTS] = vec2(tops[which][THREAD], total);
        if (!is_alone) {
            part_marks_of.v[at] = tops[which][THREAD];
            part_marks_of.v[at + 1] = total;
        }
    }
}

void main()
{
    attend_args p = params.value;
    cache_args c = p.cache;
    uint t = GROUP.x, head = GROUP.y, part = GROUP.z, sequence = c.sequences.v[t];
    uint own = c.positions.v[t];
    part_range r = find_parts(p, own, c.seen.v[t]);
    if (part >= r.n)
        return;
    uint begin = min(r.begin + part * r.size, r.end), end = min(begin + r.size, r.end), which = 0;
    if (begin < end) {
        ask_keys(c, sequence, head, begin, end);
        ask_values(c, sequence, head, begin, end);
    }
    [[unroll]] for (uint h = 0; h < HEADS; h++) {
        sums[h] = vec4(0.0);
        totals[h] = 0.0;
    }
    if (THREAD < HEADS)
        tops[0][THREAD] = LEAST;
#ifdef WHOLE
    turn_all(p, t, head, sequence, own, own >= begin && own < end);
#else
    for (uint i = THREAD; i < HEADS * K_FOURS * 4; i += SIZE)
        q[i / 4][i % 4] = p.q.v[t * p.q_stride + head * HEADS * K_FOURS * 4 + i];
#endif
    barrier();
    for (uint at = begin; at < end; at += COLS) {
        score(at, end, own);
        if (at + COLS < end)
            ask_keys(c, sequence, head, at + COLS, end);
        barrier();
        join_scores(p, at, end);
        barrier();
        weigh(at, end, which);
        barrier();
        add_values(at, end, own);
        if (at + COLS < end)
            ask_values(c, sequence, head, at + COLS, end);
        which ^= 1;
    }
    PARTS_AT parts = PARTS_AT(uvec2(p.parts));
    PART_MARKS_AT part_marks_of = PART_MARKS_AT(uvec2(p.parts));
    uint first = head * HEADS;
    join_lanes(p, parts, part_marks_of, t, first, part, IS_WHOLE && r.n == 1, which);
#ifdef WHOLE
    if (r.n == 1) {
        barrier();
        weigh_parts(p, first, 1);
        for (uint e = THREAD; e < HEADS * V_FOURS; e += SIZE)
            joined[e] *= shares[e / V_FOURS * MOST_PARTS];
        put_joined(p, t, first);
        return;
    }
    memoryBarrierBuffer();
    barrier();
    common_words_at counts = common_words_at(uvec2(p.counts));
    uint done = t * c.n_heads + head;
    if (THREAD == 0)
        is_last = atomicAdd(counts.v[done], 1) + 1 == r.n ? 1 : 0;
    barrier();
    if (is_last == 0)
        return;
    memoryBarrierBuffer();
    join_parts(p, parts, part_marks_of, t, first, r.n);
    if (THREAD == 0) /* for the next run */
        counts.v[done] = 0;
#endif
}
