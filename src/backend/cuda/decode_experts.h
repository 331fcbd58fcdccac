/*
 * The experts of a layer for one token (backend/cuda/decode_experts.cu): router, gate and up, down,
 * three kernels whatever the number of experts.
 */
#ifndef LACE_BACKEND_CUDA_DECODE_EXPERTS_H
#define LACE_BACKEND_CUDA_DECODE_EXPERTS_H

#include "backend/cuda/decode_params.h"
#include "backend/cuda/decode_form.h"

typedef struct gpu_experts {
    gpu *g;
    cuda_queue *queue;
    cuda_kernel *router, *glu, *down;
    uint32_t down_bytes; /* shared memory of a block of down; a little more than half */
    /* On the card: */
    float *logits;    /* [n_experts] */
    decode_vector in; /* what the experts read, without the factor of its norm */
    /* Of the first of the chosen; the others follow, gpu_experts_stride apart. */
    decode_vector hidden;
    float *residual;
} gpu_experts;

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

/* Finds the kernels. */
lace_status gpu_experts_prepare(gpu_experts *e, lace_error *err);

/*
 * One layer's experts. `squares`: n_squares of the residual, whose sum norms `in`. `next` becomes
 * the residual times next_norm's weights, next_squares its squares.
 */
lace_status gpu_experts_launch(const gpu_experts *e, const layer_steps *l, const float *squares,
                               int32_t n_squares, decode_vector next, const step *next_norm,
                               float *next_squares, lace_error *err);

#endif
