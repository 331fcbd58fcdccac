/* The plain kernels: one for every operation, written to be read. They define what is right. */
#ifndef LACE_BACKEND_REF_REF_H
#define LACE_BACKEND_REF_REF_H

#include "backend/cpu/kernels.h"
#include "tensor/codec/unpack.h"

void embed_ref(const step *s, const batch *b, const worker *w);
void gather_ref(const step *s, const batch *b, const worker *w);
void rope_table_ref(const step *s, const batch *b, const worker *w);
void rms_norm_ref(const step *s, const batch *b, const worker *w);
void quantize_ref(const step *s, const batch *b, const worker *w);
void thin_ref(const step *s, const batch *b, const worker *w);
void rotate_quantize_ref(const step *s, const batch *b, const worker *w);
void rms_norm_quantize_ref(const step *s, const batch *b, const worker *w);
void add_ref(const step *s, const batch *b, const worker *w);
void glu_ref(const step *s, const batch *b, const worker *w);
void softcap_ref(const step *s, const batch *b, const worker *w);
void route_ref(const step *s, const batch *b, const worker *w);
void rope_ref(const step *s, const batch *b, const worker *w);
void kv_write_ref(const step *s, const batch *b, const worker *w);
void rope_kv_ref(const step *s, const batch *b, const worker *w);
void attend_ref(const step *s, const batch *b, const worker *w);

/* Works on the file's blocks of every type, with f32 activations and double sums. */
extern const matmul_impl matmul_ref;
extern const matmul_impl matmul_sparse_ref; /* of the sparse types */

/* One row: act(gate) * up. */
void glu_row_ref(glu_kind kind, const float *gate, const float *up, int64_t n, float *out);

/* One row of ACT_Q8 from floats. */
void quantize_row_ref(const float *x, int64_t width, void *row);

/* Rotate one head by one row of the rope table. */
void rope_head_ref(float *head, const float *table, int32_t n_dims, bool is_neox);

#endif
