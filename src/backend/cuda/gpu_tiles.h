/* clang-format off */
/*
 * How weights and activations lie in the memory of a GPU; read by C and by CUDA.
 *
 * WEIGHTS. A matrix [n_rows, n_cols] is cut into tiles of 16 rows x 256 columns (F16 and BF16: 64
 * columns), in this order: all tiles of rows 0..15, then all of rows 16..31, and so on. Rows and
 * columns that are missing in the last tiles are filled with weights that are zero. A tile's bytes
 * are in the order in which the 32 lanes of a warp feed mma instructions: with r = lane / 4 and
 * c = lane % 4, word i of a lane's 16 bytes belongs to row r + 8 * (i & 1).
 *
 *   Kinds for mma.m16n8k32 (int8); a sub-block s is 32 columns, byte b of word i is column
 *   k = 32 s + 8 c + 4 (i / 2) + b of the tile:
 *
 *   nibbles, 2048 bytes: at 512 j + 16 lane, the low nibble is s = 2j, the high one s = 2j + 1
 *   bytes,   4096 bytes: at 512 s + 16 lane
 *
 *   what follows the quants ("parity" p = 0, 1: the sub-blocks s = 2j + p, j = 0..3):
 *
 *   Q4_0  2304  at 2048: [16 rows][2 p][4 j] f16 scales; a weight is scale * (q - 8)
 *   NL4   2304  as Q4_0; a weight is scale * iq4_values[q]. IQ4_NL
 *   FP4   2304  as Q4_0; a weight is scale * fp4_values[q]. MXFP4 (scales outside of f16 do not
 *               occur in models; they are refused at load)
 *   Q4_1  2560  as Q4_0, then at 2304 the same for f16 mins: scale * q + min
 *   Q8_0  4352  at 4096: scales as Q4_0; scale * q, q signed. Also holds Q5_0
 *   Q8_1  4608  as Q8_0, then at 4352 the mins: scale * q + min. Holds Q5_1
 *   Q4_K  2304  at 2048: [8 r] {f16 d(r), dmin(r), d(r + 8), dmin(r + 8)}; at 2112:
 *               [8 r][2 p] 12 bytes: 48 bits for row r, then 48 for row r + 8: the 6-bit scales of
 *               j = 0..3, then the 6-bit mins of j = 0..3. A weight is d * s * q - dmin * m
 *   Q5_K  2816  nibbles, then at 2048 the fifth bits: at 2048 + 16 lane, in word i, bit 8 b + s;
 *               then at 2560 what Q4_K has at 2048
 *   IQ4_XS 2304 as Q4_K with d * (s - 32) * iq4_values[q], no mins
 *   Q2_K  1344  2 bits each: at 512 (s / 4) + 16 lane, in word i, bits 8 b + 2 (s % 4) and + 1;
 *               at 1024 + 8 lane: bytes [2: row r, r + 8][4 j] of the groups of 16 columns 4j + c,
 *               scale in the low nibble, min in the high one; at 1280 + 8 r: f16 d(r), dmin(r),
 *               d(r + 8), dmin(r + 8). A weight is d * s * q - dmin * m
 *   Q6_K  3360  low 4 bits as nibbles; high 2 bits at 2048 + 512 (s / 4) + 16 lane + 4 (s % 4) + b,
 *               bits 2i..2i+1 for word i; at 3072 + 8 lane: int8 scales [2: row r, r + 8][4 j] of
 *               the groups of 16 columns 4j + c; at 3328 + 4 r: f16 d(r), d(r + 8). Also Q3_K
 *
 *   lace's own. Behind the quants u8 [16 rows][2]: the scales of 128 columns each, as
 *   tensor/levels.h has them. A nibble of S4, N24 and M4 is a level: bits 0..2 say which of 6, 18,
 *   31, 44, 58, 75, 96, 127 it is, bit 3 that it is below zero.
 *
 *   S types are of rotated blocks of 128 values (tensor/rotate.h), so activations that meet them
 *   are rotated, too; column 8 a + b of 128 is value 16 b + a:
 *
 *   S4    2080  at 512 j + 16 lane, word i: the lane's four values of that word in sub-block 2j
 *               (the four low nibbles) and 2j + 1
 *   S8    4128  bytes: values. Also holds S2, S5 and S6, whose tables have values of a byte
 *   S3    1568  codes of S3's table, 3 bits in nibbles: word j of a lane's 16 bytes at 512 i,
 *               i = 0..2, has the codes of the lane's word i in sub-blocks 2j (the four low
 *               nibbles) and 2j + 1; the nibbles' fourth bits are bits i of the codes of word 3
 *   N24   1568  2 of each 4 columns, not rotated, as mma.sp.m16n8k64 wants them. At 512 (j / 2) +
 *               16 lane, word 2 (j % 2) + h has columns 64 j + 32 h + 8 c to + 7: the four values
 *               of row r there in the low nibbles, of row r + 8 in the high ones. At 1024 + 16
 *               lane, word j: the places of values in their fours, 2 bits each, of row r + 8 (c %
 *               2), columns 64 j + 32 (c / 2) to + 31
 *   M4    2080  as S4, but not rotated, and with zeros, which have the nibble of 6: matrices that
 *               have a 6 anywhere are kept as Q8_0 (gpu_holds_m4). Pruning by size leaves none
 *
 *   Kinds for mma.m16n8k16, 2048 bytes for 64 columns: step j (16 columns) at 512 j + 16 lane; half
 *   h of word i is column 16 j + 4 c + 2 (i / 2) + h:
 *
 *   F16, BF16   no scales. F16 also holds every type that is not named here, decoded
 *
 *   F32         no tiles: rows of floats as in the file
 *
 * ACTIVATIONS that meet tiles are two numbers for each value, so that nothing is lost to speak of
 * (15 bits and more), in planes of K values, K rounded up to 256:
 *
 *   int kinds:   int8 high[K], int8 low[K]; x = d * (256 high + low)
 *   half kinds:  f16 (or bf16) high[K], low[K]; x = d * (high + low)
 *   then both:   {float d, float d_sum}[K / 16]: the scale of each group of 16, and d times the sum
 *                of its quants (of its high + low; the half kinds leave it 0)
 *
 * One mma has 8 columns of activations; for one token they hold the same values eight times over
 * with everything zero but one plane of one group each, so the products of the groups come out side
 * by side and scales are applied once. With several tokens the columns are tokens.
 */
