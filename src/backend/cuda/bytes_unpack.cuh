/*
 * Weights in tiles (gpu_tiles.h) to bytes with one scale for each row of a tile, for int8 products.
 *
 * Every kind is levels: a weight is s u + b, where u is a small number from 0 on, and s and b belong
 * to some columns of a row. With inv = 127 / the largest magnitude that the scales of a row allow for,
 * f = 256 s inv and c = 256 (b inv + 128.5) are integers, and
 *
 *     byte = (u f + c) >> 8        stands for        (byte - 128) / inv
 *
 * Two weights are made at once, in the halves of a word: u f + c is between 0 and 65535, so nothing
 * is carried from one to the other. backend/ref/bytes_ref.c does the same, to the bit: each operation
 * on floats here is rounded by itself.
 *
 * Registers come in the order of the instruction (16 rows by 32 columns): word i of a sub-block is
 * row r + 8 (i % 2), which is how tiles lie; activations lie accordingly (bytes_store8).
 */
#ifndef LACE_KERNELS_CUDA_BYTES_UNPACK_CUH
#define LACE_KERNELS_CUDA_BYTES_UNPACK_CUH

#include "backend/cuda/batch_unpack.cuh"

/* f in the high half, c in the low half. */
UNPACK_FN uint32_t bytes_pair(float s, float b, float inv)
{
    int f = __float2int_rn(256.0f * __fmul_rn(s, inv));
    int c = __float2int_rn(256.0f * __fadd_rn(__fmul_rn(b, inv), 128.5f));
    return __byte_perm((uint32_t)c, (uint32_t)f, 0x5410);
}

UNPACK_FN float bytes_inverse(float most)
{
    return most > 1e-30f ? __fdiv_rn(127.0f, most) : 0.0f;
}

/* What all weights of a row are multiplied with. */
UNPACK_FN float bytes_unit(float most)
{
    return most > 1e-30f ? __fmul_rn(most, 1.0f / 127) : 0.0f;
}

/* The larger end of levels 0 to u. */
UNPACK_FN float bytes_most(float s, float b, float u)
{
    return fmaxf(fabsf(b), fabsf(__fadd_rn(__fmul_rn(s, u), b)));
}

/* Bytes 0, 2 and 1, 3 of a word of four levels, multiplied. */
UNPACK_FN uint32_t bytes_scale(uint32_t even, uint32_t odd, uint32_t pair)
{
    uint32_t f = (uint32_t)((int)pair >> 16), c = __byte_perm(pair, 0, 0x1010);
    return __byte_perm(even * f + c, odd * f + c, 0x7351);
}

UNPACK_FN uint32_t bytes_of_word(uint32_t u, uint32_t pair)
{
    return bytes_scale(u & 0x00ff00ffu, u >> 8 & 0x00ff00ffu, pair);
}

/* ---- Levels ---------------------------------------------------------------------------------- */

/* Four levels for each word i of both sub-blocks of step j: u[4 s + i]. */

UNPACK_FN void levels_table(const uint8_t *t, int lane, int j, uint4 table, uint32_t (&u)[8])
{
    uint4 w4 = *(const uint4 *)(t + j * 512 + lane * 16);
    uint32_t w[4] = {w4.x, w4.y, w4.z, w4.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t found[2]; /* bytes 0, 1 and bytes 2, 3: low nibble, high nibble of each */
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t v = half ? w[i] >> 16 : w[i];
            uint32_t low = __byte_perm(table.x, table.y, v & 0x7777u);
            uint32_t high = __byte_perm(table.z, table.w, v & 0x7777u);
            found[half] = __byte_perm(low, high, 0x3210u | (v & 0x8888u) >> 1);
        }
        u[i] = __byte_perm(found[0], found[1], 0x6420);
        u[4 + i] = __byte_perm(found[0], found[1], 0x7531);
    }
}

/* fp4_values + 12 */
UNPACK_FN uint4 table_fp4_levels(void)
{
    return make_uint4(0x0f0e0d0cu, 0x18141210u, 0x090a0b0cu, 0x00040608u);
}

/* iq4_values + 127 */
UNPACK_FN uint4 table_nl4_levels(void)
{
    return make_uint4(0x3e2c1700u, 0x75695c4eu, 0xa5988c80u, 0xf0d8c4b4u);
}

UNPACK_FN void levels_bytes(const uint8_t *t, int lane, int j, uint32_t (&u)[8])
{
#pragma unroll
    for (int s = 0; s < 2; s++) {
        uint4 w4 = *(const uint4 *)(t + (2 * j + s) * 512 + lane * 16);
        u[4 * s] = w4.x, u[4 * s + 1] = w4.y, u[4 * s + 2] = w4.z, u[4 * s + 3] = w4.w;
    }
}

