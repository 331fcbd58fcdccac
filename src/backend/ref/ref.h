/* The plain kernels: one for every operation, written to be read. They define what is right. */
#ifndef LACE_BACKEND_REF_REF_H
#define LACE_BACKEND_REF_REF_H

#include "backend/cpu/kernels.h"
#include "tensor/codec/unpack.h"

#define X(id, name, ...) void name##_ref(const step *s, const batch *b, const worker *w);
#include "ops/ops.def"
#undef X

/* All of them. */
extern const kernel_fn kernels_ref[OP_COUNT];

/* Works on the file's blocks of every type, with f32 activations and double sums. */
extern const matmul_impl matmul_rows_ref;
extern const matmul_impl matmul_sparse_ref; /* of the sparse types */

/* One row: act(gate) * up. */
void glu_row_ref(glu_kind kind, const float *gate, const float *up, int64_t n, float *out);

/* Scratch of ROUTE's kernel. */
uint64_t route_scratch_bytes(int32_t n_experts);

/* One row of ACT_Q8 from floats. */
void quantize_row_ref(const float *x, int64_t width, void *row);

/* Rotate one head by one row of the rope table. */
void rope_head_ref(float *head, const float *table, int32_t n_dims, bool is_neox);

#endif
