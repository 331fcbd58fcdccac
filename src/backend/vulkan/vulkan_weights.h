/*
 * Weights on a device: in tiles (weight_tiles.h), or the file's blocks, row by row, each row beginning
 * at a multiple of 16 bytes. A type that shaders do not decode is kept as f16.
 */
#ifndef LACE_BACKEND_VULKAN_VULKAN_WEIGHTS_H
#define LACE_BACKEND_VULKAN_VULKAN_WEIGHTS_H

#include "backend/vulkan/weight_tiles.h"
#include "base/threads.h"

/* The type that stands for a type, its number in shaders (vulkan_types.def), and a row's bytes. */
dtype weights_kept_as(dtype type);
uint32_t weights_number(dtype kept);
uint64_t weights_row_bytes(dtype kept, int64_t n_cols);

/* Whether a matrix, or a table, lies in tiles; and the bytes that it takes. */
bool weights_in_tiles(dtype kept, bool is_table);
uint64_t weights_bytes(dtype kept, bool is_table, int64_t n_rows, int64_t n_cols);

/*
 * Rows [first, first + n_rows) of a matrix in a file to `out`, as `kept`; `first` is a multiple of
 * TILE_ROWS. blocks: of the whole matrix. workers: may be NULL.
 */
typedef struct weights_job {
    dtype type, kept;
    bool is_table;
    const uint8_t *blocks;
    int64_t first, n_rows, n_cols;
    uint8_t *out;
    float *rows;   /* [workers, n_cols] for weights_pack: values of a row that becomes halves, */
    uint8_t *half; /* and the halves */
} weights_job;

lace_status weights_pack(weights_job *job, pool *workers, lace_error *err);

#endif
