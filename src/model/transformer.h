/*
 * Parts that many architectures share, with everything optional that some of them leave out: an
 * architecture file binds what it has and puts these together.
 */
#ifndef LACE_MODEL_TRANSFORMER_H
#define LACE_MODEL_TRANSFORMER_H

#include "model/bind.h"

/*
 * What a plain decoder is made of, layer by layer: attention and a feed-forward part, each between
 * norms. What differs in numbers is in the config.
 */
typedef struct decoder_form {
    bool lacks_norms;    /* before the two parts: norms of what they give out are enough */
    bool has_post_norms; /* of what is added to the residual stream */
    bool has_head_norms; /* of q and k; else where the file has them */
    bool shares_norm;    /* of parallel parts: both read the same norm's output */
    bool lacks_gate;     /* the feed-forward part is down(act(up(x))) */
    bool is_xielu;       /* with xIELU as activation */
    bool has_sinks;      /* a score for each head that belongs to no position */
    glu_kind act;
    const char *ffn_norm;    /* a name in place of "blk.%d.ffn_norm" */
    const char *output_norm; /* a name in place of "output_norm" */

    /* What layers of kind LAYER_RECURRENT have in place of attention; NULL: there are none. */
    lace_status (*bind_mixer)(model *m, int i, lace_error *err);
    value (*build_mixer)(const model *m, plan *p, int i, value n, const layer_memory *memory);
} decoder_form;

/* Llama: a norm before attention and one before the feed-forward network or the experts. */
extern const decoder_form llama_form;

/* ---- Binding --------------------------------------------------------------------------------- */

/* Embedding, output norm and output matrix. */
lace_status bind_ends(model *m, lace_error *err);

/* q, k, v and o of layer i, with biases where the file has them; or those of latent attention. */
lace_status bind_attention(model *m, int i, lace_error *err);

/* The matrices and norms of latent attention (latent.c). */
lace_status bind_latent_attention(model *m, int i, lace_error *err);

/* gate, up and down of layer i. */
lace_status bind_ffn(model *m, int i, lace_error *err);

/*
 * The router and the experts of layer i, with biases and scales where the file has them. The parts:
 * experts that read and write rows of another width than the model's, or that have no gate.
 */
lace_status bind_moe(model *m, int i, lace_error *err);
lace_status bind_moe_parts(model *m, int i, int64_t width, bool has_gate, lace_error *err);

/*
 * The experts of layer i that every token goes through, as wide as their tensors are, and their
 * router if there is one. They must be there if the config counts them.
 */
lace_status bind_shared_experts(model *m, int i, bool has_gate, lace_error *err);

/* Everything that such a decoder has. */
lace_status bind_decoder(model *m, const decoder_form *form, lace_error *err);
lace_status bind_decoder_layer(model *m, int i, const decoder_form *form, lace_error *err);

/* The rotary embedding, with the file's frequency factors if there are any. */
lace_status bind_rope(model *m, lace_error *err);

/* ---- Building -------------------------------------------------------------------------------- */

/* The angles that a plan's layers turn by: made once, at the start. */
typedef struct angles {
    value all;   /* of layers that see everything */
    value local; /* of layers with a window; often the same */
} angles;

angles build_angles(const model *m, plan *p);

/* Attention over the normed input n, up to and including the output matrix. */
value build_attention(const model *m, plan *p, int i, value n, angles turn,
                      const layer_memory *memory);

/* Latent attention, the same; and what its layers remember, for arch.state. */
value build_latent_attention(const model *m, plan *p, int i, value n, angles turn,
                             const layer_memory *memory);
void state_latent(const model_config *c, int32_t layer, layer_state *out);

value build_ffn(const model *m, plan *p, int i, value n, glu_kind kind);

/* The experts of layer i, how they are chosen, and their activation: for plan_moe. */
moe_params build_moe_params(const model *m, int i, glu_kind kind);

/* What the shared experts of layer i make of n. */
value build_shared_experts(const model *m, plan *p, int i, value n, glu_kind kind);

/* x += residual_scale * what the experts, chosen and shared, make of n; returns x. */
value build_moe(const model *m, plan *p, int i, value x, value n, glu_kind kind);

/* The whole plan of a decoder. */
void build_decoder(const model *m, plan *p, const layer_memory *memory, const decoder_form *form);

/* One layer of it. */
value build_decoder_layer(const model *m, plan *p, int i, value x, angles turn,
                          const layer_memory *memory, const decoder_form *form);

/* Norm of a whole row; bias may be NULL. */
value build_norm_with(const model *m, plan *p, value x, const float *scales, const float *bias);

/* Norm of a whole row. */
value build_norm(const model *m, plan *p, value x, const float *scales);

/* x += residual_scale * y, with y normed first if scales is not NULL. */
value build_residual(const model *m, plan *p, value x, value y, const float *scales);

/* Behind all layers: the last norm, the output matrix, and what is done to logits. */
void build_logits(const model *m, plan *p, value x);

#endif
