/*
 * Products of few rows with a matrix in tiles, or with those of experts or heads.
 *
 * A workgroup has 32 rows of the matrix; each thread one of them, and a share of its tiles. Their sums
 * meet in shared memory. No thread needs another's value before, so nothing depends on how many lanes
 * a subgroup has. DOT4: rows of x are planes for the instruction, where weights are numbers.
 *
 * Matrices of one type that read the same rows stand side by side in one launch. A norm in front costs
 * nothing: whoever makes a row writes it multiplied with the norm's weights, and for each 32 values
 * the sum of their squares, and the factor of the row that follows from these is the result's.
 */
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#define HAS_OWN_SIZE
#include "common.glsl"
#ifdef DOT4
#include "dot4.glsl"
#endif
#include "tiles.glsl"
#include "math.glsl"
#include "planes.glsl"
layout(local_size_x_id = 1) in;
layout(constant_id = 2) const uint SHARES = 1; /* threads of a row */
layout(constant_id = 3) const uint TOKENS = 1; /* rows of x */
layout(constant_id = 4) const uint IS_PAIR = 0;
layout(constant_id = 5) const uint NEXT = 0; /* `next`: 0: none; 1: planes; 2: floats */
PARAMS(product_args)

const uint N_SUMS = TOKENS * (1 + IS_PAIR); /* of a thread: those of the pair behind the others */

shared float parts[N_SUMS * SHARES * 32], values[SHARES * 32], squares[SHARES * 32];
shared float row_squares[TOKENS * 32]; /* of each token, in 32 parts */

float sums[N_SUMS];

#ifdef DOT4
/* 32 numbers times those of x, of which h and l are the planes, and d what is behind them. */
float block_sum(block_numbers n, uvec4 h0, uvec4 h1, uvec4 l0, uvec4 l1, vec4 d)
{
    int a = 256 * (dot4(n.a.x, h0.x) + dot4(n.a.y, h0.y) + dot4(n.a.z, h0.z) + dot4(n.a.w, h0.w)) +
            dot4(n.a.x, l0.x) + dot4(n.a.y, l0.y) + dot4(n.a.z, l0.z) + dot4(n.a.w, l0.w);
    int b = 256 * (dot4(n.b.x, h1.x) + dot4(n.b.y, h1.y) + dot4(n.b.z, h1.z) + dot4(n.b.w, h1.w)) +
            dot4(n.b.x, l1.x) + dot4(n.b.y, l1.y) + dot4(n.b.z, l1.z) + dot4(n.b.w, l1.w);
    if (IS_Q6)
        return n.scale.x * (d.x * float(a)) - n.low.x * d.y + n.scale.y * (d.x * float(b)) -
               n.low.y * d.z;
    return n.scale.x * (d.x * float(a + b)) - n.low.x * d.w;
}

/* 32 columns of a row, and of the pair's, with those of each x: block c of the planes. */
void add_block(product_args p, uint x, uint c, block_numbers n, block_numbers other)
{
    [[unroll]] for (uint t = 0; t < TOKENS; t++) {
        uint at = x + t * p.x_stride, low = at + 16 * p.n_tiles;
        uvec4 h0 = p.x.v[at + 2 * c], h1 = p.x.v[at + 2 * c + 1];
        uvec4 l0 = p.x.v[low + 2 * c], l1 = p.x.v[low + 2 * c + 1];
        vec4 d = uintBitsToFloat(p.x.v[at + 32 * p.n_tiles + c]);
        sums[t] += block_sum(n, h0, h1, l0, l1, d);
        if (IS_PAIR != 0)
            sums[TOKENS + t] += block_sum(other, h0, h1, l0, l1, d);
    }
}

/* A row of a tile of numbers, and of the pair's: all of their pieces are asked for before the first is used. */
void add_tile(product_args p, pieces_at m, pieces_at other, uint at, uint r, uint x, uint tile)
{
    block_pieces s[8], o[8];
    [[unroll]] for (uint b = 0; b < 8; b++)
        s[b] = block_at(m, at, b, r);
    if (IS_PAIR != 0)
        [[unroll]] for (uint b = 0; b < 8; b++)
            o[b] = block_at(other, at, b, r);
    [[unroll]] for (uint b = 0; b < 8; b++) {
        block_numbers n = numbers_of(s[b], b, r);
        if (IS_PAIR != 0)
            add_block(p, x, 8 * tile + b, n, numbers_of(o[b], b, r));
        else
            add_block(p, x, 8 * tile + b, n, n);
    }
}
#else
void add_block(product_args p, uint x, uint c, block_numbers n, uint which)
{
    for (uint t = 0; t < TOKENS; t++) {
        vec2 all = vec2(0.0), sum = vec2(0.0);
        uint at = x + t * p.x_stride + 8 * c;
        for (uint i = 0; i < 8; i++) {
            vec4 v = uintBitsToFloat(p.x.v[at + i]);
            sum[i / 4] += dot(v, floats_of(i < 4 ? n.a[i & 3] : n.b[i & 3]));
            all[i / 4] += (v.x + v.y) + (v.z + v.w);
        }
        sums[which * TOKENS + t] += dot(n.scale, sum) - dot(n.low, all);
    }
}

