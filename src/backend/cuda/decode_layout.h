/*
 * Memory on the card that the fused kernels of one token share: vectors on their way from one to
 * the next, and what is chosen at the end.
 *
 * A vector is padded to whole tiles, and what pads it stays zero: so each length in each form has
 * memory of its own, and each kind of product that reads it (vector_role).
 */
#ifndef LACE_BACKEND_CUDA_DECODE_LAYOUT_H
#define LACE_BACKEND_CUDA_DECODE_LAYOUT_H

#include "backend/cuda/decode_form.h"
#include "backend/cuda/sample_params.h"

/* Which product reads a vector. */
typedef enum vector_role {
    FOR_QKV,
    FOR_OUTPUT,
    FOR_GLU,
    FOR_DOWN,
    FOR_EXPERTS,
    FOR_EXPERTS_DOWN, /* of the first of the chosen; the others follow, gpu_experts_stride apart */
    FOR_HEAD
} vector_role;

typedef struct layout_vector {
    vector_role role;
    int64_t n_cols;
    uint64_t n_bytes;
    decode_vector v;
} layout_vector;

typedef struct decode_layout {
    layout_vector *vectors;
    int32_t n_vectors;
    uint64_t n_bytes; /* of everything */
    /* On the card: */
    decode_state *state;
    int32_t *output; /* [1] 0: the one token's logits are wanted */
    float *residual; /* [width] the plan's own value */
    float *q, *k, *v;
    float *part_values, *part_sums; /* as decode_attention_parts has them; NULL with clusters */
    uint32_t *tickets;
    float *squares[2];  /* [processors] of the residual in front of attention, of the rest */
    float *y;           /* [width] a product's result on its way to its norm */
    float *router;      /* [experts] its logits */
    float *shared_by;   /* [1] what says how much of a shared expert is added */
    float *logits;      /* [vocabulary] of the fused head */
    decode_best *best;  /* [processors] */
    decode_best *drawn; /* [1] */
    choice_rule *rule;  /* [1] */
} decode_layout;

/* Says what there is and how much it takes. f: NULL if no layer is fused: then there are only the
 * state and the choice. Free it with decode_layout_free. */
lace_status decode_layout_init(const decode_form *f, const gpu *g, decode_layout *out,
                               lace_error *err);
void decode_layout_free(decode_layout *l);

/* Says where it is: n_bytes at `memory`, all zeros at first. */
void decode_layout_place(decode_layout *l, const decode_form *f, const gpu *g, uint8_t *memory);

/* What a product with this weight reads. */
decode_vector decode_layout_vector(const decode_layout *l, vector_role role, const weight *w);

#endif
