/*
 * Products with weights that stay where the file has them: a few panels of rows at a time are
 * packed into scratch and multiplied there by the kernel of packed weights. So every type has the
 * speed of its packed form, less what packing takes, and the same results to the bit.
 *
 * Packing reads memory at its full speed, and while kernels multiply, memory would have nothing to
 * do: two cores of Zen 4 take 4.3 ms to pack 150 MB of Q4_0 and 1.1 to multiply. So kernels ask for
 * some of what is packed next (weight.next). Not for all that there is time for: a core has 24
 * lines on their way at most, and needs most of them for what it multiplies.
 */
#ifndef LACE_BACKEND_CPU_MATMUL_IN_PLACE_H
#define LACE_BACKEND_CPU_MATMUL_IN_PLACE_H

#include "backend/cpu/kernels.h"

/* Scratch for the packed rows. */
uint64_t matmul_in_place_bytes(const matmul_impl *panels, dtype type, int64_t n_cols);

/* matmul_impl's rows, for those that have `panels`. */
void matmul_in_place_rows(const weight *w, int64_t row_begin, int64_t row_end, const uint8_t *x,
                          uint64_t x_stride, int64_t n_tokens, float *out, int64_t out_stride,
                          uint8_t *scratch);

#endif