UNPACK_FN void levels_own4(const uint8_t *t, int lane, int j, uint32_t (&u)[8])
{
    uint4 w4 = *(const uint4 *)(t + j * 512 + lane * 16);
    uint32_t w[4] = {w4.x, w4.y, w4.z, w4.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u[i] = levels_s4(w[i]);
        u[4 + i] = levels_s4(w[i] >> 16);
    }
}

UNPACK_FN void levels_own3(const uint8_t *t, int lane, int j, uint32_t (&u)[8])
{
    const uint32_t low = 0x72533101u, high = 0xffcfad8eu; /* the levels + 128 */
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 3; i++)
        w[i] = *(const uint32_t *)(t + 512 * i + 16 * lane + 4 * j);
    w[3] = (w[0] >> 3 & 0x11111111u) | (w[1] >> 2 & 0x22222222u) | (w[2] >> 1 & 0x44444444u);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t v = w[i] & 0x77777777u;
        u[i] = __byte_perm(low, high, v);
        u[4 + i] = __byte_perm(low, high, v >> 16);
    }
}

UNPACK_FN void levels_two(const uint8_t *t, int lane, int j, uint32_t (&u)[8])
{
    uint4 w4 = *(const uint4 *)(t + (j >> 1) * 512 + lane * 16);
    uint32_t w[4] = {w4.x, w4.y, w4.z, w4.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u[i] = w[i] >> 4 * (j & 1) & 0x03030303u;
        u[4 + i] = w[i] >> (4 * (j & 1) + 2) & 0x03030303u;
    }
}

UNPACK_FN void levels_five(const uint8_t *t, int lane, int j, uint32_t (&u)[8])
{
    uint4 w4 = *(const uint4 *)(t + j * 512 + lane * 16);
    uint4 f4 = *(const uint4 *)(t + 2048 + lane * 16);
    uint32_t w[4] = {w4.x, w4.y, w4.z, w4.w}, f[4] = {f4.x, f4.y, f4.z, f4.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u[i] = (w[i] & 0x0f0f0f0fu) | (f[i] >> 2 * j & 0x01010101u) << 4;
        u[4 + i] = (w[i] >> 4 & 0x0f0f0f0fu) | (f[i] >> (2 * j + 1) & 0x01010101u) << 4;
    }
}

UNPACK_FN void levels_six(const uint8_t *t, int lane, int j, uint32_t (&u)[8])
{
    uint4 w4 = *(const uint4 *)(t + j * 512 + lane * 16);
    uint2 h2 = *(const uint2 *)(t + 2048 + (j >> 1) * 512 + lane * 16 + (j & 1) * 8);
    uint32_t w[4] = {w4.x, w4.y, w4.z, w4.w}, h[2] = {h2.x, h2.y};
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t low = s ? w[i] >> 4 : w[i];
            uint32_t two = i == 0 ? h[s] << 4 : i == 1 ? h[s] << 2 : i == 2 ? h[s] : h[s] >> 2;
            u[4 * s + i] = (low & 0x0f0f0f0fu) | (two & 0x30303030u);
        }
}

/* ---- Scales ---------------------------------------------------------------------------------- */

/*
 * Kinds whose lanes share the work as in batch_unpack.cuh: lane c of four has row r + 8 (c / 2),
 * sub-blocks of parity c % 2. unit[]: of rows r and r + 8.
 */
struct bytes_parity {
    uint32_t pair[4];

    __device__ __forceinline__ void finish(const float (&s)[4], const float (&b)[4], float most,
                                           float (&unit)[2])
    {
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        const float inv = bytes_inverse(most);
#pragma unroll
        for (int j = 0; j < 4; j++)
            pair[j] = bytes_pair(s[j], b[j], inv);
        const float mine = bytes_unit(most);
        unit[0] = __shfl_sync(~0u, mine, 0, 4);
        unit[1] = __shfl_sync(~0u, mine, 2, 4);
    }

    /* Levels around zero. */
    __device__ __forceinline__ void centred(const float (&s)[4], float zero, float far,
                                            float (&unit)[2])
    {
        float b[4], most = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            b[j] = -__fmul_rn(zero, s[j]);
            most = fmaxf(most, __fmul_rn(far, fabsf(s[j])));
        }
        finish(s, b, most, unit);
    }

    /* Levels 0 to u above a least value. */
    __device__ __forceinline__ void above(const float (&s)[4], const float (&b)[4], float u,
                                          float (&unit)[2])
    {
        float most = 0;
#pragma unroll
        for (int j = 0; j < 4; j++)
            most = fmaxf(most, bytes_most(s[j], b[j], u));
        finish(s, b, most, unit);
    }

    __device__ __forceinline__ void get(int j, uint32_t (&out)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = __shfl_sync(~0u, pair[j], i, 4);
    }
};

