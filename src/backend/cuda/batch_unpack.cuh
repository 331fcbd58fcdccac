/*
 * Weights in tiles (gpu_tiles.h) to f16, in the order in which a warp holds a matrix of 16 rows.
 *
 * A lane has rows r = lane / 4 and r + 8 of a tile. Of each 32 columns of the int kinds it has
 * 8 c + 0..7, c = lane % 4. Two matrix instructions of 16 values each take 4 of them, "step" 0 and
 * 1. From a byte for each value the pairs (0, 2) and (1, 3) are separated at no cost, so those are
 * the pairs of f16 in a register. Half kinds lie as the instruction wants them. Activations come in
 * the same order (batch_common.cuh).
 *
 * Integers become f16 by putting their bits below the exponent of 1024. Scales of the int kinds are
 * taken times 256, which the product divides out again: scales of small weights would lose bits as
 * f16 otherwise, and no weight comes near 65504 / 256.
 */
#ifndef LACE_KERNELS_CUDA_BATCH_UNPACK_CUH
#define LACE_KERNELS_CUDA_BATCH_UNPACK_CUH

#include <cuda_fp16.h>
#include <stdint.h>

#include "backend/cuda/gpu_tiles.h"

#define UNPACK_FN static __device__ __forceinline__

UNPACK_FN __half2 as_half2(uint32_t bits)
{
    return *(__half2 *)&bits;
}

UNPACK_FN uint32_t as_bits(__half2 h)
{
    return *(uint32_t *)&h;
}

UNPACK_FN __half2 twice(float x)
{
    return __float2half2_rn(x);
}

/* The low or the high half of a pair, twice: free, as a choice of the instruction that uses it. */
UNPACK_FN __half2 pick(uint32_t pair, int which)
{
    return which ? __high2half2(as_half2(pair)) : __low2half2(as_half2(pair));
}

/*
 * The bits under `mask`, below the exponent of 1024. Logic has half the rate of arithmetic and is
 * what these kernels are bound by: one instruction, where the compiler makes two.
 */
UNPACK_FN __half2 near_1024(uint32_t word, uint32_t mask)
{
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(word), "r"(mask), "r"(0x64006400u));
    return as_half2(out);
}

/* 1024 + bytes 0 and 2, or 1 and 3, of a word. */
UNPACK_FN __half2 bytes_02(uint32_t word)
{
    return as_half2(__byte_perm(word, 0x64646464u, 0x4240));
}

UNPACK_FN __half2 bytes_13(uint32_t word)
{
    return as_half2(__byte_perm(word, 0x64646464u, 0x4341));
}

/* ---- Quants ---------------------------------------------------------------------------------- */

/*
 * What one step of 64 columns takes: registers 4 n .. 4 n + 3 for instruction n, that is sub-block
 * n / 2, step n % 2; register i of them is row r + 8 (i % 2), pair i / 2. `word` i of a sub-block
 * has step i / 2 and row r + 8 (i % 2). Each q_* makes numbers that scales multiply.
 */

/* Nibbles minus `zero`; those of the odd sub-block times 16. */
UNPACK_FN void quants_nibbles(const uint8_t *t, int lane, int j, int zero, __half2 (&q)[16])
{
    uint4 w4 = *(const uint4 *)(t + j * 512 + lane * 16);
    uint32_t w[4] = {w4.x, w4.y, w4.z, w4.w};
    __half2 even = twice((float)(1024 + zero)), odd = twice((float)(1024 + 16 * zero));
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int to = 4 * (i >> 1) + (i & 1);
        uint32_t v = w[i] >> 8;
        q[to] = __hsub2(near_1024(w[i], 0x000f000fu), even);
        q[to + 2] = __hsub2(near_1024(v, 0x000f000fu), even);
        q[8 + to] = __hsub2(near_1024(w[i], 0x00f000f0u), odd);
        q[8 + to + 2] = __hsub2(near_1024(v, 0x00f000f0u), odd);
    }
}

