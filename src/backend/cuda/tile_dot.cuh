/*
 * One warp multiplies one tile of weights (gpu_tiles.h) with the activations of one token.
 *
 * Columns of the mma are not tokens here but parts of one token: column n carries only one plane
 * (high or low) of one group of 16 values, everything else in it is zero. So after the 8 mma of a
 * tile each lane holds the products of its own groups, and scales are applied without repeating
 * anything. Lane (r, c) ends up with sub-blocks 2j + c / 2, half c % 2, for j = 0..3, of rows r and
 * r + 8: the groups 4j + c.
 */
#ifndef LACE_KERNELS_CUDA_TILE_DOT_CUH
#define LACE_KERNELS_CUDA_TILE_DOT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/gpu_tiles.h"

template <int KIND> struct tile_info;
#define X(id, name, n_bytes, n_cols)                                                               \
    template <> struct tile_info<TILE_##id> {                                                      \
        static constexpr int bytes = n_bytes, cols = n_cols;                                       \
    };
TILE_LIST(X)
#undef X

/* What a kind is made of. */
template <int KIND> __host__ __device__ constexpr bool tile_is_half()
{
    return KIND == TILE_F16 || KIND == TILE_BF16;
}
template <int KIND> __host__ __device__ constexpr bool tile_has_bytes()
{
    return KIND == TILE_Q8_0 || KIND == TILE_Q8_1 || KIND == TILE_S8;
}
template <int KIND> __host__ __device__ constexpr bool tile_is_own() /* by its scales */
{
    return KIND == TILE_S3 || KIND == TILE_S4 || KIND == TILE_S8 || KIND == TILE_N24 ||
           KIND == TILE_M4;
}
template <int KIND> __host__ __device__ constexpr bool tile_has_k_scales()
{
    return KIND == TILE_Q4_K || KIND == TILE_Q5_K || KIND == TILE_IQ4_XS;
}
template <int KIND> __host__ __device__ constexpr bool tile_has_mins()
{
    return KIND == TILE_Q4_1 || KIND == TILE_Q8_1;
}
template <int KIND> __host__ __device__ constexpr bool tile_is_signed() /* bytes that reach the mma */
{
    return tile_has_bytes<KIND>() || tile_is_own<KIND>() || KIND == TILE_NL4 || KIND == TILE_FP4 ||
           KIND == TILE_IQ4_XS;
}
/* Nibbles stay where they are (tile_multiply). */
template <int KIND> __host__ __device__ constexpr bool tile_keeps_high()
{
    return KIND == TILE_Q4_0 || KIND == TILE_Q4_1 || KIND == TILE_Q4_K;
}
template <int KIND> __host__ __device__ constexpr int tile_words() /* 16-byte words of a lane */
{
    return tile_has_bytes<KIND>() ? 8
           : KIND == TILE_Q2_K    ? 2
           : KIND == TILE_Q5_K    ? 5
           : KIND == TILE_Q6_K    ? 6
           : KIND == TILE_S3 || KIND == TILE_N24 ? 3
                                  : 4;
}

/* A tile in registers. */
template <int KIND> struct tile_frag {
    uint4 q[tile_words<KIND>()];
    uint2 s0, s1; /* scales: of row r and r + 8; or d and dmin; or those of Q6_K */
    uint2 m0, m1; /* mins, or packed scales */
};

/* Activations of a token, wherever they lie. */
struct act_view {
    const uint8_t *high, *low;
    const float2 *scales; /* [K / 16] */
};

__device__ __forceinline__ act_view act_view_of(const uint8_t *row, int k, int value_bytes)
{
    act_view x;
    x.high = row;
    x.low = row + k * value_bytes;
    x.scales = (const float2 *)(row + 2 * k * value_bytes);
    return x;
}

/* Those that meet a tile, in registers: what this lane gives to the mma, and its groups' scales. */
template <int KIND> struct act_frag {
    static constexpr int n = tile_is_half<KIND>() ? 1 : 4;
    uint2 b[n];
    float scale[n], sum[n];
};

