/*
 * One warp multiplies one tile of weights (gpu_tiles.h) with a slab: 16 rows, 256 columns, up to 8
 * tokens.
 *
 * The tokens are the columns of the mma, so each sub-block of 32 columns takes one mma for the high
 * and one for the low plane. Lane (r, c) gets sums of rows r and r + 8, tokens 2 c and 2 c + 1:
 * number 2 i + e is row r + 8 i, token 2 c + e. They are scaled by what the weights of a row and
 * sub-block have, in f32. What mins add is one more mma: mins of 16 rows times the slab's sums.
 *
 * Up to 4 tokens take one mma for both planes: columns 0 to 3 are the high plane of the tokens, 4 to
 * 7 the low one. Lanes with c >= 2 then have what is to be added to the sums of lane c - 2.
 *
 * Quants need as little as can be. Four bits that stay high in their bytes are 16 times too large,
 * which the scale of their sub-block takes back.
 */
#ifndef LACE_KERNELS_CUDA_SMALL_BATCH_TILE_CUH
#define LACE_KERNELS_CUDA_SMALL_BATCH_TILE_CUH

#include "backend/cuda/small_batch_params.h"
#include "backend/cuda/tile_dot.cuh"

template <int KIND> __host__ __device__ constexpr bool small_has_kind()
{
    return !tile_is_half<KIND>() && !tile_is_own<KIND>() && KIND != TILE_F32;
}

/* What the quants of sub-blocks 2j and 2j + 1 are too large by. */
template <int KIND> __host__ __device__ constexpr float small_unit(int parity)
{
    return KIND == TILE_Q4_0                        ? 16.0f
           : KIND == TILE_Q4_1 || KIND == TILE_Q4_K ? (parity ? 16.0f : 1.0f)
           : KIND == TILE_Q6_K                      ? 4.0f
                                                    : 1.0f;
}

template <int KIND> __host__ __device__ constexpr bool small_is_signed()
{
    return tile_is_signed<KIND>() || KIND == TILE_Q4_0 || KIND == TILE_Q6_K;
}

/* Sums begin with MMA_BEGIN (tile_dot.cuh), which costs nothing this way. */
template <bool IS_SIGNED>
__device__ __forceinline__ void small_mma(int (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                          uint32_t b1)
{
    if (IS_SIGNED)
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, "
            "{%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(MMA_BEGIN));
    else
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, "
            "{%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(MMA_BEGIN));
}

/* (w & mask) | more, and (w & mask) ^ more, in one instruction. */
__device__ __forceinline__ uint32_t and_or(uint32_t w, uint32_t mask, uint32_t more)
{
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(w), "r"(mask), "r"(more));
    return out;
}

__device__ __forceinline__ uint32_t and_xor(uint32_t w, uint32_t mask, uint32_t more)
{
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(out) : "r"(w), "r"(mask), "r"(more));
    return out;
}

/* ---- Quants ---------------------------------------------------------------------------------- */

/* The A operands of sub-blocks 2j and 2j + 1. */
template <int KIND>
__device__ __forceinline__ void small_words(const uint8_t *tile, int lane, int j,
                                            uint32_t (&even)[4], uint32_t (&odd)[4])
{
    const uint8_t *at = tile + 16 * lane;
    if constexpr (tile_has_bytes<KIND>()) {
        uint4 a = *(const uint4 *)(at + 1024 * j), b = *(const uint4 *)(at + 1024 * j + 512);
        even[0] = a.x, even[1] = a.y, even[2] = a.z, even[3] = a.w;
        odd[0] = b.x, odd[1] = b.y, odd[2] = b.z, odd[3] = b.w;
        return;
    }
    const uint4 q = *(const uint4 *)(at + 512 * j);
    const uint32_t w[4] = {q.x, q.y, q.z, q.w}, low = 0x0f0f0f0f, sign = 0x80808080;
    if constexpr (KIND == TILE_Q4_K || KIND == TILE_Q4_1) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            even[i] = w[i] & low;
            odd[i] = w[i] & ~low;
        }
    } else if constexpr (KIND == TILE_Q4_0) { /* 16 (q - 8) */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            even[i] = and_xor(w[i] << 4, ~low, sign);
            odd[i] = and_xor(w[i], ~low, sign);
        }
    } else if constexpr (KIND == TILE_Q5_K) {
        const uint4 f4 = *(const uint4 *)(at + 2048);
        const uint32_t f[4] = {f4.x, f4.y, f4.z, f4.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t h = f[i] >> 2 * j;
            even[i] = and_or(h << 4, 0x10101010, w[i] & low);
            odd[i] = and_or(h << 3, 0x10101010, w[i] >> 4 & low);
        }
    } else if constexpr (KIND == TILE_Q6_K) { /* 4 (q - 32) */
        const uint2 more = *(const uint2 *)(at + 2048 + 512 * (j >> 1) + 8 * (j & 1));
        const uint32_t h[2] = {more.x ^ 0xaaaaaaaa, more.y ^ 0xaaaaaaaa};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            even[i] = and_or(h[0] << (6 - 2 * i), 0xc0c0c0c0, w[i] << 2 & 0x3c3c3c3c);
            odd[i] = and_or(h[1] << (6 - 2 * i), 0xc0c0c0c0, w[i] >> 2 & 0x3c3c3c3c);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint2 v = tile_look_up(w[i], tile_table<KIND>());
            even[i] = v.x;
            odd[i] = v.y;
        }
    }
}