/* A table of 16 signed bytes, each plus 128, looked up by nibbles. */
UNPACK_FN void quants_table(const uint8_t *t, int lane, int j, uint4 table, __half2 (&q)[16])
{
    uint4 w4 = *(const uint4 *)(t + j * 512 + lane * 16);
    uint32_t w[4] = {w4.x, w4.y, w4.z, w4.w};
    __half2 zero = twice(1024 + 128);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int to = 4 * (i >> 1) + (i & 1);
        uint32_t found[2]; /* bytes 0, 1 and bytes 2, 3: low nibble, high nibble of each */
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t v = half ? w[i] >> 16 : w[i];
            uint32_t low = __byte_perm(table.x, table.y, v & 0x7777u);
            uint32_t high = __byte_perm(table.z, table.w, v & 0x7777u);
            found[half] = __byte_perm(low, high, 0x3210u | (v & 0x8888u) >> 1);
        }
        /* Low nibbles are bytes 0 and 2 of `found`, high nibbles bytes 1 and 3. */
        q[to] = __hsub2(near_1024(__byte_perm(found[0], found[1], 0x0400), 0x00ff00ffu), zero);
        q[to + 2] = __hsub2(near_1024(__byte_perm(found[0], found[1], 0x0602), 0x00ff00ffu), zero);
        q[8 + to] = __hsub2(near_1024(__byte_perm(found[0], found[1], 0x0501), 0x00ff00ffu), zero);
        q[8 + to + 2] =
            __hsub2(near_1024(__byte_perm(found[0], found[1], 0x0703), 0x00ff00ffu), zero);
    }
}

UNPACK_FN uint4 table_nl4(void) /* iq4_values + 128 */
{
    return make_uint4(0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u);
}

UNPACK_FN uint4 table_fp4(void) /* fp4_values + 128 */
{
    return make_uint4(0x83828180u, 0x8c888684u, 0x7d7e7f80u, 0x74787a7cu);
}

/*
 * The levels of four nibbles of S4, N24 and M4, each plus 128; those of the high half of w: w >> 16.
 * first: the smallest above zero.
 */
UNPACK_FN uint32_t levels_s4(uint32_t w, uint32_t first = 6)
{
    const uint32_t low = 0x2c1f1206u, high = 0x7f604b3au; /* 6, 18, 31, 44; 58, 75, 96, 127 */
    uint32_t more, less;
    /* A selector of 8 and more repeats the sign of its byte: none. */
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(more) : "r"(low - 6 + first), "r"(high), "r"(w));
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(less) : "r"(low), "r"(high), "r"(w ^ 0x88888888u));
    return 0x80808080u + more - less;
}

UNPACK_FN void quants_s4(const uint8_t *t, int lane, int j, __half2 (&q)[16], uint32_t first = 6)
{
    uint4 w4 = *(const uint4 *)(t + j * 512 + lane * 16);
    uint32_t w[4] = {w4.x, w4.y, w4.z, w4.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int to = 4 * (i >> 1) + (i & 1);
        uint32_t e = levels_s4(w[i], first), o = levels_s4(w[i] >> 16, first);
        q[to] = __hsub2(bytes_02(e), twice(1152));
        q[to + 2] = __hsub2(bytes_13(e), twice(1152));
        q[8 + to] = __hsub2(bytes_02(o), twice(1152));
        q[8 + to + 2] = __hsub2(bytes_13(o), twice(1152));
    }
}

/* 3 bits (gpu_tiles.h), into a table of 8. */
UNPACK_FN void quants_s3(const uint8_t *t, int lane, int j, __half2 (&q)[16])
{
    const uint32_t low = 0x72533101u, high = 0xffcfad8eu; /* the levels + 128 */
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 3; i++)
        w[i] = *(const uint32_t *)(t + 512 * i + 16 * lane + 4 * j);
    w[3] = (w[0] >> 3 & 0x11111111u) | (w[1] >> 2 & 0x22222222u) | (w[2] >> 1 & 0x44444444u);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int to = 4 * (i >> 1) + (i & 1);
        uint32_t v = w[i] & 0x77777777u;
        uint32_t e = __byte_perm(low, high, v), o = __byte_perm(low, high, v >> 16);
        q[to] = __hsub2(bytes_02(e), twice(1152));
        q[to + 2] = __hsub2(bytes_13(e), twice(1152));
        q[8 + to] = __hsub2(bytes_02(o), twice(1152));
        q[8 + to + 2] = __hsub2(bytes_13(o), twice(1152));
    }
}