__device__ __forceinline__ float2 half2_to_float2(uint32_t v)
{
    return __half22float2(*(const __half2 *)&v);
}

__device__ __forceinline__ void mma_u8(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                       uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_s8(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                       uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_f16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                        uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_bf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                         uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* ---- Loading --------------------------------------------------------------------------------- */

/* From shared memory, or past the first cache from global memory: weights are read once. */
template <bool IS_GLOBAL> __device__ __forceinline__ uint4 tile_load16(const uint8_t *p)
{
    if (!IS_GLOBAL)
        return *(const uint4 *)p;
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

template <int KIND, bool IS_GLOBAL>
__device__ __forceinline__ void tile_load(tile_frag<KIND> &f, const uint8_t *tile, int lane)
{
    const int r = lane >> 2, p = (lane & 3) >> 1;
    const uint8_t *at = tile + 512 * tile_words<KIND>();
#pragma unroll
    for (int j = 0; j < tile_words<KIND>(); j++)
        f.q[j] = tile_load16<IS_GLOBAL>(tile + 512 * j + 16 * lane);
    if (tile_is_half<KIND>())
        return;
    if (tile_is_own<KIND>()) {
        f.s0.x = *(const uint16_t *)(at + 2 * r);
        f.s0.y = *(const uint16_t *)(at + 2 * (r + 8));
    } else if (KIND == TILE_Q6_K) {
        f.s0 = *(const uint2 *)(at + 8 * lane);
        f.s1.x = *(const uint32_t *)(at + 256 + 4 * r);
    } else if (KIND == TILE_Q2_K) {
        f.s0 = *(const uint2 *)(at + 8 * lane);
        f.s1 = *(const uint2 *)(at + 256 + 8 * r);
    } else if (tile_has_k_scales<KIND>()) {
        const uint32_t *packed = (const uint32_t *)(at + 64 + 12 * (2 * r + p));
        f.s0 = *(const uint2 *)(at + 8 * r);
        f.m0 = make_uint2(packed[0], packed[1]);
        f.m1.x = packed[2];
    } else {
        f.s0 = *(const uint2 *)(at + 8 * (2 * r + p));
        f.s1 = *(const uint2 *)(at + 8 * (2 * (r + 8) + p));
        if (tile_has_mins<KIND>()) {
            f.m0 = *(const uint2 *)(at + 256 + 8 * (2 * r + p));
            f.m1 = *(const uint2 *)(at + 256 + 8 * (2 * (r + 8) + p));
        }
    }
}

/* ---- Quants to bytes ------------------------------------------------------------------------- */

/* The 16 numbers of a table for 8 nibbles: low nibbles of the 4 bytes, then high ones. */
__device__ __forceinline__ uint2 tile_look_up(uint32_t w, uint4 table)
{
    uint32_t v[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t n = h ? w >> 16 : w & 0xffff, at = n & 0x7777;
        uint32_t small = __byte_perm(table.x, table.y, at);
        uint32_t large = __byte_perm(table.z, table.w, at);
        v[h] = __byte_perm(small, large, 0x3210 | ((n & 0x8888) >> 1));
    }
    return make_uint2(__byte_perm(v[0], v[1], 0x6420), __byte_perm(v[0], v[1], 0x7531));
}

__device__ __forceinline__ uint32_t pack_s8(int a, int b, int c, int d)
{
    return (uint32_t)(a & 255) | (uint32_t)(b & 255) << 8 | (uint32_t)(c & 255) << 16 |
           (uint32_t)(d & 255) << 24;
}

template <int KIND> __device__ __forceinline__ uint4 tile_table()
{
    return KIND == TILE_FP4
               ? make_uint4(pack_s8(0, 1, 2, 3), pack_s8(4, 6, 8, 12), pack_s8(0, -1, -2, -3),
                            pack_s8(-4, -6, -8, -12))
               : make_uint4(pack_s8(-127, -104, -83, -65), pack_s8(-49, -35, -22, -10),
                            pack_s8(1, 13, 25, 38), pack_s8(53, 69, 89, 113));
}

/* The instruction itself: a selector of 8 and more gives eight times the sign of its byte. */
__device__ __forceinline__ uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selectors)
{
    uint32_t out;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(selectors));
    return out;
}

/*
 * The magnitudes of 4 low and 4 high nibbles of S4, N24 and M4 (gpu_tiles.h), zeros where a nibble
 * has the sign: its magnitude has none, and that is what the instruction repeats. With all signs
 * changed the same gives those that are below zero. first: what the smallest is.
 */
__device__ __forceinline__ void tile_split_s4(uint32_t w, uint32_t &even, uint32_t &odd,
                                              int first = 6)
{
    const uint32_t low = pack_s8(first, 18, 31, 44), high = pack_s8(58, 75, 96, 127);
    even = permute_bytes(low, high, w);
    odd = permute_bytes(low, high, w >> 16);
}

/* The A operand of sub-blocks 2j and 2j + 1: one word of each of the lane's four. */
template <int KIND>
__device__ __forceinline__ void tile_word(const tile_frag<KIND> &f, int j, int i, uint32_t &even,
                                          uint32_t &odd)
{
    const uint32_t low = 0x0f0f0f0f;
    if (tile_has_bytes<KIND>()) {
        even = (&f.q[(2 * j) % tile_words<KIND>()].x)[i];
        odd = (&f.q[(2 * j + 1) % tile_words<KIND>()].x)[i];
        return;
    }
    if constexpr (KIND == TILE_S3) {
        const uint32_t low_levels = pack_s8(-127, -79, -45, -14),
                       high_levels = pack_s8(14, 45, 79, 127), spare = 0x11111111;
        uint32_t v;
        if (i < 3) {
            v = (&f.q[i % 3].x)[j] & 0x77777777;
        } else {
            uint32_t a = (&f.q[0].x)[j], b = (&f.q[1].x)[j], c = (&f.q[2].x)[j];
            v = (a >> 3 & spare) | (b >> 2 & spare << 1) | (c >> 1 & spare << 2);
        }
        even = permute_bytes(low_levels, high_levels, v);
        odd = permute_bytes(low_levels, high_levels, v >> 16);
        return;
    }
    if constexpr (KIND == TILE_S4) {
        uint32_t v = (&f.q[j % tile_words<KIND>()].x)[i], less[2];
        tile_split_s4(v, even, odd);
        tile_split_s4(v ^ 0x88888888, less[0], less[1]);
        even = (even + 0x80808080 - less[0]) ^ 0x80808080;
        odd = (odd + 0x80808080 - less[1]) ^ 0x80808080;
        return;
    }
    if constexpr (KIND == TILE_Q2_K) {
        uint32_t v = (&f.q[j / 2].x)[i] >> (4 * (j % 2));
        even = v & 0x03030303;
        odd = (v >> 2) & 0x03030303;
        return;
    }
    uint32_t w = (&f.q[j % tile_words<KIND>()].x)[i];
    if (tile_keeps_high<KIND>()) {
        even = w;
        odd = ~w & ~low;
    } else if (KIND == TILE_Q5_K) {
        uint32_t h = (&f.q[4 % tile_words<KIND>()].x)[i] >> (2 * j);
        even = (w & low) | ((h & 0x01010101) << 4);
        odd = ((w >> 4) & low) | ((h & 0x02020202) << 3);
    } else if (KIND == TILE_Q6_K) {
        const uint4 &q = f.q[(4 + j / 2) % tile_words<KIND>()];
        uint32_t h0 = (&q.x)[2 * j % 4], h1 = (&q.x)[(2 * j + 1) % 4], high = 0x30303030;
        h0 = i < 2 ? h0 << (4 - 2 * i) : h0 >> (2 * i - 4);
        h1 = i < 2 ? h1 << (4 - 2 * i) : h1 >> (2 * i - 4);
        even = (w & low) | (h0 & high);
        odd = ((w >> 4) & low) | (h1 & high);
    } else {
        uint2 v = tile_look_up(w, tile_table<KIND>());
        even = v.x;
        odd = v.y;
    }
}

/* ---- Products -------------------------------------------------------------------------------- */

/*
 * Conversions are slow, and logic has half the rate of arithmetic. So integers become floats as bits of
 * a float that is large enough, which are then subtracted: 6 bits, K bits from the right, less `less`.
 */
template <int K> __device__ __forceinline__ float six_bits(uint32_t w, float less)
{
    static_assert(K <= 17, "within the fraction");
    float v = __uint_as_float((w & 63u << K) | 0x4b000000);
    return __fmaf_rn(v, 1.0f / (float)(1 << K), -(float)(1 << (23 - K)) - less);
}

/* The 6-bit scales and mins of a row, 48 bits of which `more` has the last 16. */
__device__ __forceinline__ void tile_unpack_k(uint32_t w, uint32_t more, float less, float (&s)[4],
                                              float (&m)[4])
{
    uint32_t u = __funnelshift_r(w, more, 18);
    s[0] = six_bits<0>(w, less);
    s[1] = six_bits<6>(w, less);
    s[2] = six_bits<12>(w, less);
    s[3] = six_bits<0>(u, less);
    m[0] = six_bits<6>(u, 0);
    m[1] = six_bits<12>(u, 0);
    m[2] = six_bits<4>(more, 0);
    m[3] = six_bits<10>(more, 0);
}

/* Sums of mma begin with this, 1.5 * 2^23 as a float: their bits are those of MMA_BEGIN plus the sum. */
enum { MMA_BEGIN = 0x4b400000 };

/* 256 high + low; no sum is larger than 2^22, and both steps before the last are exact. */
__device__ __forceinline__ float mma_value(int high, int low)
{
    const float begin = 12582912.0f;
    return __fadd_rn(__fmaf_rn(__int_as_float(high), 256.0f, -257.0f * begin), __int_as_float(low));
}

/* Byte j of four signed ones. */
__device__ __forceinline__ float signed_byte(uint32_t flipped, int j)
{
    return __uint_as_float(__byte_perm(flipped, 0x4b000000, 0x7440 | j)) - (8388608.0f + 128.0f);
}

/* The same of bytes without a sign. */
__device__ __forceinline__ float plain_byte(uint32_t bytes, int j)
{
    return __uint_as_float(__byte_perm(bytes, 0x4b000000, 0x7440 | j)) - 8388608.0f;
}

/* Scales of lace's own types: of the first and of the second 128 columns. */
__device__ __forceinline__ float2 tile_own_scales(uint32_t both)
{
    const uint32_t first = (127u - 28) << 23;
    return make_float2(__uint_as_float((both << 20 & 0xff00000) + first),
                       __uint_as_float((both << 12 & 0xff00000) + first));
}

/* 2 of each 4 columns of A are there; `places` says which. */
__device__ __forceinline__ void mma_sparse(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                           uint32_t a3, uint32_t b0, uint32_t b1, uint32_t b2,
                                           uint32_t b3, uint32_t places)
{
    asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9,%10,%11}, {%0,%1,%2,%3}, %12, 0x0;"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(b2), "r"(b3),
                   "r"(places));
}

