/*
 * Products of many rows with a matrix in tiles: result[token, row] (=, or +=) scale * W x + bias.
 *
 * A workgroup has BM rows of the matrix and BN tokens. Step by step, 32 columns of both come to shared
 * memory; there weights are values. MATRICES: they are multiplied by the device's cooperative matrices,
 * as halves with sums in float, and rows of x are halves with a scale for each (form.comp). Else by
 * floats, with 4 x 4 results for each thread.
 *
 * With experts, tokens are choices in the order of their experts (sort_experts.comp), and a workgroup
 * has those of one expert: its weights are read once for all of them.
 */
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#define HAS_OWN_SIZE
#include "common.glsl"
#include "tiles.glsl"
layout(local_size_x_id = 1) in;
layout(constant_id = 1) const uint SIZE = 128;
PARAMS(product_args)

/* 32 columns of a row: those of block p of a tile. */
void columns_at(pieces_at m, uint at, uint p, uint r, out vec4 v[8])
{
    if (IS_FLOAT) {
        [[unroll]] for (uint i = 0; i < 8; i++)
            v[i] = values_at(m, at, 8 * p + i);
        return;
    }
    block_numbers n = numbers_of(block_at(m, at, p, r), p, r);
    [[unroll]] for (uint i = 0; i < 4; i++) {
        v[i] = n.scale.x * floats_of(n.a[i]) - n.low.x;
        v[i + 4] = n.scale.y * floats_of(n.b[i]) - n.low.y;
    }
}

/* The first piece of a row in tile 0 of its strip. */
uint row_start(product_args p, uint row)
{
    return min(row, p.n_rows - 1) / 16 * p.n_tiles * TILE_PIECES + (row & 15);
}

/* The tokens of this workgroup: the first, how many, and of experts which. */
uint first_token, n_mine, expert;

/* False: there is nothing to do. */
bool find_tokens(inout product_args p, uint most)
{
    first_token = GROUP.y * most;
    n_mine = min(most, p.n_tokens - first_token);
    expert = 0;
    if (IS_NULL(p.order))
        return true;
    expert = p.tiles.v[3 * GROUP.y];
    first_token = p.tiles.v[3 * GROUP.y + 1];
    n_mine = p.tiles.v[3 * GROUP.y + 2];
    if (n_mine == 0)
        return false;
    p.matrix = pieces_at(uvec2(p.matrices.v[expert]));
    return true;
}

/* Of token i of this workgroup: its row of the result, and of x; what is behind the last is the last. */
uint result_row(product_args p, uint i)
{
    i = first_token + min(i, n_mine - 1);
    return IS_NULL(p.order) ? i : p.order.v[i];
}

uint x_row(product_args p, uint i)
{
    return result_row(p, i) / p.x_divisor;
}

/* A sum to where it goes. */
void put(product_args p, uint row, uint i, float sum)
{
    if (row >= p.n_rows || i >= n_mine)
        return;
    uint t = result_row(p, i), at = t * p.out_stride + row;
    float scale = p.scale;
    if (p.weighs != 0)
        scale *= p.choices.v[t / p.n_used * p.choice_stride + t % p.n_used].weight;
    float y = scale * sum + (IS_NULL(p.bias) ? 0.0 : p.bias.v[expert * p.n_rows + row]);
    p.result.v[at] = (p.adds != 0 ? p.result.v[at] : 0.0) + y;
}

#ifdef MATRICES
#include "matrices.glsl"

/*
 * ACROSS x ALONG subgroups, each with a part of WM x WN of the results. A row in shared memory has 8
 * halves more. While matrices multiply one step, the next one's weights become halves, and what comes
 * behind that is on its way.
 */
layout(constant_id = 2) const uint ACROSS = 2;
layout(constant_id = 3) const uint ALONG = 4;
layout(constant_id = 4) const uint NN = 2; /* matrices of a subgroup along the tokens: 2 or 4 */
const uint NM = 4, WM = NM * FRAG, WN = NN * FRAG;
const uint BM = ACROSS * WM, BN = ALONG * WN, BK = 32, STRIDE = (BK + 8) / 8;
const uint LANES = SIZE / (ACROSS * ALONG), MOST_PATCHES = 4;
const uint W_LOADS = (2 * BM + SIZE - 1) / SIZE; /* of 16 columns of a row */
const uint X_LOADS = (4 * BN + SIZE - 1) / SIZE; /* of 8 */

shared uvec4 w_tile[2][BM * STRIDE], x_tile[2][BN * STRIDE];
shared float patches[MOST_PATCHES * FRAG * FRAG]; /* four subgroups at a time have one each */
shared uint result_rows[BN];
shared float scales[BN]; /* what a token's sums are multiplied with */

uint w_from[W_LOADS], x_from[X_LOADS];
uvec4 x_next[X_LOADS];
block_pieces w_next[W_LOADS];

