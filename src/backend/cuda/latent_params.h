/* Parameters of the kernels that make keys and values of latents (latent_keys.cu); read by C and by CUDA. */
#ifndef LACE_BACKEND_CUDA_LATENT_PARAMS_H
#define LACE_BACKEND_CUDA_LATENT_PARAMS_H

#include "backend/cuda/gpu_params.h"

enum {
    LATENT_PAGE = 32, /* positions of a page of keys and values */
    LATENT_MAKE_ROWS = 128,
    LATENT_MAKE_COLS = 128,
    LATENT_MAKE_DEPTH = 64,
    LATENT_MAKE_STAGES = 3,
    LATENT_MAKE_THREADS = 256,
    LATENT_MAKE_STRIDE = 2 * LATENT_MAKE_DEPTH + 16, /* bytes of a row in shared memory */
    LATENT_MAKE_BYTES =
        LATENT_MAKE_STAGES * (LATENT_MAKE_ROWS + LATENT_MAKE_COLS) * LATENT_MAKE_STRIDE,
    LATENT_MATRIX_WARPS = 4
};

/* Matrices of heads, blockIdx.y one of them, to f16: [n_rows, n_cols], or turned. */
typedef struct latent_matrix {
    const uint8_t *tiles;
    uint64_t head_bytes; /* from one head's tiles to the next one's */
    uint16_t *out;
    int32_t n_rows, n_cols, is_turned;
} latent_matrix;

/*
 * Keys or values of some heads, [page][head][LATENT_PAGE] rows, of the positions of the sequence that
 * token0 is of.
 */
typedef struct latent_keys {
    gpu_cache cache;        /* of latents */
    const uint16_t *matrix; /* [n_heads, n_each, rank] */
    uint8_t *out;
    int32_t *table;     /* of pages, which follow each other: also made */
    uint64_t row_bytes; /* of out */
    float scale;        /* of the products */
    int32_t token0, page_shift;
    int32_t n_positions;
    int32_t n_heads, n_each; /* values of a head that are made */
    int32_t rank, n_turned;  /* values of a row of the cache: of the latent, and behind it */
} latent_keys;

#endif