/* The activations for tile number t. */
template <int KIND>
__device__ __forceinline__ void act_load(act_frag<KIND> &a, const act_view &x, int t, int lane)
{
    const int r = lane >> 2, c = lane & 3;
    const uint8_t *plane = r & 1 ? x.low : x.high;
    if constexpr (tile_is_half<KIND>()) {
        a.b[0] = *(const uint2 *)(plane + 2 * (64 * t + 16 * (r >> 1) + 4 * c));
        a.scale[0] = x.scales[4 * t + c].x;
    } else {
        /* Half of the lanes have the 16 values that the column is for; the others give zeros. */
        const uint32_t feeds = ((r >> 1) & 1) == c >> 1 ? ~0u : 0u;
        const float factor = tile_keeps_high<KIND>() && c >= 2 ? -0.0625f : 1.0f;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 d = x.scales[16 * t + 4 * j + c];
            a.scale[j] = factor * d.x;
            a.sum[j] = d.y;
            if (KIND == TILE_N24) {
                a.b[j].x = *(const uint32_t *)(plane + 256 * t + 64 * j + 16 * (r >> 1) + 4 * c);
                a.b[j].y = 0;
            } else {
                a.b[j] = *(const uint2 *)(plane + 256 * t + 64 * j + 32 * (r >> 2) + 8 * c);
                a.b[j].x &= feeds;
                a.b[j].y &= feeds;
            }
        }
    }
}

