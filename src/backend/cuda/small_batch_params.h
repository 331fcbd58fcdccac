/*
 * Products of a few tokens, up to 8 (small_batch_product.cu): parameters and the form of activations; read
 * by C and by CUDA. Strides are in floats.
 *
 * Activations are "slabs", one for 256 columns of up to 8 tokens, each value as two int8 as one
 * token has them (gpu_tiles.h), but with one scale for the 256 values of a token:
 *
 *     at 512 s + 16 (4 token + c)   columns 32 s + 8 c to + 7: high[8], low[8]
 *     at 4096 + 8 (4 token + c)     sums of columns 64 c to + 31 and 64 c + 32 to + 63, divided by
 *                                   32, as the sum of two f16: first[2], rest[2]
 *     at 4352 + 4 token             scale; x = scale * (256 high + low)
 *
 * So 16 bytes of a lane are what one mma of the high and one of the low plane take from it.
 */
#ifndef LACE_BACKEND_CUDA_SMALL_BATCH_PARAMS_H
#define LACE_BACKEND_CUDA_SMALL_BATCH_PARAMS_H

#include "backend/cuda/between_params.h"

enum {
    SMALL_TOKENS = 8,
    SMALL_COLS = 256,
    SMALL_SUMS_AT = 4096,
    SMALL_SCALES_AT = 4352,
    SMALL_SLAB_BYTES = 4480, /* whole lines of 128 */
    SMALL_WARPS = 16,
    SMALL_THREADS = 32 * SMALL_WARPS,
    SMALL_MAX_PLACES = 64, /* of the ring */
    SMALL_MAX_WEIGHTS = 3,
    SMALL_MAX_PARTS = 8,
    SMALL_MAX_BLOCKS = 256, /* as far as blocks_inverse divides */
    SMALL_SLOT_BYTES = 512, /* sums of 16 rows and 8 tokens */
    SMALL_X_AT = 1024       /* in shared memory, behind the barriers */
};

/* A weight, whose blocks are [n_parts][part_blocks]: parts of K, then rows. */
typedef struct small_weight {
    const uint8_t *tiles;
    const float *bias; /* or NULL; for one part alone */
    float *out;        /* a row for each token, in each part */
    int64_t part_stride;
    int32_t out_stride;
    int32_t kind, n_rows;
    int32_t first_block, part_blocks, blocks_inverse; /* 65536 / part_blocks, rounded up */
    int32_t block_rows, n_larger; /* rows of tiles of a block; the first n_larger have one more */
} small_weight;

typedef struct small_product {
    small_weight weights[SMALL_MAX_WEIGHTS];
    const uint8_t *x; /* slabs */
    int32_t n_weights, n_tiles, n_tokens;
    int32_t part_tiles;    /* tiles of a part along K, up to SMALL_WARPS */
    int32_t tiles_inverse; /* 65536 / part_tiles, rounded up */
    int32_t n_sharing;     /* warps that have the same column of tiles */
    int32_t group_rows;    /* rows of tiles whose sums meet at once: all, or a power of 2 that fits
                              into half of slot_bytes */
    int32_t slot_bytes, ring_bytes;
    int32_t adds; /* to what is in out */
    float scale;
} small_product;

/* Rows of f32 to slabs: first, or glu(first, second). All rows begin at multiples of 16 bytes. */
typedef struct small_rows {
    batch_sum first, second;
    float *out; /* the rows in f32 too; or NULL */
    int64_t out_stride;
    uint8_t *slabs;
    int32_t width, n_rows;
    int32_t glu; /* glu_kind; -1: there is no second */
} small_rows;

#endif
