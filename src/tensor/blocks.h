/*
 * The layout of a block of every type in dtype.def, as it lies in GGUF files.
 *
 * A row of a tensor is a sequence of blocks. A block holds a fixed number of values as small
 * integers, "quants", with the scales to turn them back into numbers. All structs are plain C
 * without padding, shared by the CPU's and the GPU's kernels. Multi-byte fields are little-endian;
 * f16 is a uint16_t (see half.h). In memory from a file blocks may lie at any address: copy them,
 * or know the alignment.
 *
 * In the drawings, v0 v1 ... are the values of a block in order, and a byte is drawn from its low
 * bits on the left to its high bits on the right. "q" is a quant as an unsigned number.
 */
#ifndef LACE_TENSOR_BLOCKS_H
#define LACE_TENSOR_BLOCKS_H

#include <assert.h>
#include <stdint.h>

/* BLOCK_VALUES_Q4_K == 256, BLOCK_BYTES_Q4_K == 144, and so on for every type. */
enum {
#define X(id, name, number, n_values, n_bytes) BLOCK_VALUES_##id = n_values,
#include "tensor/dtype.def"
#undef X
#define X(id, name, number, n_values, n_bytes) BLOCK_BYTES_##id = n_bytes,
#include "tensor/dtype.def"
#undef X
};