/*
 * Products of the groups 4j + c, as tile_multiply has them: of 64 columns, column 2 g + plane of the
 * other factor has one plane of the 16 that are group g, and zeros.
 */
__device__ __forceinline__ void tile_multiply_n24(float (&v0)[4], float (&v1)[4],
                                                  const tile_frag<TILE_N24> &f,
                                                  const act_frag<TILE_N24> &x, int lane)
{
    const int group = lane >> 3;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t b = x.b[j].x;
        const uint32_t w[2] = {(&f.q[j / 2].x)[2 * (j % 2)], (&f.q[j / 2].x)[2 * (j % 2) + 1]};
        const uint32_t b0 = group == 0 ? b : 0, b1 = group == 1 ? b : 0, b2 = group == 2 ? b : 0,
                       b3 = group == 3 ? b : 0, places = (&f.q[2].x)[j];
        int acc[4] = {MMA_BEGIN, MMA_BEGIN, MMA_BEGIN, MMA_BEGIN}, less[4] = {0, 0, 0, 0};
        uint32_t u[4], v[4];
#pragma unroll
        for (int h = 0; h < 2; h++) { /* what is below zero is added up apart */
            tile_split_s4(w[h], u[2 * h], u[2 * h + 1]);
            tile_split_s4(w[h] ^ 0x88888888, v[2 * h], v[2 * h + 1]);
        }
        mma_sparse(less, v[0], v[1], v[2], v[3], b0, b1, b2, b3, places);
        mma_sparse(acc, u[0], u[1], u[2], u[3], b0, b1, b2, b3, places);
#pragma unroll
        for (int i = 0; i < 4; i++)
            acc[i] -= less[i];
        v0[j] = x.scale[j] * mma_value(acc[0], acc[1]);
        v1[j] = x.scale[j] * mma_value(acc[2], acc[3]);
    }
}