UNPACK_FN void quants_bytes(const uint8_t *t, int lane, int j, __half2 (&q)[16])
{
#pragma unroll
    for (int s = 0; s < 2; s++) {
        uint4 w4 = *(const uint4 *)(t + (2 * j + s) * 512 + lane * 16);
        uint32_t w[4] = {w4.x, w4.y, w4.z, w4.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int to = 8 * s + 4 * (i >> 1) + (i & 1);
            uint32_t u = w[i] ^ 0x80808080u;
            q[to] = __hsub2(bytes_02(u), twice(1152));
            q[to + 2] = __hsub2(bytes_13(u), twice(1152));
        }
    }
}

/* 2 of each 4 columns (gpu_tiles.h), with their zeros. */
UNPACK_FN void quants_n24(const uint8_t *t, int lane, int j, __half2 (&q)[16])
{
#pragma unroll
    for (int s = 0; s < 2; s++) {
        uint32_t w = *(const uint32_t *)(t + 512 * (j >> 1) + 16 * lane + 4 * (2 * (j & 1) + s));
        /* The four values of rows r and r + 8. */
        uint32_t found[2] = {levels_s4(w) ^ 0x80808080u, levels_s4(w >> 16) ^ 0x80808080u};
#pragma unroll
        for (int i = 0; i < 4; i++) { /* row r + 8 (i & 1), four columns number i >> 1 */
            uint32_t e = *(const uint32_t *)(t + 1024 + 16 * ((lane & ~3) + (i & 1) + 2 * s) + 4 * j);
            uint32_t at = e >> 4 * (2 * (lane & 3) + (i >> 1));
            uint32_t pair = found[i & 1] >> 16 * (i >> 1);
            uint32_t all = ((pair & 255) << 8 * (at & 3)) |
                           ((pair >> 8 & 255) << 8 * (at >> 2 & 3));
            int to = 8 * s + 4 * (i >> 1) + (i & 1);
            all ^= 0x80808080u;
            q[to] = __hsub2(bytes_02(all), twice(1152));
            q[to + 2] = __hsub2(bytes_13(all), twice(1152));
        }
    }
}

/* 2 bits minus 2; those of the odd sub-block times 4. */
UNPACK_FN void quants_two(const uint8_t *t, int lane, int j, __half2 (&q)[16])
{
    uint4 w4 = *(const uint4 *)(t + (j >> 1) * 512 + lane * 16);
    uint32_t w[4] = {w4.x, w4.y, w4.z, w4.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int to = 4 * (i >> 1) + (i & 1);
        uint32_t u = w[i] >> 4 * (j & 1), v = w[i] >> (4 * (j & 1) + 8);
        q[to] = __hsub2(near_1024(u, 0x00030003u), twice(1026));
        q[to + 2] = __hsub2(near_1024(v, 0x00030003u), twice(1026));
        q[8 + to] = __hsub2(near_1024(u, 0x000c000cu), twice(1032));
        q[8 + to + 2] = __hsub2(near_1024(v, 0x000c000cu), twice(1032));
    }
}

/* Nibbles with a fifth bit, minus 16. */
UNPACK_FN void quants_five(const uint8_t *t, int lane, int j, __half2 (&q)[16])
{
    uint4 w4 = *(const uint4 *)(t + j * 512 + lane * 16);
    uint4 f4 = *(const uint4 *)(t + 2048 + lane * 16);
    uint32_t w[4] = {w4.x, w4.y, w4.z, w4.w}, f[4] = {f4.x, f4.y, f4.z, f4.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int to = 4 * (i >> 1) + (i & 1);
        uint32_t e = (w[i] & 0x0f0f0f0fu) | (f[i] >> 2 * j & 0x01010101u) << 4;
        uint32_t o = (w[i] >> 4 & 0x0f0f0f0fu) | (f[i] >> (2 * j + 1) & 0x01010101u) << 4;
        q[to] = __hsub2(bytes_02(e), twice(1040));
        q[to + 2] = __hsub2(bytes_13(e), twice(1040));
        q[8 + to] = __hsub2(bytes_02(o), twice(1040));
        q[8 + to + 2] = __hsub2(bytes_13(o), twice(1040));
    }
}