UNPACK_FN void bytes_read_f16(const uint8_t *at, int lane, float (&s)[4])
{
    int row = (lane >> 2) + 8 * (lane >> 1 & 1), parity = lane & 1;
    uint2 d = *(const uint2 *)(at + (2 * row + parity) * 8);
    float2 a = __half22float2(as_half2(d.x)), b = __half22float2(as_half2(d.y));
    s[0] = a.x, s[1] = a.y, s[2] = b.x, s[3] = b.y;
}

/* Scales and mins of 6 bits; zero: what is taken from the scales. */
UNPACK_FN void bytes_read_k(const uint8_t *at, int lane, float zero, float (&s)[4], float (&b)[4])
{
    int r = lane >> 2, parity = lane & 1, is_second = lane >> 1 & 1;
    uint32_t d = *(const uint32_t *)(at + 8 * r + 4 * is_second);
    const uint32_t *w = (const uint32_t *)(at + 64 + (2 * r + parity) * 12);
    uint32_t x = w[0], y = w[1], z = w[2];
    uint32_t n = is_second ? __funnelshift_r(y, z, 16) : x;
    uint32_t m = is_second ? z >> 8 : __funnelshift_r(x, y, 24);
    const float2 both = __half22float2(as_half2(d));
#pragma unroll
    for (int j = 0; j < 4; j++) {
        s[j] = __fmul_rn(both.x, (float)(n >> 6 * j & 63) - zero);
        b[j] = -__fmul_rn(both.y, (float)(m >> 6 * j & 63));
    }
}

/* Kinds with groups of 16 columns: lane c has groups 4 j + c of rows r and r + 8. */
struct bytes_sixteens {
    uint32_t pair[2][4];

    __device__ __forceinline__ void finish(const float (&s)[2][4], const float (&b)[2][4],
                                           const float (&far)[2], float (&unit)[2])
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float most = fmaxf(far[i], __shfl_xor_sync(~0u, far[i], 1));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
            const float inv = bytes_inverse(most);
            unit[i] = bytes_unit(most);
#pragma unroll
            for (int j = 0; j < 4; j++)
                pair[i][j] = bytes_pair(s[i][j], b[i][j], inv);
        }
    }

    __device__ __forceinline__ void get(int lane, int j, uint32_t (&out)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = __shfl_sync(~0u, pair[i >> 1][j], 2 * (i & 1) + (lane >> 1 & 1), 4);
    }
};

/* lace's own: every lane has both halves of its rows. */
struct bytes_halves {
    uint32_t pair[2][2];

    __device__ __forceinline__ void begin(const uint8_t *at, int lane, float zero, float (&unit)[2])
    {
#pragma unroll
        for (int row = 0; row < 2; row++) {
            float s[2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t byte = at[2 * ((lane >> 2) + 8 * row) + half];
                s[half] = __uint_as_float((byte << 20) + ((127u - 28) << 23));
            }
            const float most = __fmul_rn(127.0f, fmaxf(s[0], s[1])), inv = bytes_inverse(most);
            unit[row] = bytes_unit(most);
#pragma unroll
            for (int half = 0; half < 2; half++)
                pair[row][half] = bytes_pair(s[half], -__fmul_rn(zero, s[half]), inv);
        }
    }

    __device__ __forceinline__ void get(int j, uint32_t (&out)[4]) const
    {
        out[0] = out[1] = j < 2 ? pair[0][0] : pair[0][1];
        out[2] = out[3] = j < 2 ? pair[1][0] : pair[1][1];
    }
};

/* a[4 s + i]; pair[2 * (row r or r + 8) + sub-block]. */
UNPACK_FN void bytes_scale_all(const uint32_t (&u)[8], const uint32_t (&pair)[4], uint32_t *a)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        a[i] = bytes_of_word(u[i], pair[2 * (i & 1) + (i >> 2)]);
}