/*
 * y0 and y1 (rows r and r + 8) += this lane's part of a tile times its activations. The four lanes
 * of a row are added up by tile_reduce when all tiles are done.
 */
template <int KIND>
__device__ __forceinline__ void tile_multiply(float &y0, float &y1, const tile_frag<KIND> &f,
                                              const act_frag<KIND> &x, int lane)
{
    const int r = lane >> 2, c = lane & 3;
    if constexpr (tile_is_half<KIND>()) {
        float acc[4] = {0, 0, 0, 0};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t b0 = r >> 1 == j ? x.b[0].x : 0, b1 = r >> 1 == j ? x.b[0].y : 0;
            if (KIND == TILE_F16)
                mma_f16(acc, f.q[j].x, f.q[j].y, f.q[j].z, f.q[j].w, b0, b1);
            else
                mma_bf16(acc, f.q[j].x, f.q[j].y, f.q[j].z, f.q[j].w, b0, b1);
        }
        y0 += x.scale[0] * (acc[0] + acc[1]);
        y1 += x.scale[0] * (acc[2] + acc[3]);
    } else if constexpr (KIND == TILE_N24) {
        float v0[4], v1[4];
        tile_multiply_n24(v0, v1, f, x, lane);
        float2 d0 = tile_own_scales(f.s0.x), d1 = tile_own_scales(f.s0.y);
        y0 += d0.x * (v0[0] + v0[1]) + d0.y * (v0[2] + v0[3]);
        y1 += d1.x * (v1[0] + v1[1]) + d1.y * (v1[2] + v1[3]);
    } else {
        /*
         * Columns 0..3 are for even sub-blocks, 4..7 for odd ones. Where nibbles keep their places,
         * even ones meet the whole bytes and then those with the low nibbles gone and the high ones
         * inverted: low + 16 high + (240 - 16 high). Odd ones meet the latter alone. So one of two
         * operands is as it lies in memory, and the rest is made up for here: low * x = sum - 240 x,
         * high * x = 15 x - sum / 16.
         */
        const uint32_t even = r < 4 ? ~0u : 0u, odd = tile_keeps_high<KIND>() ? ~0u : ~even;
        const float more = tile_keeps_high<KIND>() ? (c >= 2 ? 15.0f : -240.0f) : 0.0f;
        const float offset = KIND == TILE_Q4_0 ? more - 8.0f : KIND == TILE_Q6_K ? -32.0f : more;
        constexpr bool has_offset = tile_keeps_high<KIND>() || KIND == TILE_Q6_K;
        float v0[4], v1[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint2 b = x.b[j];
            uint32_t a[4], o[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if constexpr (KIND == TILE_M4)
                    tile_split_s4((&f.q[j].x)[i], a[i], o[i], 0);
                else
                    tile_word<KIND>(f, j, i, a[i], o[i]);
            }
            int acc[4] = {MMA_BEGIN, MMA_BEGIN, MMA_BEGIN, MMA_BEGIN};
            if constexpr (KIND == TILE_M4) { /* what is below zero is added up apart */
                int less[4] = {0, 0, 0, 0};
                mma_s8(acc, a[0], a[1], a[2], a[3], b.x & even, b.y & even);
                mma_s8(acc, o[0], o[1], o[2], o[3], b.x & odd, b.y & odd);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    tile_split_s4((&f.q[j].x)[i] ^ 0x88888888, a[i], o[i]);
                mma_s8(less, a[0], a[1], a[2], a[3], b.x & even, b.y & even);
                mma_s8(less, o[0], o[1], o[2], o[3], b.x & odd, b.y & odd);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    acc[i] -= less[i];
            } else if (tile_is_signed<KIND>()) {
                mma_s8(acc, a[0], a[1], a[2], a[3], b.x & even, b.y & even);
                mma_s8(acc, o[0], o[1], o[2], o[3], b.x & odd, b.y & odd);
            } else {
                mma_u8(acc, a[0], a[1], a[2], a[3], b.x & even, b.y & even);
                mma_u8(acc, o[0], o[1], o[2], o[3], b.x & odd, b.y & odd);
            }
            float rest = has_offset ? offset * x.sum[j] : 0.0f;
            v0[j] = x.scale[j] * mma_value(acc[0], acc[1]) + rest;
            v1[j] = x.scale[j] * mma_value(acc[2], acc[3]) + rest;
        }
        if constexpr (tile_is_own<KIND>()) {
            float2 d0 = tile_own_scales(f.s0.x), d1 = tile_own_scales(f.s0.y);
            y0 += d0.x * (v0[0] + v0[1]) + d0.y * (v0[2] + v0[3]);
            y1 += d1.x * (v1[0] + v1[1]) + d1.y * (v1[2] + v1[3]);
        } else if constexpr (KIND == TILE_Q6_K) {
            float2 d = half2_to_float2(f.s1.x);
            float p0 = 0, p1 = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                p0 += signed_byte(f.s0.x ^ 0x80808080, j) * v0[j];
                p1 += signed_byte(f.s0.y ^ 0x80808080, j) * v1[j];
            }
            y0 += d.x * p0;
            y1 += d.y * p1;
        } else if constexpr (KIND == TILE_Q2_K) {
            const uint32_t low = 0x0f0f0f0f;
            float2 d0 = half2_to_float2(f.s1.x), d1 = half2_to_float2(f.s1.y);
            float p0 = 0, p1 = 0, q0 = 0, q1 = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                p0 += plain_byte(f.s0.x & low, j) * v0[j];
                p1 += plain_byte(f.s0.y & low, j) * v1[j];
                q0 += plain_byte(f.s0.x >> 4 & low, j) * x.sum[j];
                q1 += plain_byte(f.s0.y >> 4 & low, j) * x.sum[j];
            }
            y0 += d0.x * p0 - d0.y * q0;
            y1 += d1.x * p1 - d1.y * q1;
        } else if constexpr (tile_has_k_scales<KIND>()) {
            float2 d0 = half2_to_float2(f.s0.x), d1 = half2_to_float2(f.s0.y);
            float s0[4], m0[4], s1[4], m1[4], p0 = 0, p1 = 0, q0 = 0, q1 = 0;
            const float less = KIND == TILE_IQ4_XS ? 32.0f : 0.0f;
            tile_unpack_k(f.m0.x, f.m0.y, less, s0, m0);
            tile_unpack_k(__funnelshift_r(f.m0.y, f.m1.x, 16), f.m1.x >> 16, less, s1, m1);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                p0 += s0[j] * v0[j];
                p1 += s1[j] * v1[j];
                if (KIND != TILE_IQ4_XS) {
                    q0 += m0[j] * x.sum[j];
                    q1 += m1[j] * x.sum[j];
                }
            }
            y0 += d0.x * p0 - d0.y * q0;
            y1 += d1.x * p1 - d1.y * q1;
        } else {
            float2 s[4] = {half2_to_float2(f.s0.x), half2_to_float2(f.s0.y),
                           half2_to_float2(f.s1.x), half2_to_float2(f.s1.y)};
            y0 += s[0].x * v0[0] + s[0].y * v0[1] + s[1].x * v0[2] + s[1].y * v0[3];
            y1 += s[2].x * v1[0] + s[2].y * v1[1] + s[3].x * v1[2] + s[3].y * v1[3];
            if (tile_has_mins<KIND>()) {
                float2 m[4] = {half2_to_float2(f.m0.x), half2_to_float2(f.m0.y),
                               half2_to_float2(f.m1.x), half2_to_float2(f.m1.y)};
                y0 += m[0].x * x.sum[0] + m[0].y * x.sum[1] + m[1].x * x.sum[2] +
                      m[1].y * x.sum[3];
                y1 += m[2].x * x.sum[0] + m[2].y * x.sum[1] + m[3].x * x.sum[2] +
                      m[3].y * x.sum[3];
            }
        }
    }
}