/* ---- Scales ---------------------------------------------------------------------------------- */

/*
 * get() gives those of rows r and r + 8 in sub-blocks 2j and 2j + 1, scale[parity][i], and is
 * called for j = 0 to 3 in turn. finish() makes the product of the sums, in which scales of rows
 * and mins are still missing.
 */
template <int KIND> struct small_scales;

/* f16 for each sub-block, and maybe mins. */
template <int KIND> struct small_scales_f16 {
    const uint8_t *at;

    __device__ __forceinline__ void begin(const uint8_t *tile, int r, int c)
    {
        at = tile + 512 * tile_words<KIND>() + 16 * r;
    }

    __device__ __forceinline__ void get(int j, float (&scale)[2][2])
    {
#pragma unroll
        for (int n = 0; n < 4; n++)
            scale[n & 1][n >> 1] =
                __half2float(*(const __half *)(at + 128 * (n >> 1) + 8 * (n & 1) + 2 * j)) *
                (1.0f / small_unit<KIND>(n & 1));
    }

    __device__ __forceinline__ void finish(float (&v)[4], uint2 sums, int c) const
    {
        if constexpr (tile_has_mins<KIND>()) {
            uint32_t mins[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint8_t *min = at + 256 + 128 * i + 2 * c;
                mins[i] = *(const uint16_t *)min | (uint32_t) * (const uint16_t *)(min + 8) << 16;
            }
            float more[4] = {0, 0, 0, 0};
            mma_f16(more, mins[0], mins[1], mins[0], mins[1], sums.x, sums.y);
#pragma unroll
            for (int e = 0; e < 4; e++)
                v[e] += 32.0f * more[e];
        }
    }
};

/* 6 bits for each sub-block, f16 for a row. */
template <int KIND> struct small_scales_k {
    static constexpr bool HAS_MINS = KIND != TILE_IQ4_XS;
    uint32_t w[2][2]; /* [parity][i] four of 6 bits */
    uint32_t mins[2]; /* those of sub-blocks 2c and 2c + 1, as f16 */
    uint2 d;

    __device__ __forceinline__ void begin(const uint8_t *tile, int r, int c)
    {
        const uint8_t *at = tile + 512 * tile_words<KIND>();
        uint32_t all[6], m[2][2]; /* [i][parity] */
        d = *(const uint2 *)(at + 8 * r);
#pragma unroll
        for (int i = 0; i < 3; i++) {
            uint2 two = *(const uint2 *)(at + 64 + 24 * r + 8 * i);
            all[2 * i] = two.x;
            all[2 * i + 1] = two.y;
        }
#pragma unroll
        for (int p = 0; p < 2; p++) {
            w[p][0] = all[3 * p];
            w[p][1] = __funnelshift_r(all[3 * p + 1], all[3 * p + 2], 16);
            m[0][p] = __funnelshift_r(all[3 * p], all[3 * p + 1], 24) >> 6 * c;
            m[1][p] = all[3 * p + 2] >> (8 + 6 * c);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t both = and_or(m[i][1] << 16, 0x003f0000, and_or(m[i][0], 63, 0x64006400));
            __half2 h = __hsub2(*(__half2 *)&both, __float2half2_rn(1024.0f));
            mins[i] = *(uint32_t *)&h;
        }
    }

    __device__ __forceinline__ void get(int j, float (&scale)[2][2])
    {
        const float less = KIND == TILE_IQ4_XS ? 32.0f : 0.0f;
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const float unit = small_unit<KIND>(n & 1);
            uint32_t &bits = w[n & 1][n >> 1];
            float v = __uint_as_float(and_or(bits, 63, 0x4b000000)); /* 2^23 + 6 bits */
            scale[n & 1][n >> 1] = __fmaf_rn(v, 1.0f / unit, (-8388608.0f - less) / unit);
            bits >>= 6;
        }
    }

    __device__ __forceinline__ void finish(float (&v)[4], uint2 sums, int c) const
    {
        const float2 rows[2] = {half2_to_float2(d.x), half2_to_float2(d.y)};
        float more[4] = {0, 0, 0, 0};
        if (HAS_MINS)
            mma_f16(more, mins[0], mins[1], mins[0], mins[1], sums.x, sums.y);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            v[e] *= rows[e >> 1].x;
            if (HAS_MINS)
                v[e] -= 32.0f * rows[e >> 1].y * more[e];
        }
    }
};