/* Nibbles of the step without a byte for each in between. */
UNPACK_FN void bytes_nibbles(const uint8_t *t, int lane, int j, const uint32_t (&pair)[4],
                             uint32_t *a)
{
    uint4 w4 = *(const uint4 *)(t + j * 512 + lane * 16);
    uint32_t w[4] = {w4.x, w4.y, w4.z, w4.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t mask = 0x000f000fu;
        a[i] = bytes_scale(w[i] & mask, w[i] >> 8 & mask, pair[2 * (i & 1)]);
        a[4 + i] = bytes_scale(w[i] >> 4 & mask, w[i] >> 12 & mask, pair[2 * (i & 1) + 1]);
    }
}

/* ---- Kinds of tiles -------------------------------------------------------------------------- */

/*
 * begin() is called once for a tile at t, and gives the units of rows r and r + 8; step() makes 64
 * columns, number j. far: of kinds that hold types with quants of fewer bits, the largest magnitude.
 */
template <int KIND> struct byte_tile;

template <> struct byte_tile<TILE_Q4_0> {
    bytes_parity s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane, int far, float (&unit)[2])
    {
        float d[4];
        bytes_read_f16(t + 2048, lane, d);
        s.centred(d, 8, 8, unit);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, int far,
                                         uint32_t *a) const
    {
        uint32_t pair[4];
        s.get(j, pair);
        bytes_nibbles(t, lane, j, pair, a);
    }
};

template <> struct byte_tile<TILE_Q4_1> {
    bytes_parity s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane, int far, float (&unit)[2])
    {
        float d[4], m[4];
        bytes_read_f16(t + 2048, lane, d);
        bytes_read_f16(t + 2304, lane, m);
        s.above(d, m, 15, unit);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, int far,
                                         uint32_t *a) const
    {
        uint32_t pair[4];
        s.get(j, pair);
        bytes_nibbles(t, lane, j, pair, a);
    }
};

template <> struct byte_tile<TILE_Q4_K> {
    bytes_parity s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane, int far, float (&unit)[2])
    {
        float d[4], m[4];
        bytes_read_k(t + 2048, lane, 0, d, m);
        s.above(d, m, 15, unit);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, int far,
                                         uint32_t *a) const
    {
        uint32_t pair[4];
        s.get(j, pair);
        bytes_nibbles(t, lane, j, pair, a);
    }
};

template <> struct byte_tile<TILE_Q5_K> {
    bytes_parity s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane, int far, float (&unit)[2])
    {
        float d[4], m[4];
        bytes_read_k(t + 2560, lane, 0, d, m);
        s.above(d, m, 31, unit);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, int far,
                                         uint32_t *a) const
    {
        uint32_t pair[4], u[8];
        s.get(j, pair);
        levels_five(t, lane, j, u);
        bytes_scale_all(u, pair, a);
    }
};

template <> struct byte_tile<TILE_IQ4_XS> {
    bytes_parity s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane, int far, float (&unit)[2])
    {
        float d[4], m[4];
        bytes_read_k(t + 2048, lane, 32, d, m);
        s.centred(d, 127, 127, unit);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, int far,
                                         uint32_t *a) const
    {
        uint32_t pair[4], u[8];
        s.get(j, pair);
        levels_table(t, lane, j, table_nl4_levels(), u);
        bytes_scale_all(u, pair, a);
    }
};

template <> struct byte_tile<TILE_NL4> {
    bytes_parity s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane, int far, float (&unit)[2])
    {
        float d[4];
        bytes_read_f16(t + 2048, lane, d);
        s.centred(d, 127, 127, unit);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, int far,
                                         uint32_t *a) const
    {
        uint32_t pair[4], u[8];
        s.get(j, pair);
        levels_table(t, lane, j, table_nl4_levels(), u);
        bytes_scale_all(u, pair, a);
    }
};

template <> struct byte_tile<TILE_FP4> {
    bytes_parity s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane, int far, float (&unit)[2])
    {
        float d[4];
        bytes_read_f16(t + 2048, lane, d);
        s.centred(d, 12, 12, unit);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, int far,
                                         uint32_t *a) const
    {
        uint32_t pair[4], u[8];
        s.get(j, pair);
        levels_table(t, lane, j, table_fp4_levels(), u);
        bytes_scale_all(u, pair, a);
    }
};

/* Also Q5_0: far is 128 or 16. */
template <> struct byte_tile<TILE_Q8_0> {
    bytes_parity s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane, int far, float (&unit)[2])
    {
        float d[4];
        bytes_read_f16(t + 4096, lane, d);
        s.centred(d, (float)far, (float)far, unit);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, int far,
                                         uint32_t *a) const
    {
        uint32_t pair[4], u[8];
        s.get(j, pair);
        levels_bytes(t, lane, j, u);
#pragma unroll
        for (int i = 0; i < 8; i++)
            u[i] = (u[i] ^ 0x80808080u) - (128u - (uint32_t)far) * 0x01010101u;
        bytes_scale_all(u, pair, a);
    }
};

