/*
 * Tiles of lace's own types times the activations of one token, which come as floats.
 *
 * Other kinds get activations that whoever made them has split into planes, with a scale for each
 * 16: no more of them are made in one place. Here every block makes the planes itself, with one
 * scale for the 256 columns of a tile: it rotates them where weights are rotated, and a tile takes
 * one scale in place of sixteen. Behind the planes lie float [K / 256]. Column 0 of the mma is the
 * high plane, column 1 the low one; the others repeat them, so all four lanes of a row have its
 * sum.
 */
#ifndef LACE_KERNELS_CUDA_TILE_GROUPED_CUH
#define LACE_KERNELS_CUDA_TILE_GROUPED_CUH

#include "backend/cuda/decode_params.h"
#include "backend/cuda/tile_dot.cuh"

template <int KIND> __host__ __device__ constexpr bool tile_is_rotated_kind()
{
    return KIND == TILE_S3 || KIND == TILE_S4 || KIND == TILE_S8;
}

/* ---- Planes ---------------------------------------------------------------------------------- */

/* 256 values each, 8 of a lane, that a warp has on their way at once. */
enum { N_PIECES = 4 };

/* Numbers first, first + DECODE_WARPS, ... of k floats that another kernel made. */
__device__ __forceinline__ void pieces_load(float4 (&v)[N_PIECES][2], const float *from, int k,
                                            int first, int lane)
{
#pragma unroll
    for (int n = 0; n < N_PIECES; n++) {
        const int at = 256 * (first + n * DECODE_WARPS);
        if (at < k) {
            const float4 *p = (const float4 *)(from + at + 8 * lane);
            v[n][0] = __ldcg(p);
            v[n][1] = __ldcg(p + 1);
        }
    }
}

/* The other three bits of rotation: see rotation_place. */
__device__ __forceinline__ void rotate_eight(float (&x)[8])
{
#pragma unroll
    for (int o = 1; o < 8; o <<= 1)
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (!(i & o)) {
                float a = x[i], b = x[i | o];
                x[i] = a + b;
                x[i | o] = a - b;
            }
}

/* A piece to planes in shared memory that `pad` bytes are between. */
template <int KIND>
__device__ __forceinline__ void piece_put(const float4 (&v)[2], int number, int k, uint8_t *to,
                                          int pad, int lane)
{
    float x[8] = {v[0].x, v[0].y, v[0].z, v[0].w, v[1].x, v[1].y, v[1].z, v[1].w}, most = 0;
    if (tile_is_rotated_kind<KIND>())
        rotate_eight(x);
#pragma unroll
    for (int i = 0; i < 8; i++)
        most = fmaxf(most, fabsf(x[i]));
    most = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(most)));
    const float full = 127 * 256 + 127;
    const float inverse = most > 1e-30f ? __fdividef(full, most) : 0.0f;
    /* The sum's low bits are the quant plus 128: its high byte, and its low byte plus 128. */
    const float magic = 12582912.0f + 128.0f;
    uint32_t q[8], high[2], low[2];
#pragma unroll
    for (int i = 0; i < 8; i++)
        q[i] = __float_as_uint(fmaf(x[i], inverse, magic));
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t a = __byte_perm(q[4 * h], q[4 * h + 1], 0x5140);
        uint32_t b = __byte_perm(q[4 * h + 2], q[4 * h + 3], 0x5140);
        low[h] = __byte_perm(a, b, 0x5410) ^ 0x80808080;
        high[h] = __byte_perm(a, b, 0x7632);
    }
    uint8_t *at = to + 256 * number;
    if (KIND == TILE_N24) { /* fours as mma.sp wants them: a lane's four of 64 columns in a row */
        at += 64 * (lane >> 3) + 32 * (lane & 1) + 4 * (lane >> 1 & 3);
        *(uint32_t *)at = high[0];
        *(uint32_t *)(at + 16) = high[1];
        *(uint32_t *)(at + k + pad) = low[0];
        *(uint32_t *)(at + k + pad + 16) = low[1];
    } else {
        *(uint2 *)(at + 8 * lane) = make_uint2(high[0], high[1]);
        *(uint2 *)(at + k + pad + 8 * lane) = make_uint2(low[0], low[1]);
    }
    if (lane == 0)
        ((float *)(to + 2 * k + pad))[number] = most > 1e-30f ? most * (1.0f / full) : 0.0f;
}