/* clang-format on */
#ifndef LACE_BACKEND_CUDA_GPU_TILES_H
#define LACE_BACKEND_CUDA_GPU_TILES_H

#include <stdint.h>

/* X(enumerator, name, bytes of a tile, columns of a tile) */
#define TILE_LIST(X)                                                                               \
    X(F32, "f32", 0, 1)                                                                            \
    X(F16, "f16", 2048, 64)                                                                        \
    X(BF16, "bf16", 2048, 64)                                                                      \
    X(Q8_0, "q8_0", 4352, 256)                                                                     \
    X(Q8_1, "q8_1", 4608, 256)                                                                     \
    X(Q4_0, "q4_0", 2304, 256)                                                                     \
    X(Q4_1, "q4_1", 2560, 256)                                                                     \
    X(NL4, "nl4", 2304, 256)                                                                       \
    X(FP4, "fp4", 2304, 256)                                                                       \
    X(Q2_K, "q2_k", 1344, 256)                                                                     \
    X(Q4_K, "q4_k", 2304, 256)                                                                     \
    X(Q5_K, "q5_k", 2816, 256)                                                                     \
    X(IQ4_XS, "iq4_xs", 2304, 256)                                                                 \
    X(Q6_K, "q6_k", 3360, 256)                                                                     \
    X(S3, "s3", 1568, 256)                                                                         \
    X(S4, "s4", 2080, 256)                                                                         \
    X(S8, "s8", 4128, 256)                                                                         \
    X(N24, "n24", 1568, 256)                                                                       \
    X(M4, "m4", 2080, 256)

typedef enum tile_kind {
#define X(id, name, n_bytes, n_cols) TILE_##id,
    TILE_LIST(X)
#undef X
        TILE_COUNT
} tile_kind;

enum {
#define X(id, name, n_bytes, n_cols) TILE_BYTES_##id = n_bytes, TILE_COLS_##id = n_cols,
    TILE_LIST(X)
#undef X
        TILE_ROWS = 16,
    GPU_K_ALIGN = 256, /* planes of activations are as long as this divides */
    GPU_GROUP = 16     /* values that share a scale */
};

/*
 * What a tile kind multiplies with. lace's own types share a scale among more values than one block
 * of threads makes, so these travel as floats, and whoever uses them makes the planes
 * (tile_grouped.cuh). ROTATED: the floats are rotated in 16s, and lie as rotation_place has it.
 */
typedef enum gpu_act {
    GPU_ACT_F32,
    GPU_ACT_INT,
    GPU_ACT_F16,
    GPU_ACT_BF16,
    GPU_ACT_FLOATS,
    GPU_ACT_ROTATED
} gpu_act;

#endif