/* Q5_1: 0 to 31. */
template <> struct byte_tile<TILE_Q8_1> {
    bytes_parity s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane, int far, float (&unit)[2])
    {
        float d[4], m[4];
        bytes_read_f16(t + 4096, lane, d);
        bytes_read_f16(t + 4352, lane, m);
        s.above(d, m, 31, unit);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, int far,
                                         uint32_t *a) const
    {
        uint32_t pair[4], u[8];
        s.get(j, pair);
        levels_bytes(t, lane, j, u);
        bytes_scale_all(u, pair, a);
    }
};

/* Also Q3_K: far is 32 or 4. */
template <> struct byte_tile<TILE_Q6_K> {
    bytes_sixteens s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane, int far, float (&unit)[2])
    {
        const uint2 n2 = *(const uint2 *)(t + 3072 + 8 * lane);
        const uint32_t n[2] = {n2.x, n2.y};
        const float2 d2 = __half22float2(as_half2(*(const uint32_t *)(t + 3328 + 4 * (lane >> 2))));
        const float d[2] = {d2.x, d2.y};
        float scale[2][4], b[2][4], most[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                scale[i][j] = __fmul_rn(d[i], (float)(int8_t)(n[i] >> 8 * j));
                b[i][j] = -__fmul_rn((float)far, scale[i][j]);
                most[i] = fmaxf(most[i], fabsf(b[i][j]));
            }
        s.finish(scale, b, most, unit);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, int far,
                                         uint32_t *a) const
    {
        uint32_t pair[4], u[8];
        s.get(lane, j, pair);
        levels_six(t, lane, j, u);
#pragma unroll
        for (int i = 0; i < 8; i++)
            u[i] -= (32u - (uint32_t)far) * 0x01010101u;
        bytes_scale_all(u, pair, a);
    }
};

template <> struct byte_tile<TILE_Q2_K> {
    bytes_sixteens s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane, int far, float (&unit)[2])
    {
        const uint2 n2 = *(const uint2 *)(t + 1024 + 8 * lane);
        const uint2 d2 = *(const uint2 *)(t + 1280 + 8 * (lane >> 2));
        const uint32_t n[2] = {n2.x, n2.y};
        const float2 d[2] = {__half22float2(as_half2(d2.x)), __half22float2(as_half2(d2.y))};
        float scale[2][4], b[2][4], most[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                scale[i][j] = __fmul_rn(d[i].x, (float)(n[i] >> 8 * j & 15));
                b[i][j] = -__fmul_rn(d[i].y, (float)(n[i] >> (8 * j + 4) & 15));
                most[i] = fmaxf(most[i], bytes_most(scale[i][j], b[i][j], 3));
            }
        s.finish(scale, b, most, unit);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, int far,
                                         uint32_t *a) const
    {
        uint32_t pair[4], u[8];
        s.get(lane, j, pair);
        levels_two(t, lane, j, u);
        bytes_scale_all(u, pair, a);
    }
};

template <> struct byte_tile<TILE_S4> {
    bytes_halves s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane, int far, float (&unit)[2])
    {
        s.begin(t + 2048, lane, 128, unit);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, int far,
                                         uint32_t *a) const
    {
        uint32_t pair[4], u[8];
        s.get(j, pair);
        levels_own4(t, lane, j, u);
        bytes_scale_all(u, pair, a);
    }
};

template <> struct byte_tile<TILE_S3> {
    bytes_halves s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane, int far, float (&unit)[2])
    {
        s.begin(t + 1536, lane, 128, unit);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, int far,
                                         uint32_t *a) const
    {
        uint32_t pair[4], u[8];
        s.get(j, pair);
        levels_own3(t, lane, j, u);
        bytes_scale_all(u, pair, a);
    }
};

template <> struct byte_tile<TILE_S8> {
    bytes_halves s;
    __device__ __forceinline__ void begin(const uint8_t *t, int lane, int far, float (&unit)[2])
    {
        s.begin(t + 4096, lane, 128, unit);
    }
    __device__ __forceinline__ void step(const uint8_t *t, int lane, int j, int far,
                                         uint32_t *a) const
    {
        uint32_t pair[4], u[8];
        s.get(j, pair);
        levels_bytes(t, lane, j, u);
#pragma unroll
        for (int i = 0; i < 8; i++)
            u[i] ^= 0x80808080u;
        bytes_scale_all(u, pair, a);
    }
};

#endif