/* Nibbles with two more bits, minus 32. */
UNPACK_FN void quants_six(const uint8_t *t, int lane, int j, __half2 (&q)[16])
{
    uint4 w4 = *(const uint4 *)(t + j * 512 + lane * 16);
    uint2 h2 = *(const uint2 *)(t + 2048 + (j >> 1) * 512 + lane * 16 + (j & 1) * 8);
    uint32_t w[4] = {w4.x, w4.y, w4.z, w4.w}, h[2] = {h2.x, h2.y};
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int to = 8 * s + 4 * (i >> 1) + (i & 1);
            uint32_t low = s ? w[i] >> 4 : w[i];
            uint32_t two = i == 0 ? h[s] << 4 : i == 1 ? h[s] << 2 : i == 2 ? h[s] : h[s] >> 2;
            uint32_t all = (low & 0x0f0f0f0fu) | (two & 0x30303030u);
            q[to] = __hsub2(bytes_02(all), twice(1056));
            q[to + 2] = __hsub2(bytes_13(all), twice(1056));
        }
}

/* ---- Scales ---------------------------------------------------------------------------------- */

/*
 * Lane c of four reads the scales of row r + 8 (c / 2), sub-blocks of parity c % 2, and keeps them
 * as f16; a step then gets what it needs from its neighbours: [row r, r + 8][sub-block 0, 1].
 */

/* Four f16 scales (and mins); odd_unit: what the odd sub-block's quants are too large by. */
struct scales_f16 {
    uint32_t scale[2];

    __device__ __forceinline__ void begin(const uint8_t *at, int lane, float odd_unit)
    {
        int row = (lane >> 2) + 8 * (lane >> 1 & 1), parity = lane & 1;
        uint2 d = *(const uint2 *)(at + (2 * row + parity) * 8);
        __half2 unit = twice(parity ? 256.0f / odd_unit : 256.0f);
        scale[0] = as_bits(__hmul2(as_half2(d.x), unit));
        scale[1] = as_bits(__hmul2(as_half2(d.y), unit));
    }

    __device__ __forceinline__ void get(int j, __half2 (&out)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = pick(__shfl_sync(~0u, scale[j >> 1], i, 4), j & 1);
    }
};

/*
 * Scales and mins of 6 bits, times f16. A weight is d s q - dmin m = d s (q - middle) + centre: the
 * centre of weights is near 0, so that little is lost when it becomes f16, where mins are large and
 * would be off by the same for all of a sub-block. {d s, centre} of step j in pair[j].
 */
struct scales_k {
    uint32_t pair[4];

    /* zero: what is taken from the scales, for kinds whose scales are signed. */
    __device__ __forceinline__ void begin(const uint8_t *at, int lane, float odd_unit, float zero,
                                          float middle)
    {
        int r = lane >> 2, parity = lane & 1, is_second = lane >> 1 & 1;
        uint32_t d = *(const uint32_t *)(at + 8 * r + 4 * is_second);
        const uint32_t *w = (const uint32_t *)(at + 64 + (2 * r + parity) * 12);
        uint32_t a = w[0], b = w[1], c = w[2];
        uint32_t s = is_second ? __funnelshift_r(b, c, 16) : a;
        uint32_t m = is_second ? c >> 8 : __funnelshift_r(a, b, 24);
        const float2 both = __half22float2(as_half2(d));
        const float unit = parity ? 256.0f / odd_unit : 256.0f;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float scale = both.x * ((float)(s >> 6 * j & 63) - zero);
            float centre = middle * scale - both.y * (float)(m >> 6 * j & 63);
            pair[j] = as_bits(__floats2half2_rn(unit * scale, 256.0f * centre));
        }
    }

    __device__ __forceinline__ void get(int j, __half2 (&scale)[4], __half2 (&min)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t p = __shfl_sync(~0u, pair[j], i, 4);
            scale[i] = pick(p, 0);
            min[i] = pick(p, 1);
        }
    }
};

/* lace's own: a byte for each row and 128 columns; every lane has those of its rows. */
struct scales_own {
    __half2 scale[2][2]; /* [row r, r + 8][half of the tile] */

    __device__ __forceinline__ void begin(const uint8_t *at, int lane)
    {
#pragma unroll
        for (int row = 0; row < 2; row++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t byte = at[2 * ((lane >> 2) + 8 * row) + half];
                scale[row][half] =
                    twice(256.0f * __uint_as_float((byte << 20) + ((127u - 28) << 23)));
            }
    }

