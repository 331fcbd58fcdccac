/* Products with matrices of floats on the host, by the kernels of this CPU. */
#include "backend/host_matrix.h"

#include <stdatomic.h>
#include <string.h>

#include "backend/cpu/kernels.h"

static const matmul_impl *product(void)
{
    static const matmul_impl *_Atomic chosen; /* the same whoever is first */
    const matmul_impl *impl = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!impl) {
        kernel_table table;
        kernels_init(&table, cpu_level_detect());
        impl = table.exact[DTYPE_F32];
        atomic_store_explicit(&chosen, impl, memory_order_relaxed);
    }
    return impl;
}

uint64_t host_matrix_bytes(int64_t n_rows, int64_t n_cols)
{
    const matmul_impl *impl = product();
    return impl->packed_bytes ? impl->packed_bytes(DTYPE_F32, n_rows, n_cols)
                              : (uint64_t)(n_rows * n_cols) * sizeof(float);
}

void host_matrix_pack(const float *m, int64_t n_rows, int64_t n_cols, int64_t begin, int64_t end,
                      uint8_t *out)
{
    const matmul_impl *impl = product();
    if (impl->pack)
        impl->pack(DTYPE_F32, (const uint8_t *)m, n_rows, n_cols, begin, end, out);
    else
        memcpy((float *)out + begin * n_cols, m + begin * n_cols,
               (size_t)((end - begin) * n_cols) * sizeof *m);
}

uint64_t host_matrix_scratch_bytes(int64_t n_cols, int64_t n_tokens)
{
    return matmul_scratch_bytes(product(), DTYPE_F32, n_cols, n_tokens);
}

void host_matrix_multiply(const host_matrix *a, int64_t n_rows, const float *x, int64_t x_stride,
                          int64_t n_tokens, float *out, int64_t out_stride, uint8_t *scratch)
{
    weight w = {.type = DTYPE_F32,
                .n_rows = a->n_rows,
                .n_cols = a->n_cols,
                .data = a->data,
                .impl = product()};
    w.impl->rows(&w, 0, n_rows, (const uint8_t *)x, sizeof *x * (uint64_t)x_stride, n_tokens, out,
                 out_stride, scratch);
}