void add_tile(product_args p, pieces_at m, pieces_at other, uint at, uint r, uint x, uint tile)
{
    for (uint which = 0; which <= IS_PAIR; which++)
        for (uint b = 0; b < 8 && 256 * tile + 32 * b < p.n_cols; b++)
            add_block(p, x, 8 * tile + b, numbers_of(block_at(which == 0 ? m : other, at, b, r), b, r),
                      which);
}
#endif

/* The same of values: a quarter of a tile, from column 4 i on. */
void add_values(product_args p, pieces_at m, uint at, uint x, uint tile, uint i, uint which)
{
    uvec4 w[16]; /* asked for at once; of F16 and BF16, eight have 64 columns */
    [[unroll]] for (uint k = 0; k < 16; k++)
        if (TYPE == 0 || k < 8)
            w[k] = m.v[at + 16 * (TYPE == 0 ? i + k : i / 2 + k)];
    [[unroll]] for (uint k = 0; k < 16; k++) {
        vec4 v = four_values(w[TYPE == 0 ? k : k / 2], k & 1);
        [[unroll]] for (uint t = 0; t < TOKENS; t++)
            sums[which * TOKENS + t] +=
                dot(v, uintBitsToFloat(p.x.v[x + t * p.x_stride + 64 * tile + i + k]));
    }
}

/* The sums of this thread's row and share, and of the pair's. */
void multiply(product_args p, pieces_at m, pieces_at other, uint row, uint x)
{
    uint share = THREAD / 32, r = row & 15, strip = min(row, p.n_rows - 1) / 16;
    uint at = strip * p.n_tiles * TILE_PIECES + r;
    [[unroll]] for (uint t = 0; t < N_SUMS; t++)
        sums[t] = 0.0;
    if (IS_FLOAT) {
        for (uint unit = share; 64 * unit < p.n_cols; unit += SHARES) {
            add_values(p, m, at + unit / 4 * TILE_PIECES, x, unit / 4, unit % 4 * 16, 0);
            if (IS_PAIR != 0)
                add_values(p, other, at + unit / 4 * TILE_PIECES, x, unit / 4, unit % 4 * 16, 1);
        }
    } else {
        for (uint tile = share; tile < p.n_tiles; tile += SHARES)
            add_tile(p, m, other, at + tile * TILE_PIECES, r, x, tile);
    }
}

/* The whole of sum t of a row. */
float total(uint t, uint lane)
{
    float all = 0.0;
    [[unroll]] for (uint s = 0; s < SHARES; s++)
        all += parts[(t * SHARES + s) * 32 + lane];
    return all;
}

/* A token's 32 values, which lie in `values`, as planes of the next product's input. */
void put_next(product_args p, uint token, uint first, uint lane)
{
    words_at to = words_at(address_plus(uvec2(p.next), token, 4 * p.next_stride));
    uint words = plane_words(p.n_rows), share = THREAD / 32 * 32;
    float top = 0.0;
    for (uint i = 0; i < 32; i++)
        top = max(top, abs(values[share + i]));
    if (lane < 8) {
        uint i = share + 4 * lane;
        put_planes(to, first / 4 + lane, words,
                   vec4(values[i], values[i + 1], values[i + 2], values[i + 3]), top);
    } else if (lane == 8) {
        vec2 all = vec2(0.0);
        for (uint i = 0; i < 8; i++) {
            uint k = share + 4 * i;
            all[i / 4] += plane_sum(vec4(values[k], values[k + 1], values[k + 2], values[k + 3]), top);
        }
        put_plane_sums(to, first / 32, words, top, all);
    }
}

/*
 * The sums of squares of rows that are to be normed, as 32 parts of each: asked for before the products,
 * and shared behind them. A thread has a part of every SHARES-th token's.
 */
const uint ITS_TOKENS = (TOKENS + SHARES - 1) / SHARES;
float its_squares[ITS_TOKENS][4];

void ask_squares(product_args p, uint first, uint n, uint lane)
{
    [[unroll]] for (uint k = 0; k < ITS_TOKENS; k++) {
        uint t = THREAD / 32 + k * SHARES;
        [[unroll]] for (uint i = 0; i < 4; i++) {
            its_squares[k][i] = 0.0;
            if (t < n && lane + 32 * i < p.n_squares)
                its_squares[k][i] = p.squares.v[(first + t) * p.n_squares + lane + 32 * i];
        }
    }
}

