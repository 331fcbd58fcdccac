/* The plain matrix product: unpack a row, multiply, sum up in double. */
#include "backend/ref/ref.h"

static uint64_t scratch_bytes(int64_t n_cols, int64_t n_tokens)
{
    return 4 * (uint64_t)n_cols;
}

static void rows(const weight *w, int64_t row_begin, int64_t row_end, const uint8_t *x,
                 uint64_t x_stride, int64_t n_tokens, float *out, int64_t out_stride,
                 uint8_t *scratch)
{
    float *values = (float *)scratch;
    uint64_t stride = row_bytes(w->type, w->n_cols);
    for (int64_t row = row_begin; row < row_end; row++) {
        unpack_row(w->type, w->data + (uint64_t)row * stride, w->n_cols, values);
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
