/* Weights as shaders read them. */
#include "backend/vulkan/vulkan_weights.h"

#include <string.h>

#include "base/mem.h"
#include "base/numbers.h"
#include "tensor/codec/unpack.h"
#include "tensor/half.h"
#include "tensor/sparse.h"

enum { ROW_ALIGN = 16 };

/* Numbers + 1; 0: shaders do not decode it. */
static const uint8_t numbers[DTYPE_COUNT] = {
#define X(id, number) [DTYPE_##id] = (number) + 1,
#include "backend/vulkan/vulkan_types.def"
#undef X
};

dtype weights_kept_as(dtype type)
{
    return numbers[type] ? type : DTYPE_F16;
}

uint32_t weights_number(dtype kept)
{
    return numbers[kept] - 1u;
}

uint64_t weights_row_bytes(dtype kept, int64_t n_cols)
{
    return round_up(row_bytes(kept, n_cols), ROW_ALIGN);
}

bool weights_in_tiles(dtype kept, bool is_table)
{
    return !is_table && tile_pieces(kept) > 0;
}

uint64_t weights_bytes(dtype kept, bool is_table, int64_t n_rows, int64_t n_cols)
{
    if (!weights_in_tiles(kept, is_table))
        return (uint64_t)n_rows * weights_row_bytes(kept, n_cols);
    return (uint64_t)divide_up(n_rows, TILE_ROWS) * (uint64_t)tiles_across(n_cols) *
           tile_pieces(kept) * PIECE_BYTES;
}

/* A row of the file as halves, by way of worker `index`'s room. */
static const uint8_t *row_as_half(const weights_job *j, int64_t row, int index)
{
    float *values = j->rows + index * j->n_cols;
    uint8_t *out = j->half + 2 * index * j->n_cols;
    if (dtype_is_sparse(j->type))
        sparse_unpack_row(sparse_kind_of(j->type), sparse_panel(j->blocks, row / SPARSE_PANEL),
                          j->n_cols, (int)(row % SPARSE_PANEL), values);
    else
        unpack_row(j->type, j->blocks + (uint64_t)row * row_bytes(j->type, j->n_cols), j->n_cols,
                   values);
    for (int64_t i = 0; i < j->n_cols; i++) {
        uint16_t half = f16_from_f32(values[i]);
        memcpy(out + 2 * i, &half, sizeof half);
    }
    return out;
}

static const uint8_t *row_as_kept(const weights_job *j, int64_t row, int index)
{
    return j->type == j->kept ? j->blocks + (uint64_t)row * row_bytes(j->type, j->n_cols)
                              : row_as_half(j, row, index);
}

static void pack_strips(const weights_job *j, int64_t begin, int64_t end, int index)
{
    uint64_t stride = weights_bytes(j->kept, false, TILE_ROWS, j->n_cols);
    for (int64_t s = begin; s < end; s++) {
        uint8_t *strip = j->out + (uint64_t)s * stride;
        memset(strip, 0, stride);
        for (int64_t i = s * TILE_ROWS; i < min_i64((s + 1) * TILE_ROWS, j->n_rows); i++)
            tile_pack_row(j->kept, row_as_kept(j, j->first + i, index), j->n_cols,
                          (int)(i % TILE_ROWS), strip);
    }
}

static void pack_share(void *arg, int index, int count)
{
    const weights_job *j = arg;
    int64_t begin, end;
    if (weights_in_tiles(j->kept, j->is_table)) {
        pool_share(divide_up(j->n_rows, TILE_ROWS), 1, index, count, &begin, &end);
        pack_strips(j, begin, end, index);
        return;
    }
    uint64_t stride = weights_row_bytes(j->kept, j->n_cols), n = row_bytes(j->kept, j->n_cols);
    pool_share(j->n_rows, 1, index, count, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        memcpy(j->out + (uint64_t)i * stride, row_as_kept(j, j->first + i, index), n);
}

lace_status weights_pack(weights_job *job, pool *workers, lace_error *err)
{
    size_t n = (size_t)(workers ? pool_size(workers) : 1) * (size_t)job->n_cols;
    bool is_other = job->type != job->kept;
    job->rows = is_other ? mem_alloc(n * (sizeof(float) + 2)) : NULL;
    if (is_other && !job->rows)
        return error_nomem(err, "rows of weights");
    job->half = is_other ? (uint8_t *)(job->rows + n) : NULL;
    if (workers)
        pool_run(workers, pack_share, job);
    else
        pack_share(job, 0, 1);
    mem_free(job->rows);
    job->rows = NULL;
    return LACE_OK;
}