void share_squares(product_args p, uint first, uint n, uint lane)
{
    [[unroll]] for (uint k = 0; k < ITS_TOKENS; k++) {
        uint t = THREAD / 32 + k * SHARES;
        if (t >= n)
            break;
        float sum = (its_squares[k][0] + its_squares[k][1]) + (its_squares[k][2] + its_squares[k][3]);
        for (uint i = lane + 128; i < p.n_squares; i += 32)
            sum += p.squares.v[(first + t) * p.n_squares + i];
        row_squares[t * 32 + lane] = sum;
    }
}

/* What the norm multiplies a token's row with. */
float norm_factor(product_args p, uint t)
{
    float sum = 0.0;
    if (IS_NULL(p.squares))
        return 1.0;
    for (uint i = 0; i < 32; i++)
        sum += row_squares[t * 32 + i];
    return 1.0 / sqrt(sum / float(p.n_cols) + p.eps);
}

/* The value of a token's row for the next product, which norms it: its share of the squares. */
void put_squares(product_args p, uint token, uint block)
{
    float sum = 0.0;
    for (uint i = 0; i < 32; i++)
        sum += squares[THREAD / 32 * 32 + i];
    p.next_squares.v[token * ((p.n_rows + 31) / 32) + block / 32] = sum;
}

/* Of matrices side by side, the one whose rows this workgroup has. Returns its first row. */
uint choose_matrix(inout product_args p)
{
    uint block = GROUP.x;
    for (uint i = 0; i < 2; i++) {
        uint its = (p.n_rows + 31) / 32;
        if (block < its || p.more_rows[i] == 0)
            break;
        block -= its;
        p.matrix = p.more_matrix[i];
        p.bias = p.more_bias[i];
        p.result = p.more_result[i];
        p.out_stride = p.more_stride[i];
        p.n_rows = p.more_rows[i];
    }
    return block * 32;
}

void main()
{
    product_args p = params.value;
    uint lane = THREAD & 31, share = THREAD / 32, block = choose_matrix(p), row = block + lane;
    uint first = GROUP.y * TOKENS, head = GROUP.z, bias = row;
    uint n = min(TOKENS, p.n_tokens - first);
    float scale = p.scale;
    pieces_at m = p.matrix, other = p.pair;
    if (!IS_NULL(p.choices)) {
        expert_choice c = p.choices.v[first / p.n_used * p.choice_stride + first % p.n_used];
        m = pieces_at(uvec2(p.matrices.v[c.expert]));
        if (IS_PAIR != 0)
            other = pieces_at(uvec2(p.pairs.v[c.expert]));
        bias += c.expert * p.n_rows;
        scale *= p.weighs != 0 ? c.weight : 1.0;
    } else if (!IS_NULL(p.matrices)) {
        m = pieces_at(uvec2(p.matrices.v[head]));
    }
    uint x = (first / p.x_divisor * p.n_heads + head) * p.x_stride;
    bool is_row = row < p.n_rows, is_normed = !IS_NULL(p.squares), norms = !IS_NULL(p.next_weight);
    if (is_normed)
        ask_squares(p, first, n, lane);
    /* What is there is asked for, too, before the products. */
    float there[ITS_TOKENS], next_weight = norms && is_row ? p.next_weight.v[row] : 0.0;
    [[unroll]] for (uint k = 0; k < ITS_TOKENS; k++) {
        uint t = share + k * SHARES;
        there[k] = p.adds != 0 && t < n && is_row
                       ? p.result.v[(first + t) * p.out_stride + head * p.out_head + row]
                       : 0.0;
    }
    multiply(p, m, other, row, x);
    [[unroll]] for (uint t = 0; t < N_SUMS; t++)
        parts[(t * SHARES + share) * 32 + lane] = sums[t];
    if (is_normed)
        share_squares(p, first, n, lane);
    barrier();
    [[unroll]] for (uint t0 = 0; t0 < TOKENS; t0 += SHARES) {
        uint t = t0 + share;
        bool is_mine = t < n;
        float y = 0.0;
        if (is_mine && is_row) {
            float by = scale * norm_factor(p, t);
            y = by * total(t, lane) + (IS_NULL(p.bias) ? 0.0 : p.bias.v[bias]);
            if (IS_PAIR != 0)
                y = glu(p.glu, y,
                        by * total(TOKENS + t, lane) +
                            (IS_NULL(p.pair_bias) ? 0.0 : p.pair_bias.v[bias]));
            y += there[t0 / SHARES];
            p.result.v[(first + t) * p.out_stride + head * p.out_head + row] = y;
        }
        if (NEXT == 0)
            continue;
        squares[THREAD] = y * y;
        y = norms && is_row ? y * next_weight : y;
        values[THREAD] = y;
        if (NEXT == 2 && is_mine && is_row)
            p.next.v[(first + t) * p.next_stride + row] = floatBitsToUint(y);
        barrier();
        if (is_mine && NEXT == 1)
            put_next(p, first + t, block, lane);
        if (is_mine && norms && lane == 31)
            put_squares(p, first + t, block);
        barrier();
    }
}