/* Where this thread's rows begin, and what is done with the sums of each token. */
void prepare(product_args p, uint row0)
{
    [[unroll]] for (uint i = 0; i < W_LOADS; i++)
        w_from[i] = row_start(p, row0 + (THREAD + SIZE * i) / 2);
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        uint e = THREAD + SIZE * i;
        x_from[i] = x_row(p, e / 4) * p.x_stride + e % 4;
    }
    for (uint i = THREAD; i < BN; i += SIZE) {
        uint t = result_row(p, i);
        float scale = p.scale * uintBitsToFloat(p.x.v[t / p.x_divisor * p.x_stride + 32 * p.n_tiles].x);
        if (p.weighs != 0)
            scale *= p.choices.v[t / p.n_used * p.choice_stride + t % p.n_used].weight;
        result_rows[i] = t;
        scales[i] = scale;
    }
}

/* Ask for columns k0 to k0 + 31. */
void fetch(product_args p, uint k0)
{
    uint b = k0 / 32 % 8;
    [[unroll]] for (uint i = 0; i < W_LOADS; i++) {
        uint at = w_from[i] + k0 / 256 * TILE_PIECES, half_of_it = THREAD & 1;
        if (IS_FLOAT) {
            w_next[i].q = p.matrix.v[at + 16 * (4 * b + 2 * half_of_it)];
            w_next[i].more = p.matrix.v[at + 16 * (4 * b + 2 * half_of_it + 1)];
        } else {
            w_next[i] = block_at(p.matrix, at, b, (THREAD + SIZE * i) / 2 & 15);
        }
    }
    [[unroll]] for (uint i = 0; i < X_LOADS; i++)
        x_next[i] = p.x.v[x_from[i] + k0 / 8];
}

uvec4 packed(vec4 a, vec4 b)
{
    return uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
}

/* Eight values of F16 or BF16 as halves. */
uvec4 halves_of(uvec4 w)
{
    if (TYPE == 1)
        return w;
    uvec4 low = w << 16, high = w & 0xffff0000u;
    return packed(uintBitsToFloat(uvec4(low.x, high.x, low.y, high.y)),
                  uintBitsToFloat(uvec4(low.z, high.z, low.w, high.w)));
}

/* Four numbers of a word as floats: a number is put behind 2^23, which costs less than a conversion. */
vec4 quick_floats(uint w)
{
    uvec4 bytes = IS_BYTES ? uvec4(w, w >> 8, w >> 16, w >> 24) ^ 128 : uvec4(w, w >> 8, w >> 16, w >> 24);
    return uintBitsToFloat((bytes & 255) | 0x4b000000u) - (IS_BYTES ? 8388736.0 : 8388608.0);
}

/* Half a block of numbers, four in a word, in their order. */
uvec4 half_block(block_pieces s, uint b, uint which)
{
    if (IS_BYTES)
        return which == 0 ? s.q : s.more;
    uvec2 q = which == 0 ? s.q.xy : s.q.zw;
    uvec4 n = uvec4(q.x, q.x >> 4, q.y, q.y >> 4) & NIBBLES;
    return IS_Q6 || HAS_FIFTH ? n | bits_above(s.high, b, which) : n;
}

/* What was asked for, to shared memory. */
void store(uint to_which, uint k0)
{
    uint b = k0 / 32 % 8, which = THREAD & 1;
    [[unroll]] for (uint i = 0; i < W_LOADS; i++) {
        uint e = THREAD + SIZE * i, to = e / 2 * STRIDE + 2 * which;
        uvec4 first, second;
        if (IS_FLOAT) {
            first = halves_of(w_next[i].q);
            second = halves_of(w_next[i].more);
        } else {
            block_numbers n = numbers_of(w_next[i], b, e / 2 & 15);
            uvec4 q = half_block(w_next[i], b, which);
            float scale = which == 0 ? n.scale.x : n.scale.y, low = which == 0 ? n.low.x : n.low.y;
            first = packed(scale * quick_floats(q.x) - low, scale * quick_floats(q.y) - low);
            second = packed(scale * quick_floats(q.z) - low, scale * quick_floats(q.w) - low);
        }
        if (e < 2 * BM) {
            w_tile[to_which][to] = first;
            w_tile[to_which][to + 1] = second;
        }
    }
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        uint e = THREAD + SIZE * i;
        if (e < 4 * BN)
            x_tile[to_which][e / 4 * STRIDE + e % 4] = x_next[i];
    }
}

/* A matrix of sums, by way of shared memory that its subgroup has for itself. */
void put_patch(product_args p, MAT_C c, uint row0, uint row, uint token)
{
    uint patch_at = SUBGROUP % MOST_PATCHES * FRAG * FRAG;
    SUBGROUP_BARRIER();
    MATRIX_STORE(c, patches, patch_at, FRAG, true);
    SUBGROUP_BARRIER();
    float there[FRAG * FRAG / LANES];
    [[unroll]] for (uint k = 0; k < FRAG * FRAG / LANES; k++) {
        uint e = LANE + LANES * k, r = row0 + row + e % FRAG, i = token + e / FRAG;
        there[k] = 0.0;
        if (r < p.n_rows && i < n_mine) {
            if (p.adds != 0)
                there[k] = p.result.v[result_rows[i] * p.out_stride + r];
            if (!IS_NULL(p.bias))
                there[k] += p.bias.v[expert * p.n_rows + r];
        }
    }
    [[unroll]] for (uint k = 0; k < FRAG * FRAG / LANES; k++) {
        uint e = LANE + LANES * k, r = row0 + row + e % FRAG, i = token + e / FRAG;
        if (r < p.n_rows && i < n_mine)
            p.result.v[result_rows[i] * p.out_stride + r] =
                there[k] + scales[i] * patches[patch_at + e];
    }
}