    __device__ __forceinline__ void get(int j, __half2 (&out)[4]) const
    {
        out[0] = out[1] = j < 2 ? scale[0][0] : scale[0][1];
        out[2] = out[3] = j < 2 ? scale[1][0] : scale[1][1];
    }
};

/* a = q scale [+ min]; scale[2 * (row r or r + 8) + sub-block]. */
UNPACK_FN void scale_quants(const __half2 (&q)[16], const __half2 (&scale)[4], uint32_t (&a)[16])
{
#pragma unroll
    for (int i = 0; i < 16; i++)
        a[i] = as_bits(__hmul2(q[i], scale[2 * (i & 1) + (i >> 3)]));
}

UNPACK_FN void scale_quants(const __half2 (&q)[16], const __half2 (&scale)[4],
                            const __half2 (&min)[4], uint32_t (&a)[16])
{
#pragma unroll
    for (int i = 0; i < 16; i++)
        a[i] = as_bits(__hfma2(q[i], scale[2 * (i & 1) + (i >> 3)], min[2 * (i & 1) + (i >> 3)]));
}

/* ---- Kinds of tiles -------------------------------------------------------------------------- */

/*
 * begin() is called once for a tile that lies at t; step() makes 64 columns, number j, of it. UNIT:
 * what the weights are too large by. IS_HALF: which order of activations.
 */
template <int KIND> struct tile;

template <int BYTES_, int COLS_, bool IS_HALF_> struct tile_base {
    static constexpr int BYTES = BYTES_, COLS = COLS_;
    static constexpr bool IS_HALF = IS_HALF_;
    static constexpr float UNIT = IS_HALF_ ? 1 : 256;
};

template <> struct tile<TILE_Q4_0> : tile_base<TILE_BYTES_Q4_0, 256, false> {
    scales_f16 s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane)
    {
        s.begin(t + 2048, lane, 16);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, uint32_t (&a)[16]) const
    {
        __half2 q[16], scale[4];
        quants_nibbles(t, lane, j, 8, q);
        s.get(j, scale);
        scale_quants(q, scale, a);
    }
};

template <> struct tile<TILE_NL4> : tile_base<TILE_BYTES_NL4, 256, false> {
    scales_f16 s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane)
    {
        s.begin(t + 2048, lane, 1);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, uint32_t (&a)[16]) const
    {
        __half2 q[16], scale[4];
        quants_table(t, lane, j, table_nl4(), q);
        s.get(j, scale);
        scale_quants(q, scale, a);
    }
};

template <> struct tile<TILE_FP4> : tile_base<TILE_BYTES_FP4, 256, false> {
    scales_f16 s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane)
    {
        s.begin(t + 2048, lane, 1);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, uint32_t (&a)[16]) const
    {
        __half2 q[16], scale[4];
        quants_table(t, lane, j, table_fp4(), q);
        s.get(j, scale);
        scale_quants(q, scale, a);
    }
};

template <> struct tile<TILE_Q4_1> : tile_base<TILE_BYTES_Q4_1, 256, false> {
    scales_f16 s, m;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane)
    {
        s.begin(t + 2048, lane, 16);
        m.begin(t + 2304, lane, 1);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, uint32_t (&a)[16]) const
    {
        __half2 q[16], scale[4], min[4];
        quants_nibbles(t, lane, j, 0, q);
        s.get(j, scale);
        m.get(j, min);
        scale_quants(q, scale, min, a);
    }
};

template <> struct tile<TILE_Q8_0> : tile_base<TILE_BYTES_Q8_0, 256, false> {
    scales_f16 s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane)
    {
        s.begin(t + 4096, lane, 1);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, uint32_t (&a)[16]) const
    {
        __half2 q[16], scale[4];
        quants_bytes(t, lane, j, q);
        s.get(j, scale);
        scale_quants(q, scale, a);
    }
};

