/*
 * The experts of a layer for one token (backend/cuda/decode_experts.cu): router, gate and up, down,
 * three kernels whatever the number of experts.
 */
#ifndef LACE_BACKEND_CUDA_DECODE_EXPERTS_H
#define LACE_BACKEND_CUDA_DECODE_EXPERTS_H

#include "backend/cuda/decode_params.h"
#include "backend/cuda/decode_form.h"

/* Whether the kernels can do this layer's experts on this card. */
bool gpu_experts_fit(const gpu *g, const layer_steps *l);

/* From one chosen expert's vector to the next one's, in bytes. */
uint64_t gpu_experts_stride(const layer_steps *l);

/* Shared memory that a block of down asks for, so that it is alone of its kind on a processor. */
uint32_t gpu_experts_down_bytes(const gpu *g, const layer_steps *l);

/* Weights that one token reads. */
uint64_t gpu_experts_bytes(const layer_steps *l);

/* Blocks of down, each of which writes a sum of squares. */
int32_t gpu_experts_n_blocks(const gpu *g, const layer_steps *l);

/*
 * The parameters of gate and up, of down; without vectors but for x, and without norms. Both return
 * what a block asks for. down_bytes: what a block of down does.
 */
uint32_t gpu_experts_glu(const gpu *g, const layer_steps *l, decode_vector x, uint32_t down_bytes,
                         decode_experts *out);
uint32_t gpu_experts_down(const gpu *g, const layer_steps *l, decode_vector x, uint32_t down_bytes,
                          decode_experts *out);

#endif
