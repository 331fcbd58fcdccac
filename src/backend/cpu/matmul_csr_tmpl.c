/*
 * Products with matrices in CSR (tensor/sparse.h): activations are gathered by column. Compiled
 * once per CPU level (level.h).
 */
#include "backend/cpu/level.h"

#include "backend/cpu/cpu.h"

#include "base/bytes.h"
#include "tensor/half.h"
#include "tensor/sparse.h"

/* The n non-zeros of a row times x. */
static float dot_row(const uint8_t *columns, const uint8_t *values, int64_t n, const float *x)
{
    vf a = v_set(0), b = v_set(0);
    int64_t i = 0;
    for (; i + 2 * VW <= n; i += 2 * VW) {
        a = v_fma(v_gather(x, columns + 2 * i), v_load_f16(values + 2 * i), a);
        b = v_fma(v_gather(x, columns + 2 * (i + VW)), v_load_f16(values + 2 * (i + VW)), b);
    }
    float sum = v_sum(v_add(a, b));
    for (; i < n; i++)
        sum += x[load_u16(columns + 2 * i)] * f16_to_f32(load_u16(values + 2 * i));
    return sum;
}

static void rows(const weight *w, int64_t row_begin, int64_t row_end, const uint8_t *x,
                 uint64_t x_stride, int64_t n_tokens, float *out, int64_t out_stride,
                 uint8_t *scratch)
{
    for (int64_t row = row_begin; row < row_end; row++) {
        const uint8_t *panel = sparse_panel(w->data, row / SPARSE_PANEL);
        const uint8_t *begins = panel + 4 * (row % SPARSE_PANEL);
        uint64_t n_panel = load_u32(panel + 4 * SPARSE_PANEL);
        uint64_t begin = load_u32(begins), n = load_u32(begins + 4) - begin;
        const uint8_t *columns = panel + 4 * (SPARSE_PANEL + 1) + 2 * begin;
        const uint8_t *values = columns + 2 * n_panel;
        for (int64_t t = 0; t < n_tokens; t++)
            out[t * out_stride + row - row_begin] =
                dot_row(columns, values, (int64_t)n, (const float *)(x + (uint64_t)t * x_stride));
    }
}

const matmul_impl FN(matmul_csr) = {
    .name = "csr " LEVEL_NAME,
    .act = ACT_F32,
    .same_tokens = MATMUL_SAME_ALWAYS,
    .packed_bytes_of = matmul_sparse_packed_bytes,
    .pack = matmul_sparse_pack,
    .rows = rows,
};
