/*
 * Which steps of a plan the fused kernels of one token stand for (backend/cuda/decode_gpu.h): the plan's
 * common form, recognized step by step.
 */
#ifndef LACE_BACKEND_CUDA_DECODE_FORM_H
#define LACE_BACKEND_CUDA_DECODE_FORM_H

#include "backend/cuda/gpu.h"
#include "plan/plan.h"

/*
 * The steps of a layer, in their order; those that may be absent are NULL. Output and down are
 * added to the residual, or normed before (o_norm and o_add, down_norm and down_add). A layer has
 * either glu and down, or experts: router, route, expert_glu and expert_down.
 */
typedef struct layer_steps {
    const step *norm, *qkv, *q_norm, *k_norm, *rope, *attend, *o, *o_norm, *o_add;
    const step *ffn_norm, *glu, *down, *down_norm, *down_add;
    const step *router, *route, *expert_glu, *expert_down;
} layer_steps;

typedef struct decode_form {
    const step *embed, *tables[2], *final_norm, *head, *softcap;
    layer_steps *layers;
    int32_t n_layers;
    /* Attention is of a kind that the fused kernel does not know: its steps, from behind qkv up to
     * attend, are launched as they are. q_norm, k_norm and rope are NULL then. */
    bool attends_by_steps;
} decode_form;

/* False if the plan has another form, or blocks of this card have no room for it. On success
 * out->layers is to be freed with mem_free. */
bool decode_form_match(const plan *p, const gpu *g, decode_form *out);

#endif