template <> struct tile<TILE_Q8_1> : tile_base<TILE_BYTES_Q8_1, 256, false> {
    scales_f16 s, m;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane)
    {
        s.begin(t + 4096, lane, 1);
        m.begin(t + 4352, lane, 1);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, uint32_t (&a)[16]) const
    {
        __half2 q[16], scale[4], min[4];
        quants_bytes(t, lane, j, q);
        s.get(j, scale);
        m.get(j, min);
        scale_quants(q, scale, min, a);
    }
};

template <> struct tile<TILE_Q4_K> : tile_base<TILE_BYTES_Q4_K, 256, false> {
    scales_k s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane)
    {
        s.begin(t + 2048, lane, 16, 0, 8);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, uint32_t (&a)[16]) const
    {
        __half2 q[16], scale[4], min[4];
        quants_nibbles(t, lane, j, 8, q);
        s.get(j, scale, min);
        scale_quants(q, scale, min, a);
    }
};

template <> struct tile<TILE_Q5_K> : tile_base<TILE_BYTES_Q5_K, 256, false> {
    scales_k s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane)
    {
        s.begin(t + 2560, lane, 1, 0, 16);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, uint32_t (&a)[16]) const
    {
        __half2 q[16], scale[4], min[4];
        quants_five(t, lane, j, q);
        s.get(j, scale, min);
        scale_quants(q, scale, min, a);
    }
};

template <> struct tile<TILE_IQ4_XS> : tile_base<TILE_BYTES_IQ4_XS, 256, false> {
    scales_k s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane)
    {
        s.begin(t + 2048, lane, 1, 32, 0);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, uint32_t (&a)[16]) const
    {
        __half2 q[16], scale[4], min[4];
        quants_table(t, lane, j, table_nl4(), q);
        s.get(j, scale, min);
        scale_quants(q, scale, a);
    }
};

template <> struct tile<TILE_Q6_K> : tile_base<TILE_BYTES_Q6_K, 256, false> {
    uint32_t pair[4]; /* scales of rows r and r + 8, groups of 16 columns 4 j + c */
    __device__ __forceinline__ void begin(const uint8_t *t, int lane)
    {
        uint2 n = *(const uint2 *)(t + 3072 + 8 * lane);
        __half2 d = __hmul2(as_half2(*(const uint32_t *)(t + 3328 + 4 * (lane >> 2))), twice(256));
#pragma unroll
        for (int j = 0; j < 4; j++) {
            /* Signed bytes: plus 128, below 1024, minus both. */
            uint32_t u = __byte_perm(n.x ^ 0x80808080u, n.y ^ 0x80808080u, j | (j + 4) << 8);
            pair[j] = as_bits(__hmul2(__hsub2(near_1024(u, 0x00ff00ffu), twice(1152)), d));
        }
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, uint32_t (&a)[16]) const
    {
        __half2 q[16], scale[4];
        quants_six(t, lane, j, q);
#pragma unroll
        for (int s2 = 0; s2 < 2; s2++) {
            uint32_t p = __shfl_sync(~0u, pair[j], 2 * s2 + (lane >> 1 & 1), 4);
            scale[s2] = pick(p, 0);
            scale[2 + s2] = pick(p, 1);
        }
        scale_quants(q, scale, a);
    }
};

template <> struct tile<TILE_Q2_K> : tile_base<TILE_BYTES_Q2_K, 256, false> {
    uint32_t scales[4], centres[4]; /* of rows r and r + 8, groups of 16 columns 4 j + c */
    __device__ __forceinline__ void begin(const uint8_t *t, int lane)
    {
        uint2 n = *(const uint2 *)(t + 1024 + 8 * lane);
        uint2 d = *(const uint2 *)(t + 1280 + 8 * (lane >> 2));
        const float2 first = __half22float2(as_half2(d.x)), second = __half22float2(as_half2(d.y));
        const float unit = lane & 2 ? 256.0f / 4 : 256.0f; /* groups of odd sub-blocks */
#pragma unroll
        for (int j = 0; j < 4; j++) { /* centres as scales_k has them */
            float s0 = first.x * (float)(n.x >> 8 * j & 15);
            float s1 = second.x * (float)(n.y >> 8 * j & 15);
            float c0 = 2 * s0 - first.y * (float)(n.x >> (8 * j + 4) & 15);
            float c1 = 2 * s1 - second.y * (float)(n.y >> (8 * j + 4) & 15);
            scales[j] = as_bits(__floats2half2_rn(unit * s0, unit * s1));
            centres[j] = as_bits(__floats2half2_rn(256.0f * c0, 256.0f * c1));
        }
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, uint32_t (&a)[16]) const
    {
        __half2 q[16], scale[4], min[4];
        quants_two(t, lane, j, q);
#pragma unroll
        for (int s2 = 0; s2 < 2; s2++) {
            uint32_t p = __shfl_sync(~0u, scales[j], 2 * s2 + (lane >> 1 & 1), 4);
            uint32_t m = __shfl_sync(~0u, centres[j], 2 * s2 + (lane >> 1 & 1), 4);
            scale[s2] = pick(p, 0);
            scale[2 + s2] = pick(p, 1);
            min[s2] = pick(m, 0);
            min[2 + s2] = pick(m, 1);
        }
        scale_quants(q, scale, min, a);
    }
};