/* All lanes of a row get its sum. */
__device__ __forceinline__ float tile_reduce(float y)
{
    y += __shfl_xor_sync(~0u, y, 1);
    return y + __shfl_xor_sync(~0u, y, 2);
}

/* ---- Activations ----------------------------------------------------------------------------- */

/*
 * Rotation (tensor/rotate.h) is signs, then sums and differences over each bit of a value's number.
 * Who makes values has 16 in a row, and does the lower four bits; who uses them does the other three
 * (tile_grouped.cuh), for which values that are 16 apart lie side by side, at rotation_place.
 */
__device__ __forceinline__ float rotation_sign(int i)
{
    const float scale = 0.08838834764831845f; /* 1 / sqrt(128) */
    const uint64_t flips = i & 64 ? 0xd1b54a32d192ed03 : 0x9e3779b97f4a7c15;
    return flips >> (i & 63) & 1 ? -scale : scale;
}

__device__ __forceinline__ int rotation_place(int i)
{
    return (i & ~127) | (i & 15) << 3 | (i >> 4 & 7);
}

/* One bit of the numbers i, which the lanes `apart` from each other differ in. */
__device__ __forceinline__ float rotation_step(float v, int i, int bit, int apart)
{
    float other = __shfl_xor_sync(~0u, v, apart);
    return i & bit ? other - v : v + other;
}

