/*
 * Tiles: the layout that matrices of weights have in memory on every CPU level, and how they get
 * there.
 *
 * Sixteen rows make a panel. Along a panel, the 16 blocks that lie one below the other in the file
 * make one tile of exactly their size: nothing is decoded, only interleaved, so that one wide load
 * brings the same few columns of all 16 rows and a product needs no shuffles and no sums across a
 * register.
 *
 *     file:  row 0:  |block 0|block 1|block 2| ...
 *            row 1:  |block 0|block 1|block 2| ...
 *            ...
 *     packed:  panel 0:  |tile 0|tile 1|tile 2| ...
 *              panel 1:  |tile 0|tile 1|tile 2| ...
 *
 * In a tile each field of the block is cut into units of 4, 2 or 1 bytes; unit u of row r goes to
 * unit u * 16 + r. Quants are cut into words of 4 bytes:
 *
 *     a 64-byte vector:  | row 0: 4 bytes | row 1: 4 bytes | ... | row 15: 4 bytes |
 *
 * which are the quants of 4 consecutive columns, as bytes, nibbles, pairs or bits of a byte. That
 * is what vpdpbusd (zmm), vpmaddubsw (2 ymm) or sdot by lane (4 q registers) multiplies with 4
 * bytes of activations that are broadcast. Scales of 2 bytes and of 1 byte become vectors of 16.
 *
 * The matrix has the size of the file's, with the rows rounded up to 16; the rows added are zeros.
 *
 * Scales come first, and what is used together lies together, in the order of the columns: then the
 * processor's own prefetching of one stream works (2.5 times as fast for Q6_K on Zen 4 as with all
 * high bits behind all low bits).
 *
 * Tiles of 32 columns; W is a vector of words as above, "scale" and "min" are 16 halves:
 *
 *     Q4_0    scale, W[4] quants               W[i]: nibbles: columns 4i..., 16 + 4i...
 *     IQ4_NL  the same
 *     Q4_1    scale, min, W[4] quants
 *     Q5_0    scale, W high, W[4] low          high: bit g of a byte is the fifth of column 4g + i
 *     Q5_1    scale, min, W high, W[4] low
 *     Q8_0    scale, W[8] quants               bytes with 128 added: unsigned
 *     MXFP4   exponent[16] bytes, W[4] quants
 *
 * Tiles of 256 columns, 8 groups of 32; B is 16 bytes, one of each row. What one pass over the
 * columns needs is woven: for each i < 8 the words of columns 4i of every group, one after the
 * other.
 *
 *     Q2_K    B[16] scales, scale, min, W[16]  W[8h + i]: 2 bits for each group 4h + 0...3
 *     Q3_K    B[12] scales, scale, and for each i: W high: bit j for group j,
 *             W[2] low: W[h]: 2 bits for each group 4h + 0...3
 *     Q4_K    B[12] scales, scale, min, W[32]  W[8p + i]: nibbles of groups 2p and 2p + 1
 *     Q5_K    B[12] scales, scale, min, and for each i: W high: bit j for group j,
 *             W[4] low: W[p]: nibbles of groups 2p and 2p + 1
 *     Q6_K    B[16] scales, scale, and for each half h and i: W high: 2 bits for each group
 *             4h + 0...3, W[2] low: W[a]: nibbles of groups 4h + a and 4h + a + 2
 *     IQ4_XS  B[4] scales_low, scales_high, scale, W[32] quants: W[4j + i] as Q4_0, for group j
 *
 * Tiles of one column: F32, F16, BF16: the 16 values.
 *
 * Types that name points of a grid or hold digits get a code for each value instead (pack_iq.c).
 * Where there are odd numbers, a scale is unit * (2 s + 1), with s in 4 bits: in B[i % n] of n, low
 * or high by i / n. W[k] of a group are its codes: of 4 bits as in Q4_0, of 3 as in S3 (blocks.h),
 * of 2 four to a byte.
 *
 *     IQ3_*         float[16] units, B[4] odd, W[8][4] codes                           4.25 bits
 *     IQ2_*         float[16] units, B[8] odd, W[8][3] codes                           3.38
 *     IQ1_*         float[16] units, B[8] odd, W: bit j of byte e: the e-th eight
 *                   values of group j have an eighth more, not less, W[8][2] codes     2.5
 *     TQ1_0, TQ2_0  float[16] units, W[8][2] codes                                     2.13
 *     Q1_0, Q2_0    32 columns: scale, W[2] codes                                      2.5
 *     NVFP4         32 columns: scale[2], W[4] codes                                   5
 */
#ifndef LACE_BACKEND_CPU_TILES_H
#define LACE_BACKEND_CPU_TILES_H

#include "backend/cpu/kernels.h"

enum {
    TILE_ROWS = MATMUL_TILE_ROWS,
    TILE_IQ3_BYTES = 64 + 64 + 32 * 64,
    TILE_IQ2_BYTES = 64 + 128 + 24 * 64,
    TILE_IQ1_BYTES = 64 + 128 + 64 + 16 * 64,
    TILE_TQ2_BYTES = 64 + 16 * 64,
    TILE_Q2_0_BYTES = 32 + 2 * 64,
    TILE_NVFP4_BYTES = 2 * 32 + 4 * 64
};

/* matmul_impl's packed_bytes and pack for the types with a layout of their own. */
uint64_t tiles_packed_bytes(dtype type, int64_t n_rows, int64_t n_cols);
void tiles_pack_plain(dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols,
                      int64_t row_begin, int64_t row_end, uint8_t *out);
void tiles_pack_avx512(dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols,
                       int64_t row_begin, int64_t row_end, uint8_t *out);

/* The same for the types that get codes. */
uint64_t tiles_iq_packed_bytes(dtype type, int64_t n_rows, int64_t n_cols);
void tiles_iq_pack(dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols,
                   int64_t row_begin, int64_t row_end, uint8_t *out);

#endif
