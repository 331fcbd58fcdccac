/* Parameters of int8 products; read by C and by CUDA. */
#ifndef LACE_BACKEND_CUDA_BYTES_PARAMS_H
#define LACE_BACKEND_CUDA_BYTES_PARAMS_H

#include "backend/cuda/batch_params.h"
#include "backend/cuda/between_params.h"

/* Of products on cards with wgmma (matmul_bytes_groups.cu). */
enum {
    BYTES_CHUNK = 128,      /* tokens of a stage of activations, 256 columns of each */
    BYTES_BLOCK_ROWS = 128, /* of weights */
    BYTES_WEIGHTS = BYTES_BLOCK_ROWS * 256,
    BYTES_STAGES = 6, /* of both, which take as much */
    BYTES_SHARED = BYTES_STAGES * (BYTES_WEIGHTS + 8 * BYTES_CHUNK) + 1024
};

typedef struct bytes_matmul {
    batch_matmul m;        /* x: atoms of bytes, bytes_common.cuh; x_scales: ones */
    const float *units;    /* of the activations, as batch_bytes has it */
    int32_t far[3];        /* the largest magnitude of a weight's quants (bytes_unpack.cuh) */
    uint8_t *weight_atoms; /* [blocks][n_tiles][BYTES_WEIGHTS], written by bytes_weights_* */
    float *weight_units;   /* [blocks][n_tiles][BYTES_BLOCK_ROWS] */
} bytes_matmul;

/* Rows of f32 to atoms of int8, each 256 columns of a row by themselves: bytes_common.cuh. */
typedef struct batch_bytes {
    const float *x;
    const int32_t *map; /* as batch_atoms has it */
    uint8_t *out;
    float
        *units;  /* [n_k256][n_rows, in whole 8s][2] the unit, and -128 units times the row's sum */
    float *ones; /* [n_rows] written here, too: sums are scaled already */
    int64_t x_stride;
    int32_t width, n_rows;
    int32_t rotates;
} batch_bytes;

/* A norm that leaves its rows as such atoms. */
typedef struct batch_norm_bytes {
    batch_norm n; /* atoms, slabs: NULL */
    uint8_t *out;
    float *units, *ones;
} batch_norm_bytes;

#endif