/*
 * Four neighbouring lanes hold 4 values each of one group of 16, beginning at value i. Writes both
 * planes and the group's scales. All 32 lanes must call it; those that are not `active` write
 * nothing. pad: bytes between the planes.
 */
__device__ __forceinline__ void act_put(gpu_act act, float4 v, int i, uint8_t *row, int k,
                                        bool active = true, int pad = 0)
{
    if (act == GPU_ACT_FLOATS) {
        if (active)
            *(float4 *)(row + 4 * i) = v;
        return;
    }
    if (act == GPU_ACT_ROTATED) {
        float x[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int n = 0; n < 4; n++)
            x[n] *= rotation_sign(i + n);
        float a = x[0] + x[1], b = x[0] - x[1], c = x[2] + x[3], d = x[2] - x[3];
        x[0] = a + c, x[1] = b + d, x[2] = a - c, x[3] = b - d;
#pragma unroll
        for (int n = 0; n < 4; n++) {
            x[n] = rotation_step(x[n], i, 4, 1);
            x[n] = rotation_step(x[n], i, 8, 2);
            if (active)
                ((float *)row)[rotation_place(i + n)] = x[n];
        }
        return;
    }
    float most = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    const float tiny = 1e-30f;
    if (act == GPU_ACT_INT) {
        const float full = 127 * 256 + 127;
        float inverse = most > tiny ? full / most : 0.0f, d = most > tiny ? most / full : 0.0f;
        int q[4] = {__float2int_rn(v.x * inverse), __float2int_rn(v.y * inverse),
                    __float2int_rn(v.z * inverse), __float2int_rn(v.w * inverse)};
        int sum = q[0] + q[1] + q[2] + q[3];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        int h[4];
#pragma unroll
        for (int n = 0; n < 4; n++)
            h[n] = (q[n] + 128) >> 8;
        if (!active)
            return;
        *(uint32_t *)(row + i) = pack_s8(h[0], h[1], h[2], h[3]);
        *(uint32_t *)(row + k + pad + i) = pack_s8(q[0] - 256 * h[0], q[1] - 256 * h[1],
                                             q[2] - 256 * h[2], q[3] - 256 * h[3]);
        if ((i & 15) == 0)
            ((float2 *)(row + 2 * k + pad))[i >> 4] = make_float2(d, d * (float)sum);
        return;
    }
    float inverse = most > tiny ? 1.0f / most : 0.0f;
    float u[4] = {v.x * inverse, v.y * inverse, v.z * inverse, v.w * inverse};
    uint16_t high[4], low[4];
#pragma unroll
    for (int n = 0; n < 4; n++) {
        if (act == GPU_ACT_F16) {
            __half h = __float2half_rn(u[n]);
            high[n] = __half_as_ushort(h);
            low[n] = __half_as_ushort(__float2half_rn(u[n] - __half2float(h)));
        } else {
            __nv_bfloat16 h = __float2bfloat16_rn(u[n]);
            high[n] = __bfloat16_as_ushort(h);
            low[n] = __bfloat16_as_ushort(__float2bfloat16_rn(u[n] - __bfloat162float(h)));
        }
    }
    if (!active)
        return;
    *(uint2 *)(row + 2 * i) = make_uint2(high[0] | (uint32_t)high[1] << 16,
                                         high[2] | (uint32_t)high[3] << 16);
    *(uint2 *)(row + 2 * (k + i) + pad) = make_uint2(low[0] | (uint32_t)low[1] << 16,
                                                     low[2] | (uint32_t)low[3] << 16);
    if ((i & 15) == 0)
        ((float2 *)(row + 4 * k + pad))[i >> 4] = make_float2(most > tiny ? most : 0.0f, 0.0f);
}

__host__ __device__ __forceinline__ int act_value_bytes(gpu_act act)
{
    return act == GPU_ACT_F16 || act == GPU_ACT_BF16 ? 2 : 1;
}

#endif