/* All of them; those of the first round are in v already. */
template <int KIND>
__device__ __forceinline__ void pieces_to_planes(float4 (&v)[N_PIECES][2], const float *from, int k,
                                                 uint8_t *to, int pad, int warp, int lane)
{
    for (int first = warp; 256 * first < k; first += N_PIECES * DECODE_WARPS) {
        if (first != warp)
            pieces_load(v, from, k, first, lane);
#pragma unroll
        for (int n = 0; n < N_PIECES; n++)
            if (256 * (first + n * DECODE_WARPS) < k)
                piece_put<KIND>(v[n], first + n * DECODE_WARPS, k, to, pad, lane);
    }
}

/* ---- Products -------------------------------------------------------------------------------- */

/* Magnitudes of levels above zero and of those below it, of a word of 8. */
template <int KIND>
__device__ __forceinline__ void split_levels(uint32_t w, uint32_t (&more)[2], uint32_t (&less)[2])
{
    const int first = KIND == TILE_M4 ? 0 : 6;
    tile_split_s4(w, more[0], more[1], first);
    tile_split_s4(w ^ 0x88888888, less[0], less[1]);
}

/* acc += 128 columns: number `half` of a tile. Levels below zero are added up apart. */
template <int KIND>
__device__ __forceinline__ void multiply_half(int (&acc)[4], const tile_frag<KIND> &f,
                                              const uint8_t *plane, int half)
{
    constexpr bool splits = KIND == TILE_S4 || KIND == TILE_M4;
    int less[4] = {0, 0, 0, 0};
#pragma unroll
    for (int j = 2 * half; j < 2 * half + 2; j++) {
        uint2 even = *(const uint2 *)(plane + 64 * j), odd = *(const uint2 *)(plane + 64 * j + 32);
        uint32_t a[4], o[4];
        if constexpr (splits) {
            uint32_t b[4], p[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t u[2], v[2];
                split_levels<KIND>((&f.q[j % tile_words<KIND>()].x)[i], u, v);
                a[i] = u[0], o[i] = u[1];
                b[i] = v[0], p[i] = v[1];
            }
            mma_s8(less, b[0], b[1], b[2], b[3], even.x, even.y);
            mma_s8(less, p[0], p[1], p[2], p[3], odd.x, odd.y);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                tile_word<KIND>(f, j, i, a[i], o[i]);
        }
        mma_s8(acc, a[0], a[1], a[2], a[3], even.x, even.y);
        mma_s8(acc, o[0], o[1], o[2], o[3], odd.x, odd.y);
    }
    if constexpr (splits)
#pragma unroll
        for (int i = 0; i < 4; i++)
            acc[i] -= less[i];
}

template <>
__device__ __forceinline__ void multiply_half<TILE_N24>(int (&acc)[4], const tile_frag<TILE_N24> &f,
                                                        const uint8_t *plane, int half)
{
    int less[4] = {0, 0, 0, 0};
#pragma unroll
    for (int j = 2 * half; j < 2 * half + 2; j++) {
        uint4 b = *(const uint4 *)(plane + 64 * j);
        uint32_t u[2][2], v[2][2], places = (&f.q[2].x)[j];
#pragma unroll
        for (int h = 0; h < 2; h++)
            split_levels<TILE_N24>((&f.q[j / 2].x)[2 * (j % 2) + h], u[h], v[h]);
        mma_sparse(less, v[0][0], v[0][1], v[1][0], v[1][1], b.x, b.y, b.z, b.w, places);
        mma_sparse(acc, u[0][0], u[0][1], u[1][0], u[1][1], b.x, b.y, b.z, b.w, places);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        acc[i] -= less[i];
}

/* As tile_multiply, but every lane gets the sums of its rows: they are not added up any more. */
template <int KIND>
__device__ __forceinline__ void tile_multiply_grouped(float &y0, float &y1,
                                                      const tile_frag<KIND> &f, const act_view &x,
                                                      int t, int lane)
{
    const uint8_t *plane =
        (lane & 4 ? x.low : x.high) + 256 * t + (KIND == TILE_N24 ? 16 : 8) * (lane & 3);
    const float d = ((const float *)x.scales)[t];
    const float2 s0 = tile_own_scales(f.s0.x), s1 = tile_own_scales(f.s0.y);
    int acc[2][4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            acc[half][i] = MMA_BEGIN;
        multiply_half<KIND>(acc[half], f, plane, half);
    }
    y0 += d * (s0.x * mma_value(acc[0][0], acc[0][1]) + s0.y * mma_value(acc[1][0], acc[1][1]));
    y1 += d * (s1.x * mma_value(acc[0][2], acc[0][3]) + s1.y * mma_value(acc[1][2], acc[1][3]));
}

#endif
