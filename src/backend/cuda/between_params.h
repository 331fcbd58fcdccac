/* Parameters of what lies between two batched products (batch_norm.cu); read by C and by CUDA. */
#ifndef LACE_BACKEND_CUDA_BETWEEN_PARAMS_H
#define LACE_BACKEND_CUDA_BETWEEN_PARAMS_H

#include "backend/cuda/gpu_params.h"

/* Rows of numbers that are the sums of parts, or one part that is the rows themselves. */
typedef struct batch_sum {
    const float *parts;
    const float *bias;  /* or NULL */
    int64_t stride;     /* from part to part */
    int64_t row_stride; /* from row to row */
    int32_t n_parts;    /* 0: there is nothing */
} batch_sum;

/* x += added; y = x normed by whole rows and multiplied with weight; and y as atoms or slabs. */
typedef struct batch_norm {
    float *x, *y;
    int64_t x_stride, y_stride;
    batch_sum added;
    const float *weight;
    uint8_t *atoms; /* or NULL */
    float *scales;  /* of the atoms, as in batch_atoms */
    uint8_t *slabs; /* or these (small_batch_params.h), of up to 8 rows; or NULL */
    float eps;
    int32_t width, n_rows, n_k64, is_half;
} batch_norm;

/* Heads of q and k are turned; q goes to r.q, k and v to the cache, which is F16. */
typedef struct batch_rope {
    gpu_rope r;
    batch_sum q, k, v;
} batch_rope;

#endif
