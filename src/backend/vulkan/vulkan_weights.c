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

static void pack_row_as_half(const weights_job *j, int64_t row, float *values, uint8_t *out)
{
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
}

static void pack_share(void *arg, int index, int count)
{
    const weights_job *j = arg;
    int64_t begin, end;
    uint64_t stride = weights_row_bytes(j->kept, j->n_cols);
    pool_share(j->n_rows, 1, index, count, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        uint8_t *out = j->out + (uint64_t)i * stride;
        if (j->type != j->kept) {
            pack_row_as_half(j, j->first + i, j->rows + index * j->n_cols, out);
            continue;
        }
        uint64_t n = row_bytes(j->type, j->n_cols);
        memcpy(out, j->blocks + (uint64_t)(j->first + i) * n, n);
    }
}

lace_status weights_pack(weights_job *job, pool *workers, lace_error *err)
{
    int n_workers = workers ? pool_size(workers) : 1;
    job->rows = job->type == job->kept
                    ? NULL
                    : mem_alloc((size_t)n_workers * (size_t)job->n_cols * sizeof(float));
    if (job->type != job->kept && !job->rows)
        return error_nomem(err, "rows of weights");
    if (workers)
        pool_run(workers, pack_share, job);
    else
        pack_share(job, 0, 1);
    mem_free(job->rows);
    job->rows = NULL;
    return LACE_OK;
}