template <int KIND> struct small_scales : small_scales_f16<KIND> {
};
template <> struct small_scales<TILE_Q4_K> : small_scales_k<TILE_Q4_K> {
};
template <> struct small_scales<TILE_Q5_K> : small_scales_k<TILE_Q5_K> {
};
template <> struct small_scales<TILE_IQ4_XS> : small_scales_k<TILE_IQ4_XS> {
};

/* ---- Products -------------------------------------------------------------------------------- */

/* What a lane takes of 32 columns: the high and the low plane of token r; of up to 4 tokens one of
 * them, in x and y. */
template <int TOKENS>
__device__ __forceinline__ uint4 small_columns(const uint8_t *at, int lane)
{
    if constexpr (TOKENS <= 4) {
        const uint2 b = *(const uint2 *)(at + 16 * (lane & 15) + 8 * (lane >> 4));
        return make_uint4(b.x, b.y, 0, 0);
    } else {
        return *(const uint4 *)(at + 16 * lane);
    }
}

/* The products of 32 columns in v, for up to 4 tokens of both planes apart. is_taken: 0 leaves the
 * lane's columns out. */
template <int TOKENS, bool IS_SIGNED>
__device__ __forceinline__ void small_products(float (&v)[4], const uint32_t (&a)[4], uint4 b,
                                               uint32_t is_taken)
{
    int high[4];
    small_mma<IS_SIGNED>(high, a, b.x & is_taken, b.y & is_taken);
    if constexpr (TOKENS <= 4) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            v[e] = __fadd_rn(__int_as_float(high[e]), -12582912.0f); /* without MMA_BEGIN */
    } else {
        int low[4];
        small_mma<IS_SIGNED>(low, a, b.z & is_taken, b.w & is_taken);
#pragma unroll
        for (int e = 0; e < 4; e++)
            v[e] = mma_value(high[e], low[e]);
    }
}

/* The sums of columns that mins are multiplied with: of up to 4 tokens beside the low plane. */
template <int TOKENS> __device__ __forceinline__ uint2 small_sums(const uint8_t *slab, int lane)
{
    if constexpr (TOKENS <= 4) {
        const uint2 sums = *(const uint2 *)(slab + SMALL_SUMS_AT + 8 * (lane & 15));
        return lane < 16 ? make_uint2(0, 0) : sums;
    } else {
        return *(const uint2 *)(slab + SMALL_SUMS_AT + 8 * lane);
    }
}

/* Scales of the lane's two columns. */
template <int TOKENS> __device__ __forceinline__ float2 small_x_scales(const uint8_t *slab, int c)
{
    if constexpr (TOKENS <= 4) {
        const float plane = c < 2 ? 256.0f : 1.0f;
        const float2 two = *(const float2 *)(slab + SMALL_SCALES_AT + 8 * (c & 1));
        return make_float2(plane * two.x, plane * two.y);
    } else {
        return *(const float2 *)(slab + SMALL_SCALES_AT + 8 * c);
    }
}