void main()
{
    product_args p = params.value;
    if (!find_tokens(p, BN))
        return;
    uint row0 = GROUP.x * BM, n_cols = p.n_cols;
    uint wm = SUBGROUP % ACROSS * WM, wn = SUBGROUP / ACROSS * WN;
    MAT_C c[NM * 4];
    [[unroll]] for (uint i = 0; i < NM * NN; i++) MATRIX_CLEAR(c[i]);
    prepare(p, row0);
    fetch(p, 0);
    store(0, 0);
    fetch(p, min(BK, n_cols - 1) / BK * BK);
    uint now = 0;
    for (uint k0 = 0; k0 < n_cols; k0 += BK) {
        barrier();
        if (k0 + BK < n_cols)
            store(now ^ 1, k0 + BK);
        if (k0 + 2 * BK < n_cols)
            fetch(p, k0 + 2 * BK);
        [[unroll]] for (uint kk = 0; kk < BK / FRAG; kk++) {
            MAT_A a[NM];
            [[unroll]] for (uint i = 0; i < NM; i++)
                MATRIX_LOAD_A(a[i], w_tile[now], (wm + FRAG * i) * STRIDE + 2 * kk, STRIDE);
            [[unroll]] for (uint j = 0; j < NN; j++) {
                MAT_B b;
                MATRIX_LOAD_B(b, x_tile[now], (wn + FRAG * j) * STRIDE + 2 * kk, STRIDE, true);
                [[unroll]] for (uint i = 0; i < NM; i++)
                    MATRIX_ADD_PRODUCT(c[NM * j + i], a[i], b);
            }
        }
        now ^= 1;
    }
    /* Written out: a loop with barriers would not be unrolled, and sums would leave registers. */
#define PUT_COLUMN(j)                                                                              \
    put_patch(p, c[NM * j], row0, wm, wn + FRAG * j);                                              \
    put_patch(p, c[NM * j + 1], row0, wm + FRAG, wn + FRAG * j);                                   \
    put_patch(p, c[NM * j + 2], row0, wm + 2 * FRAG, wn + FRAG * j);                               \
    put_patch(p, c[NM * j + 3], row0, wm + 3 * FRAG, wn + FRAG * j);
#define PUT_ALL                                                                                    \
    PUT_COLUMN(0)                                                                                  \
    PUT_COLUMN(1)                                                                                  \
    if (NN == 4) {                                                                                 \
        PUT_COLUMN(2)                                                                              \
        PUT_COLUMN(3)                                                                              \
    }
    if (SUBGROUP < MOST_PATCHES) {
        PUT_ALL
    }
    if (ACROSS * ALONG > MOST_PATCHES) {
        barrier();
        if (SUBGROUP >= MOST_PATCHES) {
            PUT_ALL
        }
    }
}
#else
const uint BM = 64, BN = 32, BK = 32;

shared float w_tile[BK][BM + 1], x_tile[BK][BN + 1];

void main()
{
    product_args p = params.value;
    if (!find_tokens(p, BN))
        return;
    uint row0 = GROUP.x * BM;
    uint mine_row = THREAD % (BM / 4) * 4, mine_token = THREAD / (BM / 4) * 4;
    vec4 sums[4];
    [[unroll]] for (uint i = 0; i < 4; i++) sums[i] = vec4(0.0);
    for (uint k0 = 0; k0 < p.n_cols; k0 += BK) {
        for (uint i = THREAD; i < BM; i += SIZE) {
            vec4 v[8];
            columns_at(p.matrix, row_start(p, row0 + i) + k0 / 256 * TILE_PIECES, k0 / 32 % 8,
                       (row0 + i) & 15, v);
            for (uint k = 0; k < BK; k++)
                w_tile[k][i] = v[k / 4][k % 4];
        }
        for (uint e = THREAD; e < BN * BK / 4; e += SIZE) {
            vec4 v = uintBitsToFloat(p.x.v[x_row(p, e / 8) * p.x_stride + k0 / 4 + e % 8]);
            for (uint k = 0; k < 4; k++)
                x_tile[e % 8 * 4 + k][e / 8] = v[k];
        }
        barrier();
        for (uint k = 0; k < BK; k++) {
            vec4 w = vec4(w_tile[k][mine_row], w_tile[k][mine_row + 1], w_tile[k][mine_row + 2],
                          w_tile[k][mine_row + 3]);
            [[unroll]] for (uint i = 0; i < 4; i++) sums[i] += w * x_tile[k][mine_token + i];
        }
        barrier();
    }
    for (uint i = 0; i < 4; i++)
        for (uint k = 0; k < 4; k++)
            put(p, row0 + mine_row + k, mine_token + i, sums[i][k]);
}
#endif
