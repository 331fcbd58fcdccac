/*
 * Which steps of a plan the fused kernels of one token stand for (lower.h): layers of known forms,
 * recognized step by step, one layer at a time. What lies between them goes step by step, with the
 * products fused that stand there (decode_steps.h).
 */
#ifndef LACE_BACKEND_CUDA_DECODE_FORM_H
#define LACE_BACKEND_CUDA_DECODE_FORM_H

#include "backend/cuda/decode_steps.h"
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
    const step *shared_glu, *shared_down; /* of a shared expert in the same launches */
    /* Attention is of a kind that the fused kernel does not know: its steps, from behind qkv up to
     * attend, are launched as they are. q_norm, k_norm and rope are NULL then. */
    bool attends_by_steps;
    bool is_attention; /* and nothing behind it: ffn_norm and all that follows are NULL */
} layer_steps;

/* Neighbouring steps of a plan: a layer of a known form, or steps one by one. */
typedef struct decode_segment {
    const step *first;
    int32_t n_steps;
    bool is_fused;
    layer_steps l; /* if it is */
} decode_segment;

typedef struct decode_form {
    const step *embed; /* NULL: of a part of a plan that begins further on */
    operand entry;     /* the residual, as embed makes it, or as it enters the part */
    const step *tables[2];
    int32_t n_begin; /* steps from the plan's first on that these are */
    decode_segment *segments;
    int32_t n_segments, n_layers; /* n_layers: segments that are fused */
    const step *steps;            /* [n_steps] the plan's */
    int32_t n_steps;
    step_form *forms; /* [n_steps] of those that are of no fused layer */
    /* The end: gather, norm, head, softcap or NULL. head is NULL if segments have them. */
    const step *gather, *final_norm, *head, *softcap;
} decode_form;

/* False if there is nothing to be fused that blocks of this card have room for. On success *out is
 * to be freed with decode_form_free. */
bool decode_form_match(const plan *p, const gpu *g, decode_form *out);
void decode_form_free(decode_form *f);

#endif
