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
 *
 * Compilers of stable distributions know only NVIDIA's extension for matrices; scripts/khr_matrix.pl
 * makes KHR's of it. For that, matrices have their sizes from constants 10, 11 (A), 12, 13 (B), and
 * 14, 15 (C).
 */
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef MATRICES
#extension GL_NV_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#pragma use_vulkan_memory_model
#endif
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
#define FRAG 16
layout(constant_id = 10) const uint A_M = FRAG;
layout(constant_id = 11) const uint A_K = FRAG;
layout(constant_id = 12) const uint B_K = FRAG;
layout(constant_id = 13) const uint B_N = FRAG;
layout(constant_id = 14) const uint C_M = FRAG;
layout(constant_id = 15) const uint C_N = FRAG;
#define MAT_A fcoopmatNV<16, gl_ScopeSubgroup, A_M, A_K>
#define MAT_B fcoopmatNV<16, gl_ScopeSubgroup, B_K, B_N>
#define MAT_C fcoopmatNV<32, gl_ScopeSubgroup, C_M, C_N>

/* Eight subgroups, each with a part of WM x WN; a row in shared memory has 8 halves more. */
const uint BM = 128, BN = 128, BK = 32, STRIDE = (BK + 8) / 8;
const uint WM = BM / 2, WN = BN / 4, NM = WM / FRAG, NN = WN / FRAG;
const uint X_LOADS = BN * 4 / 256;

shared uvec4 w_tile[2][BM * STRIDE], x_tile[2][BN * STRIDE];
shared float patches[8][FRAG * FRAG];

uvec4 x_next[X_LOADS];
block_pieces w_next;
uvec4 w_values[8];

/* Ask for columns k0 to k0 + 31. */
void fetch(product_args p, uint row0, uint k0)
{
    if (THREAD < BM) {
        uint row = row0 + THREAD, at = row_start(p, row) + k0 / 256 * TILE_PIECES;
        uint b = k0 / 32 % 8;
        if (TYPE == 0)
            [[unroll]] for (uint i = 0; i < 8; i++) w_values[i] = p.matrix.v[at + 16 * (8 * b + i)];
        else if (IS_FLOAT)
            [[unroll]] for (uint i = 0; i < 4; i++) w_values[i] = p.matrix.v[at + 16 * (4 * b + i)];
        else
            w_next = block_at(p.matrix, at, b, row & 15);
    }
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        uint e = THREAD + 256 * i;
        if (THREAD < 256)
            x_next[i] = p.x.v[x_row(p, e / 4) * p.x_stride + k0 / 8 + e % 4];
    }
}

uvec4 packed(vec4 a, vec4 b)
{
    return uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
}

/* Eight values of BF16 or F32 as halves. */
uvec4 halves_of(uint i)
{
    if (TYPE == 1)
        return w_values[i];
    if (TYPE == 0)
        return packed(uintBitsToFloat(w_values[2 * i]), uintBitsToFloat(w_values[2 * i + 1]));
    uvec4 w = w_values[i], low = w << 16, high = w & 0xffff0000u;
    return packed(uintBitsToFloat(uvec4(low.x, high.x, low.y, high.y)),
                  uintBitsToFloat(uvec4(low.z, high.z, low.w, high.w)));
}

/* What was asked for, to shared memory. */
void store(uint which, uint row0, uint k0)
{
    if (THREAD < BM) {
        uint to = THREAD * STRIDE;
        if (IS_FLOAT) {
            [[unroll]] for (uint i = 0; i < 4; i++) w_tile[which][to + i] = halves_of(i);
        } else {
            block_numbers n = numbers_of(w_next, k0 / 32 % 8, (row0 + THREAD) & 15);
            [[unroll]] for (uint i = 0; i < 2; i++) {
                w_tile[which][to + i] = packed(n.scale.x * floats_of(n.a[2 * i]) - n.low.x,
                                               n.scale.x * floats_of(n.a[2 * i + 1]) - n.low.x);
                w_tile[which][to + 2 + i] = packed(n.scale.y * floats_of(n.b[2 * i]) - n.low.y,
                                                   n.scale.y * floats_of(n.b[2 * i + 1]) - n.low.y);
            }
        }
    }
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        uint e = THREAD + 256 * i;
        if (THREAD < 256)
            x_tile[which][e / 4 * STRIDE + e % 4] = x_next[i];
    }
}

/* A matrix of sums, by way of shared memory. */
void put_patch(product_args p, MAT_C c, uint row, uint token)
{
    barrier();
    coopMatStoreNV(c, patches[gl_SubgroupID], 0, FRAG, true);
    barrier();
    for (uint e = gl_SubgroupInvocationID; e < FRAG * FRAG; e += SIZE / 8) {
        uint t = x_row(p, token + e / FRAG);
        float scale = uintBitsToFloat(p.x.v[t * p.x_stride + 32 * p.n_tiles].x);
        put(p, row + e % FRAG, token + e / FRAG, scale * patches[gl_SubgroupID][e]);
    }
}

void main()
{
    product_args p = params.value;
    if (!find_tokens(p, BN))
        return;
    uint row0 = GROUP.x * BM, n_cols = p.n_cols;
    uint wm = gl_SubgroupID % 2 * WM, wn = gl_SubgroupID / 2 * WN;
    MAT_C c[NM * NN];
    [[unroll]] for (uint i = 0; i < NM * NN; i++) c[i] = MAT_C(0.0);
    fetch(p, row0, 0);
    store(0, row0, 0);
    uint now = 0;
    for (uint k0 = 0; k0 < n_cols; k0 += BK) {
        barrier();
        bool has_more = k0 + BK < n_cols;
        if (has_more)
            fetch(p, row0, k0 + BK);
        [[unroll]] for (uint kk = 0; kk < BK / FRAG; kk++) {
            MAT_A a[NM];
            [[unroll]] for (uint i = 0; i < NM; i++)
                coopMatLoadNV(a[i], w_tile[now], (wm + FRAG * i) * STRIDE + 2 * kk, STRIDE, false);
            [[unroll]] for (uint j = 0; j < NN; j++) {
                MAT_B b;
                coopMatLoadNV(b, x_tile[now], (wn + FRAG * j) * STRIDE + 2 * kk, STRIDE, true);
                [[unroll]] for (uint i = 0; i < NM; i++)
                    c[NM * j + i] = coopMatMulAddNV(a[i], b, c[NM * j + i]);
            }
        }
        now ^= 1;
        if (has_more)
            store(now, row0, k0 + BK);
    }
    /* Written out: a loop with barriers would not be unrolled, and sums would leave registers. */
    put_patch(p, c[0], row0 + wm, wn);
    put_patch(p, c[1], row0 + wm + FRAG, wn);
    put_patch(p, c[2], row0 + wm + 2 * FRAG, wn);
    put_patch(p, c[3], row0 + wm + 3 * FRAG, wn);
    put_patch(p, c[4], row0 + wm, wn + FRAG);
    put_patch(p, c[5], row0 + wm + FRAG, wn + FRAG);
    put_patch(p, c[6], row0 + wm + 2 * FRAG, wn + FRAG);
    put_patch(p, c[7], row0 + wm + 3 * FRAG, wn + FRAG);
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
