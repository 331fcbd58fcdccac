/*
 * Products of rows of floats with a matrix of floats, by the host's exact kernel: what sums of
 * inputs, factors and corrections are made with.
 *
 *     uint8_t *data = mem_map(host_matrix_bytes(n_rows, n_cols));
 *     host_matrix_pack(m, n_rows, n_cols, 0, n_rows, data);
 *     host_matrix a = {n_rows, n_cols, data};
 *     host_matrix_multiply(&a, n_rows, x, n_cols, n_tokens, out, n_rows, scratch);
 */
#ifndef LACE_BACKEND_HOST_MATRIX_H
#define LACE_BACKEND_HOST_MATRIX_H

#include <stdint.h>

typedef struct host_matrix {
    int64_t n_rows, n_cols;
    const uint8_t *data; /* as host_matrix_pack leaves it, 64-byte aligned */
} host_matrix;

uint64_t host_matrix_bytes(int64_t n_rows, int64_t n_cols);

/*
 * Pack rows [begin, end) of m [n_rows, n_cols] into `out`, the start of the whole. begin is a
 * multiple of 16, end too or n_rows. May be called by several threads for different rows.
 */
void host_matrix_pack(const float *m, int64_t n_rows, int64_t n_cols, int64_t begin, int64_t end,
                      uint8_t *out);

/* Scratch of a product with up to n_tokens rows. */
uint64_t host_matrix_scratch_bytes(int64_t n_cols, int64_t n_tokens);

/*
 * out[t * out_stride + r] = a[r] . x[t] for the first n_rows rows of a and n_tokens rows of x, which
 * are x_stride floats apart.
 */
void host_matrix_multiply(const host_matrix *a, int64_t n_rows, const float *x, int64_t x_stride,
                          int64_t n_tokens, float *out, int64_t out_stride, uint8_t *scratch);

#endif
