/* The plain matrix product: unpack a row, a sparse one with its zeros, multiply, sum up in double. */
#include "backend/ref/ref.h"
#include "tensor/sparse.h"

static uint64_t scratch_bytes(int64_t n_cols, int64_t n_tokens)
{
    return 4 * (uint64_t)n_cols;
}

static void unpack(const weight *w, int64_t row, float *out)
{
    if (dtype_is_sparse(w->type))
        sparse_unpack_row(sparse_kind_of(w->type), sparse_panel(w->data, row / SPARSE_PANEL),
                          w->n_cols, (int)(row % SPARSE_PANEL), out);
    else
        unpack_row(w->type, w->data + (uint64_t)row * row_bytes(w->type, w->n_cols), w->n_cols,
                   out);
}

static void rows(const weight *w, int64_t row_begin, int64_t row_end, const uint8_t *x,
                 uint64_t x_stride, int64_t n_tokens, float *out, int64_t out_stride,
                 uint8_t *scratch)
{
    float *values = (float *)scratch;
    for (int64_t row = row_begin; row < row_end; row++) {
        unpack(w, row, values);
        for (int64_t t = 0; t < n_tokens; t++) {
            const float *xt = (const float *)(x + (uint64_t)t * x_stride);
            double sum = 0;
            for (int64_t i = 0; i < w->n_cols; i++)
                sum += (double)values[i] * xt[i];
            out[t * out_stride + row - row_begin] = (float)sum;
        }
    }
}

const matmul_impl matmul_rows_ref = {
    .name = "ref", .act = ACT_F32, .scratch_bytes = scratch_bytes, .rows = rows};

const matmul_impl matmul_sparse_ref = {
    .name = "sparse ref", .act = ACT_F32, .scratch_bytes = scratch_bytes, .rows = rows};