#define BLOCK_CHECK(type, id)                                                                      \
    static_assert(sizeof(type) == BLOCK_BYTES_##id, #type " disagrees with dtype.def")

/* ---- One scale for a small block ------------------------------------------------------------- */

/*
 * 4 bits: v = scale * (q - 8). All types with 32 values and 4 bits halve the block like this one:
 *
 *     quants[0]: | v0 | v16 |   quants[1]: | v1 | v17 |   ...   quants[15]: | v15 | v31 |
 */
typedef struct block_q4_0 {
    uint16_t scale; /* f16 */
    uint8_t quants[16];
} block_q4_0;
BLOCK_CHECK(block_q4_0, Q4_0);

/* 4 bits with an offset: v = scale * q + min. Quants as in Q4_0. */
typedef struct block_q4_1 {
    uint16_t scale; /* f16 */
    uint16_t min;   /* f16 */
    uint8_t quants[16];
} block_q4_1;
BLOCK_CHECK(block_q4_1, Q4_1);

/*
 * 5 bits: v = scale * (q - 16). The low 4 bits of the quants are placed as in Q4_0, the fifth bits
 * are in the order of the values:
 *
 *     high[0]: |v0|v1|v2|v3|v4|v5|v6|v7|   high[1]: |v8| ...   high[3]: ... |v31|
 */
typedef struct block_q5_0 {
    uint16_t scale; /* f16 */
    uint8_t high[4];
    uint8_t low[16];
} block_q5_0;
BLOCK_CHECK(block_q5_0, Q5_0);

/* 5 bits with an offset: v = scale * q + min. Quants as in Q5_0. */
typedef struct block_q5_1 {
    uint16_t scale; /* f16 */
    uint16_t min;   /* f16 */
    uint8_t high[4];
    uint8_t low[16];
} block_q5_1;
BLOCK_CHECK(block_q5_1, Q5_1);

/* 8 bits, signed, in order: v = scale * quants[i]. */
typedef struct block_q8_0 {
    uint16_t scale; /* f16 */
    int8_t quants[32];
} block_q8_0;
BLOCK_CHECK(block_q8_0, Q8_0);

/*
 * 1 bit for the sign: v = bit ? scale : -scale, for 128 values.
 *
 *     bits[0]: |v0|v1|v2|v3|v4|v5|v6|v7|   bits[1]: |v8| ...
 */
typedef struct block_q1_0 {
    uint16_t scale; /* f16 */
    uint8_t bits[16];
} block_q1_0;
BLOCK_CHECK(block_q1_0, Q1_0);

/*
 * 2 bits: v = scale * (q - 1), that is -1, 0, 1 or 2 times the scale, for 64 values.
 *
 *     quants[0]: | v0 | v1 | v2 | v3 |   quants[1]: | v4 | ...
 */
typedef struct block_q2_0 {
    uint16_t scale; /* f16 */
    uint8_t quants[16];
} block_q2_0;
BLOCK_CHECK(block_q2_0, Q2_0);

/* ---- Four-bit floating point ----------------------------------------------------------------- */

/*
 * 4-bit floats (e2m1: 0 0.5 1 1.5 2 3 4 6 and their negatives) times a power of two. fp4_values in
 * iq_grids.h are doubled to be whole; the scale is halved for it. Quants as in Q4_0.
 */
typedef struct block_mxfp4 {
    uint8_t exponent; /* e8m0 */
    uint8_t quants[16];
} block_mxfp4;
BLOCK_CHECK(block_mxfp4, MXFP4);

/*
 * The same 4-bit floats with a scale for each 16 of 64 values; each 16 are halved:
 *
 *     quants[0]: | v0 | v8 |  ...  quants[7]: | v7 | v15 |    quants[8]: | v16 | v24 |  ...
 */
typedef struct block_nvfp4 {
    uint8_t scales[4]; /* ue4m3 */
    uint8_t quants[32];
} block_nvfp4;
BLOCK_CHECK(block_nvfp4, NVFP4);

/* ---- Ternary --------------------------------------------------------------------------------- */

/*
 * Five numbers of {0, 1, 2} in a byte: v = scale * (t - 1). A byte b stands for the fraction b/256,
 * whose first five digits in base 3 are t0 ... t4: t_n = (uint8_t)(b * 3^n) * 3 >> 8.
 *
 *     five[m],      m < 32:  digit n is v[n*32 + m]           (v0   ... v159)
 *     five[32 + m], m < 16:  digit n is v[160 + n*16 + m]     (v160 ... v239)
 *     four[m],      m < 4:   digit n is v[240 + n*4 + m]      (v240 ... v255), 4 digits
 */
typedef struct block_tq1_0 {
    uint8_t five[48];
    uint8_t four[4];
    uint16_t scale; /* f16 */
} block_tq1_0;
BLOCK_CHECK(block_tq1_0, TQ1_0);

/*
 * 2 bits: v = scale * (q - 1). Two halves of 128 values, each in four planes of 32:
 *
 *     quants[m], m < 32:       | v[m]       | v[32 + m]  | v[64 + m]  | v[96 + m]  |
 *     quants[32 + m], m < 32:  | v[128 + m] | v[160 + m] | v[192 + m] | v[224 + m] |
 */
typedef struct block_tq2_0 {
    uint8_t quants[64];
    uint16_t scale; /* f16 */
} block_tq2_0;
BLOCK_CHECK(block_tq2_0, TQ2_0);

/* ---- 256 values with quantized scales: the K types ------------------------------------------- */

/*
 * 2 bits, 16 groups of 16 values: v = scale * s * q - min * m, with s the low and m the high 4 bits
 * of scales[group]. Quants lie in planes as in TQ2_0.
 */
typedef struct block_q2_k {
    uint8_t scales[16];
    uint8_t quants[64];
    uint16_t scale; /* f16 */
    uint16_t min;   /* f16 */
} block_q2_k;
BLOCK_CHECK(block_q2_k, Q2_K);

/*
 * 3 bits, 16 groups of 16 values: v = scale * (s - 32) * (q - 4). The low 2 bits of q lie in planes
 * as in TQ2_0; the third bit of value v is bit v/32 of high[v%32]. The 16 scales have 6 bits; byte
 * i is counted from the first named:
 *
 *     scales[0..7]:   byte i: | s[i] low 4 | s[i+8] low 4 |
 *     scales[8..11]:  byte i: | s[i] high 2 | s[i+4] high 2 | s[i+8] high 2 | s[i+12] high 2 |
 */
typedef struct block_q3_k {
    uint8_t high[32];
    uint8_t low[64];
    uint8_t scales[12];
    uint16_t scale; /* f16 */
} block_q3_k;
BLOCK_CHECK(block_q3_k, Q3_K);

/*
 * 4 bits, 8 groups of 32 values: v = scale * s * q - min * m. Each 64 values share 32 bytes:
 *
 *     quants[m], m < 32: | v[m] | v[32 + m] |    quants[32 + m]: | v[64 + m] | v[96 + m] |  ...
 *
 * The 8 scales s and the 8 mins m have 6 bits; byte i is counted from the first named:
 *
 *     scales[0..3]:   byte i: | s[i], 6 bits | s[i+4] high 2 |
 *     scales[4..7]:   byte i: | m[i], 6 bits | m[i+4] high 2 |
 *     scales[8..11]:  byte i: | s[i+4] low 4 | m[i+4] low 4 |
 */
typedef struct block_q4_k {
    uint16_t scale; /* f16 */
    uint16_t min;   /* f16 */
    uint8_t scales[12];
    uint8_t quants[128];
} block_q4_k;
BLOCK_CHECK(block_q4_k, Q4_K);

/* 5 bits: as Q4_K, and the fifth bit of value v is bit v/32 of high[v%32]. */
typedef struct block_q5_k {
    uint16_t scale; /* f16 */
    uint16_t min;   /* f16 */
    uint8_t scales[12];
    uint8_t high[32];
    uint8_t low[128];
} block_q5_k;
BLOCK_CHECK(block_q5_k, Q5_K);

/*
 * 6 bits, 16 groups of 16 values: v = scale * scales[group] * (q - 32). Two halves of 128 values;
 * the first, for m < 32 (the second uses low[64...], high[32...] for v[128...]):
 *
 *     low[m]:       | v[m] low 4      | v[64 + m] low 4 |
 *     low[32 + m]:  | v[32 + m] low 4 | v[96 + m] low 4 |
 *     high[m]:      | v[m] high 2 | v[32 + m] high 2 | v[64 + m] high 2 | v[96 + m] high 2 |
 */
typedef struct block_q6_k {
    uint8_t low[128];
    uint8_t high[64];
    int8_t scales[16];
    uint16_t scale; /* f16 */
} block_q6_k;
BLOCK_CHECK(block_q6_k, Q6_K);

/* ---- Points of a grid: the IQ types ---------------------------------------------------------- */

/*
 * These hold 8 (or 4) values at once as the number of a point in a grid (iq_grids.h), and their
 * signs. "7 signs" are those of v0 to v6 of eight; v7's makes the count of minus signs even
 * (iq_signs).
 *
 * IQ2_XXS: groups of 32 values: v = scale * (s + 0.5) / 4 * +-point. Grid iq2_xxs_grid.
 *
 *     groups[g], 8 bytes: | point of v0-7 | of v8-15 | of v16-23 | of v24-31 |
 *                         | then a uint32_t: 7 signs | 7 signs | 7 signs | 7 signs | s, 4 bits |
 */
typedef struct block_iq2_xxs {
    uint16_t scale; /* f16 */
    uint8_t groups[8][8];
} block_iq2_xxs;
BLOCK_CHECK(block_iq2_xxs, IQ2_XXS);

/*
 * Groups of 16 values: v = scale * (s + 0.5) / 4 * +-point. Grid iq2_xs_grid.
 *
 *     codes[i], for v[8i ... 8i+7]:  | point, 9 bits | 7 signs |
 *     scales[j], 32 values:          | s of the first 16 | s of the last 16 |
 */
typedef struct block_iq2_xs {
    uint16_t scale; /* f16 */
    uint16_t codes[32];
    uint8_t scales[8];
} block_iq2_xs;
BLOCK_CHECK(block_iq2_xs, IQ2_XS);

/*
 * As IQ2_XS with points of 10 bits in iq2_s_grid and a sign for each value: signs[i] for
 * v[8i ... 8i+7], bit 0 first.
 *
 *     points[i]: low 8 bits    high[j]: | high 2 bits of points[4j] | [4j+1] | [4j+2] | [4j+3] |
 */
typedef struct block_iq2_s {
    uint16_t scale; /* f16 */
    uint8_t points[32];
    uint8_t signs[32];
    uint8_t high[8];
    uint8_t scales[8];
} block_iq2_s;
BLOCK_CHECK(block_iq2_s, IQ2_S);

/*
 * Groups of 32 values: v = scale * (s + 0.5) / 2 * +-point; points of 4 values in iq3_xxs_grid.
 *
 *     points[i], for v[4i ... 4i+3]    signs[g]: a uint32_t, 4 times 7 signs and s as in IQ2_XXS
 */
typedef struct block_iq3_xxs {
    uint16_t scale; /* f16 */
    uint8_t points[64];
    uint8_t signs[8][4];
} block_iq3_xxs;
BLOCK_CHECK(block_iq3_xxs, IQ3_XXS);

/*
 * Groups of 32 values: v = scale * (2 * s + 1) * +-point; points of 4 values, 9 bits, in
 * iq3_s_grid.
 *
 *     points[i]: low 8 bits, v[4i ... 4i+3]     high[g]: bit i is the ninth of points[8g + i]
 *     signs[i]: of v[8i ... 8i+7]               scales[j]: | s of group 2j | s of group 2j+1 |
 */
typedef struct block_iq3_s {
    uint16_t scale; /* f16 */
    uint8_t points[64];
    uint8_t high[8];
    uint8_t signs[32];
    uint8_t scales[4];
} block_iq3_s;
BLOCK_CHECK(block_iq3_s, IQ3_S);

/*
 * Groups of 32 values: v = scale * (2 * s + 1) * (point +- 1/8); points of -1, 0, 1 in iq1_grid.
 *
 *     points[i]: low 8 bits, v[8i ... 8i+7]
 *     high[g]: | 3 bits of points[4g] | [4g+1] | [4g+2] | [4g+3] | s, 3 bits | minus, 1 bit |
 */
typedef struct block_iq1_s {
    uint16_t scale; /* f16 */
    uint8_t points[32];
    uint16_t high[8];
} block_iq1_s;
BLOCK_CHECK(block_iq1_s, IQ1_S);

/*
 * As IQ1_S with groups of 16 values and a choice of +-1/8 for each 8. The f16 scale of the block is
 * in pieces of 4 bits, lowest first, in the high bits of the four words of scales.
 *
 *     points[i]: low 8 bits, v[8i ... 8i+7]
 *     high[i]:   | 3 bits of points[2i] | minus | 3 bits of points[2i+1] | minus |
 *     scales[j]: | s of group 4j, 3 bits | 4j+1 | 4j+2 | 4j+3 | 4 bits of the block's scale |
 */
typedef struct block_iq1_m {
    uint8_t points[32];
    uint8_t high[16];
    uint16_t scales[4];
} block_iq1_m;
BLOCK_CHECK(block_iq1_m, IQ1_M);

/* 4 bits into a table: v = scale * iq4_values[q]. Quants as in Q4_0. */
typedef struct block_iq4_nl {
    uint16_t scale; /* f16 */
    uint8_t quants[16];
} block_iq4_nl;
BLOCK_CHECK(block_iq4_nl, IQ4_NL);

/*
 * 8 groups of 32 values: v = scale * (s - 32) * iq4_values[q]; each group's quants as in Q4_0.
 *
 *     scales_low[j]: | s[2j] low 4 | s[2j+1] low 4 |    scales_high: | s[0] high 2 | s[1] | ... |
 */
typedef struct block_iq4_xs {
    uint16_t scale; /* f16 */
    uint16_t scales_high;
    uint8_t scales_low[4];
    uint8_t quants[128];
} block_iq4_xs;
BLOCK_CHECK(block_iq4_xs, IQ4_XS);

/* ---- lace's own: rotated blocks -------------------------------------------------------------- */

/*
 * 128 values v as 128 others, u: v = unrotate(scale * u) (rotate.h), where u are numbers of a
 * table (levels.h) or, of S8, int8. Rotated values are spread like a normal distribution whatever
 * the weights are, so one table fits all; a product rotates its other factor instead.
 *
 * The scale is a float without a sign: 2^(scale / 8 - 28) * (1 + scale % 8 / 8), by integer
 * division. S8 is in order. The others have four parts of 32 values; u0 ... u31 of a part lie in
 * words of 4 bytes, in each of which byte i belongs to u[i], u[4 + i], u[8 + i] and so on. "a.b"
 * are the bits b of the code of u[4a + i], lowest first:
 *
 *     S2   | 0 | 1 | 2 | 3 |   | 4 | 5 | 6 | 7 |
 *     S3   | 0 | 1 | 6.01 |    | 2 | 3 | 7.01 |    | 4 | 5 | 6.2 | 7.2 |
 *     S4   | 0 | 4 |   | 1 | 5 |   | 2 | 6 |   | 3 | 7 |
 *     S5   | 0 | 5.012 |   | 1 | 6.012 |   | 2 | 7.012 |   | 3 | 5.34 | 6.3 |   | 4 | 7.34 | 6.4 |
 *     S6   | 0 | 6.01 |   | 1 | 6.23 |   | 2 | 6.45 |   | 3 | 7.01 |   | 4 | 7.23 |   | 5 | 7.45 |
 */
typedef struct block_s2 {
    uint8_t scale;
    uint8_t codes[4][2][4];
} block_s2;
BLOCK_CHECK(block_s2, S2);

typedef struct block_s3 {
    uint8_t scale;
    uint8_t codes[4][3][4];
} block_s3;
BLOCK_CHECK(block_s3, S3);

typedef struct block_s4 {
    uint8_t scale;
    uint8_t codes[4][4][4];
} block_s4;
BLOCK_CHECK(block_s4, S4);

typedef struct block_s5 {
    uint8_t scale;
    uint8_t codes[4][5][4];
} block_s5;
BLOCK_CHECK(block_s5, S5);

typedef struct block_s6 {
    uint8_t scale;
    uint8_t codes[4][6][4];
} block_s6;
BLOCK_CHECK(block_s6, S6);

typedef struct block_s8 {
    uint8_t scale;
    int8_t values[128];
} block_s8;
BLOCK_CHECK(block_s8, S8);

/*
 * 256 values as a stream of n bits each, the lowest bit of the first byte first. Value i is read
 * from the 16 bits that end with its own, those before the stream being given; trellis.h says which
 * number they stand for. Scale and rotation as above, of the two halves of a block.
 *
 *     stream:  | v0 | v1 | v2 | v3 | v4 | v5 | v6 | ...      T3: 3 bits each
 *                  |<-- 16 bits: v5 -->|
 */
typedef struct block_t2 {
    uint8_t scale;
    uint8_t stream[64];
} block_t2;
BLOCK_CHECK(block_t2, T2);

typedef struct block_t3 {
    uint8_t scale;
    uint8_t stream[96];
} block_t3;
BLOCK_CHECK(block_t3, T3);

typedef struct block_t4 {
    uint8_t scale;
    uint8_t stream[128];
} block_t4;
BLOCK_CHECK(block_t4, T4);

typedef struct block_t5 {
    uint8_t scale;
    uint8_t stream[160];
} block_t5;
BLOCK_CHECK(block_t5, T5);

#endif
