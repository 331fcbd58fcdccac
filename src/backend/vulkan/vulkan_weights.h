/*
 * Weights on a device: the file's blocks, row by row, each row beginning at a multiple of 16 bytes. A
 * type that shaders do not decode is kept as f16.
 */
#ifndef LACE_BACKEND_VULKAN_VULKAN_WEIGHTS_H
#define LACE_BACKEND_VULKAN_VULKAN_WEIGHTS_H

#include "base/threads.h"
#include "tensor/dtype.h"

/* The type that stands for a type, its number in shaders (vulkan_types.def), and a row's bytes. */
dtype weights_kept_as(dtype type);
uint32_t weights_number(dtype kept);
uint64_t weights_row_bytes(dtype kept, int64_t n_cols);

/*
 * Rows [first, first + n_rows) of a matrix in a file to `out`, as `kept`. blocks: of the whole matrix.
 * workers: may be NULL. row: room for n_cols floats for each worker.
 */
typedef struct weights_job {
    dtype type, kept;
    const uint8_t *blocks;
    int64_t first, n_rows, n_cols;
    float *rows; /* [workers, n_cols] */
    uint8_t *out;
} weights_job;

lace_status weights_pack(weights_job *job, pool *workers, lace_error *err);

#endif