template <> struct tile<TILE_S4> : tile_base<TILE_BYTES_S4, 256, false> {
    scales_own s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane)
    {
        s.begin(t + 2048, lane);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, uint32_t (&a)[16]) const
    {
        __half2 q[16], scale[4];
        quants_s4(t, lane, j, q);
        s.get(j, scale);
        scale_quants(q, scale, a);
    }
};

template <> struct tile<TILE_M4> : tile_base<TILE_BYTES_M4, 256, false> {
    scales_own s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane)
    {
        s.begin(t + 2048, lane);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, uint32_t (&a)[16]) const
    {
        __half2 q[16], scale[4];
        quants_s4(t, lane, j, q, 0);
        s.get(j, scale);
        scale_quants(q, scale, a);
    }
};

template <> struct tile<TILE_S3> : tile_base<TILE_BYTES_S3, 256, false> {
    scales_own s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane)
    {
        s.begin(t + 1536, lane);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, uint32_t (&a)[16]) const
    {
        __half2 q[16], scale[4];
        quants_s3(t, lane, j, q);
        s.get(j, scale);
        scale_quants(q, scale, a);
    }
};

template <> struct tile<TILE_N24> : tile_base<TILE_BYTES_N24, 256, false> {
    scales_own s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane)
    {
        s.begin(t + 1536, lane);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, uint32_t (&a)[16]) const
    {
        __half2 q[16], scale[4];
        quants_n24(t, lane, j, q);
        s.get(j, scale);
        scale_quants(q, scale, a);
    }
};

template <> struct tile<TILE_S8> : tile_base<TILE_BYTES_S8, 256, false> {
    scales_own s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane)
    {
        s.begin(t + 4096, lane);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, uint32_t (&a)[16]) const
    {
        __half2 q[16], scale[4];
        quants_bytes(t, lane, j, q);
        s.get(j, scale);
        scale_quants(q, scale, a);
    }
};

template <> struct tile<TILE_F16> : tile_base<TILE_BYTES_F16, 64, true> {
    __device__ __forceinline__ void begin(const uint8_t *t, int lane)
    {
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, uint32_t (&a)[16]) const
    {
#pragma unroll
        for (int n = 0; n < 4; n++) {
            uint4 w = *(const uint4 *)(t + n * 512 + lane * 16);
            a[4 * n] = w.x;
            a[4 * n + 1] = w.y;
            a[4 * n + 2] = w.z;
            a[4 * n + 3] = w.w;
        }
    }
};

/* Eight bits of fraction fit an f16; what is below 6e-8 is lost, and above 65504 cut. */
template <> struct tile<TILE_BF16> : tile_base<TILE_BYTES_BF16, 64, true> {
    __device__ __forceinline__ void begin(const uint8_t *t, int lane)
    {
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, uint32_t (&a)[16]) const
    {
#pragma unroll
        for (int n = 0; n < 4; n++) {
            uint4 w4 = *(const uint4 *)(t + n * 512 + lane * 16);
            uint32_t w[4] = {w4.x, w4.y, w4.z, w4.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[4 * n + i] = as_bits(__floats2half2_rn(
                    fminf(fmaxf(__uint_as_float(w[i] << 16), -65504.0f), 65504.0f),
                    fminf(fmaxf(__uint_as_float(w[i] & 0xffff0000u), -65504.0f), 65504.0f)));
        }
    }
};

#endif