/*
 * Times that the loop over columns is unrolled. What is executed for the first time comes from far
 * away, and a tile's code is all that a short product is. 8 tokens of 8B on an H200: 2,895 tok/s
 * with 1, 2,938 with 2; 4 tokens 1,567 with both.
 */
template <int TOKENS> __host__ __device__ constexpr int small_unroll()
{
    return TOKENS <= 4 ? 1 : 2;
}

/* y[4] = the tile times the slab. */
template <int KIND, int TOKENS> struct small_tile {
    static __device__ __forceinline__ void multiply(float (&y)[4], const uint8_t *tile,
                                                    const uint8_t *slab, int lane)
    {
        const int r = lane >> 2, c = lane & 3;
        small_scales<KIND> s;
        s.begin(tile, r, c);
        y[0] = y[1] = y[2] = y[3] = 0;
#pragma unroll small_unroll<TOKENS>()
        for (int j = 0; j < 4; j++) {
            uint32_t a[2][4];
            float scale[2][2];
            small_words<KIND>(tile, lane, j, a[0], a[1]);
            s.get(j, scale);
#pragma unroll
            for (int p = 0; p < 2; p++) {
                const uint4 b = small_columns<TOKENS>(slab + 1024 * j + 512 * p, lane);
                float v[4];
                small_products<TOKENS, small_is_signed<KIND>()>(v, a[p], b, ~0u);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    y[e] += scale[p][e >> 1] * v[e];
            }
        }
        s.finish(y, small_sums<TOKENS>(slab, lane), c);
        const float2 scale = small_x_scales<TOKENS>(slab, c);
#pragma unroll
        for (int e = 0; e < 4; e++)
            y[e] *= e & 1 ? scale.y : scale.x;
    }
};

/*
 * Q6_K has scales for 16 columns, which two of four lanes have. So there is a second product with
 * the first half alone: s0 first + s1 second = s1 all + (s0 - s1) first.
 */
template <int TOKENS> struct small_tile<TILE_Q6_K, TOKENS> {
    static __device__ __forceinline__ void multiply(float (&y)[4], const uint8_t *tile,
                                                    const uint8_t *slab, int lane)
    {
        const int r = lane >> 2, c = lane & 3;
        const uint32_t is_first = c < 2 ? ~0u : 0u;
        const uint4 n0 = *(const uint4 *)(tile + 3072 + 32 * r);
        const uint4 n1 = *(const uint4 *)(tile + 3072 + 32 * r + 16);
        /* [parity][half][row], a byte for each j */
        uint32_t n[2][2][2] = {{{n0.x, n0.y}, {n0.z, n0.w}}, {{n1.x, n1.y}, {n1.z, n1.w}}};
        y[0] = y[1] = y[2] = y[3] = 0;
#pragma unroll small_unroll<TOKENS>()
        for (int j = 0; j < 4; j++) {
            uint32_t a[2][4];
            small_words<TILE_Q6_K>(tile, lane, j, a[0], a[1]);
#pragma unroll
            for (int p = 0; p < 2; p++) {
                float s0[2], s1[2];
#pragma unroll
                for (int i = 0; i < 2; i++) { /* Conversions, as nothing else needs their pipe. */
                    s1[i] = (float)(int8_t)n[p][1][i];
                    s0[i] = (float)(int8_t)n[p][0][i] - s1[i];
                    n[p][0][i] >>= 8;
                    n[p][1][i] >>= 8;
                }
                const uint4 b = small_columns<TOKENS>(slab + 1024 * j + 512 * p, lane);
                float first[4], all[4];
                small_products<TOKENS, true>(first, a[p], b, is_first);
                small_products<TOKENS, true>(all, a[p], b, ~0u);
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    y[e] += s0[e >> 1] * first[e];
                    y[e] += s1[e >> 1] * all[e];
                }
            }
        }
        const float2 d = half2_to_float2(*(const uint32_t *)(tile + 3328 + 4 * r));
        const float2 scale = small_x_scales<TOKENS>(slab, c);
#pragma unroll
        for (int e = 0; e < 4; e++)
            y[e] *= (e & 1 ? scale.y : scale.x) * (0.25f * (e >> 1 ? d.y : d.x));
    }
};

#endif
