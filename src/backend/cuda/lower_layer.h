/*
 * The list of one token while it is made (lower_token.c), and the layers of known forms in it. After
 * a failure all of these do nothing.
 */
#ifndef LACE_BACKEND_CUDA_LOWER_LAYER_H
#define LACE_BACKEND_CUDA_LOWER_LAYER_H

#include "backend/cuda/decode_room.h"
#include "backend/cuda/lower.h"

/* While a list is made. */
typedef struct lowering {
    const gpu *g;
    bool is_exact;           /* gpu_job */
    const gpu_batch *tables; /* where the page tables are */
    const decode_form *f;
    const decode_layout *m;
    product_room room, room_any; /* of products; of those that may make their input */
    token_list *out;
    int32_t n_squares;  /* of the residual, that who made the input of the next product left */
    bool has_late;      /* a product has let the next one begin late */
    const step *next;   /* of a segment of steps: the first that no device step stands for yet */
    lace_status status; /* the first failure */
    lace_error *err;
} lowering;

/* Kernels with one struct of parameters; all of them overlap. */
lace_status lower_launch_fused(const gpu_job *j, const device_step *d, lace_error *err);

/* A fused step that stands for the plan's from `first` to `last`, or for none of them if that is
 * NULL; NULL after a failure. */
device_step *lower_add(lowering *w, const char *name, const char *kernel, const step *first,
                       const step *last);

/* A step of the plan as it is. */
void lower_add_plain(lowering *w, const step *s);

/* A product that stands for the plan's steps from `first` to `last`. */
void lower_add_product(lowering *w, const char *name, const step *first, const step *last,
                       decode_product_any *p);

/* What the product s reads. */
decode_vector lower_vector(const lowering *w, vector_role role, const step *s);

/* How many blocks write the sums of squares of a product with this weight. */
int32_t lower_n_blocks(const lowering *w, const weight *of);

/* The factor of a norm, for the product behind it; NULL if it reads its input as it is. */
void lower_norm_by(const lowering *w, decode_product_any *p, const step *norm,
                   const float *squares);

/*
 * Whether the first product of segment i (the head's, behind the last of them) finds its input
 * made, by a fused layer in front of it or by the kernel that begins a token. Else lower_enter makes
 * it, for the product `at`, of what other steps have left.
 */
bool lower_is_handed_over(const lowering *w, int32_t i);
void lower_enter(lowering *w, const step *norm, const step *at, decode_vector to);

/* Steps that are of no layer of a known form, up to `end`. */
void lower_add_steps(lowering *w, const step *first, const step *end);

/* Where a layer's keys and values are, for the token that the state names. */
gpu_cache lower_cache(const lowering *w, const kv_layer *kv);

/* What a product with this step's input makes of it by itself. */
decode_input lower_input(const step *s, const step_form *f);

/* Lets a product make its input by itself. */
void lower_make_input(decode_product_any *p, const decode_input *in);

/* What lies between q k v and the output's product: one launch, or the plan's steps. */
void lower_add_attention(lowering *w, const layer_steps *l);

/* The layer that is segment i. */
void lower_add_layer(lowering *w, int32_t i);

#endif
