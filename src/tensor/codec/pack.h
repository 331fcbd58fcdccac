/*
 * Encoding rows of floats as blocks, one block at a time and without looking at how values are
 * used.
 *
 * F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1 give the bytes that ggml's reference gives. Q4_K
 * and Q6_K spread each group's range evenly, which is correct but not the best one can do: they
 * make realistic blocks for tests; the quantizers in compress/ choose scales by the error they
 * leave.
 */
#ifndef LACE_TENSOR_CODEC_PACK_H
#define LACE_TENSOR_CODEC_PACK_H

#include "tensor/dtype.h"

/* x: [n_values], whole blocks. blocks: row_bytes(type, n_values) bytes at any address. */
typedef void (*pack_fn)(const float *x, int64_t n_values, void *blocks);

/* By type; NULL for the types that are not listed above. */
extern const pack_fn pack_ref[DTYPE_COUNT];

/*
 * The same for a type known to be in the table. Values should be finite: a NaN or an infinity
 * spoils its block, but nothing else.
 */
void pack_row(dtype type, const float *x, int64_t n_values, void *blocks);

#endif
