/*
 * Encoders: models whose tokens see all of their sequence, and which give hidden states, or scores
 * of a sequence. What differs between BERT and its kin is an encoder_form; binding and building are
 * the same for all.
 */
#ifndef LACE_MODEL_ENCODER_H
#define LACE_MODEL_ENCODER_H

#include "model/transformer.h"

typedef struct encoder_form {
    bool has_positions; /* a table of positions; without, q and k are rotated */
    bool norms_before;  /* norms of what attention and the feed-forward part read, and one at the
                           end; without, norms of what they have been added to */
    bool is_gated;      /* the feed-forward part has a gate */
    glu_kind activation;
} encoder_form;

/* (x - mean) / deviation, times scales, plus bias. */
typedef struct encoder_norm {
    const float *scales; /* [n_embd], or NULL: there is no norm */
    const float *bias;   /* [n_embd], or NULL */
} encoder_norm;

/* A layer's weights beside those of model_layer. */
typedef struct encoder_layer {
    encoder_norm attn, ffn;                       /* before, or behind; see the form */
    const float *gate_bias, *up_bias, *down_bias; /* or NULL */
} encoder_layer;

struct encoder_parts {
    weight positions;               /* [n_context, n_embd] */
    weight segments;                /* [n_segments, n_embd], or no rows */
    encoder_norm embedding, output; /* output: of forms with norms before */
    encoder_layer *layers;          /* [n_layers] */
    weight head;                    /* [n_embd, n_embd], or no rows */
    const float *head_bias;
    weight scores; /* [n_classes, n_embd], or no rows */
    const float *scores_bias;
};

/* Room for what its layers have; and one layer, bound and built. */
lace_status encoder_create_parts(model *m, lace_error *err);
lace_status encoder_bind_layer(model *m, int i, const encoder_form *f, lace_error *err);
value encoder_build_layer(const model *m, plan *p, int i, value x, angles turn,
                          const layer_memory *memory, const encoder_form *f);

/* Names end in .weight and .bias; the bias may be missing. layer -1: outside of layers. */
lace_status encoder_bind_norm(model *m, encoder_norm *out, int layer, const char *name,
                              lace_error *err);
value encoder_build_norm(const model *m, plan *p, value x, const encoder_norm *n);

/* Keys that encoders have in GGUF files; for arch.read. */
lace_status encoder_read(const config_source *s, model_config *c);

lace_status encoder_bind(model *m, const encoder_form *f, lace_error *err);

void encoder_build(const model *m, plan *p, const layer_memory *memory, const encoder_form *f);

/* Sequences end with their batch, so nothing falls out of a window before. */
void encoder_state(const model_config *c, int32_t layer, layer_state *out);

#endif
