/*
 * The numbers that define a model, from the metadata of any format, all checked: whoever reads a
 * config may divide by its fields and use them as sizes.
 */
#ifndef LACE_MODEL_CONFIG_H
#define LACE_MODEL_CONFIG_H

#include "base/status.h"
#include "formats/gguf.h"
#include "ops/route_rule.h"

enum {
    CONFIG_MAX_LAYERS = 512,
    CONFIG_MAX_HEADS = 1024,
    CONFIG_MAX_HEAD_DIM = 1024,
    CONFIG_MAX_WIDTH = 1 << 20, /* n_embd, n_ff, n_heads * head_dim */
    CONFIG_MAX_VOCAB = 1 << 22,
    CONFIG_MAX_CONTEXT = 1 << 27,
    CONFIG_MAX_EXPERTS = 4096,
    CONFIG_MAX_TAPS = 64,    /* of a short convolution */
    CONFIG_MAX_STATE = 4096, /* of a head of a state space */
    CONFIG_MAX_SEGMENTS = 1 << 16,
    CONFIG_MAX_CLASSES = 1 << 16,
};

typedef enum rope_scaling { ROPE_PLAIN, ROPE_LINEAR, ROPE_YARN, ROPE_LONGROPE } rope_scaling;

/*
 * Rotary position embedding. llama3's frequency factors come as a tensor (GGUF) or are computed
 * (config.json); either way they are per-frequency divisors bound with the weights.
 */
typedef struct rope_config {
    int32_t n_dims; /* rotated dimensions of a head, even, <= head_dim */
    bool is_neox;   /* pairs (i, i + n_dims/2) instead of (2i, 2i + 1) */
    double base;    /* >= 2 */
    rope_scaling scaling;
    double factor;            /* positions are divided by this (linear, yarn); 1: none */
    int32_t original_context; /* yarn, longrope */
    double yarn_beta_fast, yarn_beta_slow;
    bool yarn_keeps_fractions; /* the ends of yarn's ramp are not rounded to whole pairs */
    int32_t sections[4];       /* frequencies that turn by each axis of positions; 0: by one axis */
    bool interleaves_sections; /* the axes take turns, until those of an axis are used up; what is
                                  left turns by the first */
    double attention_factor;   /* multiplies cos and sin; 0: what the method prescribes */
    double yarn_mscale_all;    /* latent attention: scores grow by its square; see latent.c */
} rope_config;

/* Latent attention: what is kept of a position is one row that all heads share. */
typedef struct latent_config {
    int32_t kv_rank;   /* values of a latent row without its rotated ones; 0: no latents */
    int32_t q_rank;    /* between the two matrices that make q; 0: there is one */
    int32_t nope_dim;  /* values of a head of q that are not rotated */
    int32_t value_dim; /* of a head, made of latents */
    bool has_halves;   /* pairs of the rope lie half of the rotated values apart */
} latent_config;

/* What a layer does with a sequence's past. */
typedef enum layer_kind {
    LAYER_ATTENTION,
    LAYER_RECURRENT, /* a state of a fixed size: the architecture knows of which kind */
    LAYER_FFN,       /* nothing */
} layer_kind;

/* Layers may differ from each other. Where the format does not say how, the architecture does. */
typedef struct layer_config {
    layer_kind kind;
    bool is_local;   /* sees a window */
    bool skips_rope; /* knows no positions */
    bool has_experts;
    bool shares_kv; /* attends to the keys and values of another layer: config_kv_layer */
    int32_t n_heads, n_kv_heads, head_dim; /* as in model_config */
    int32_t n_ff;                          /* 0: no feed-forward part */
    bool has_cutoff; /* of gates only what is above the mean by this many deviations counts */
    double cutoff;
} layer_config;

/* Layers with a state space or a short convolution. */
typedef struct ssm_config {
    int32_t n_taps;   /* of the convolution; 0: no layer has one */
    int32_t n_inner;  /* values that go through the state space: n_heads heads */
    int32_t n_heads;  /* divides n_inner */
    int32_t n_groups; /* divides n_heads: heads with the same b and c, and of the norm */
    int32_t n_state;
    double dt_min, dt_max; /* limits of time steps */
    bool norms_first;      /* the norm comes before the gate, not behind it */
    bool norms_all;        /* the norm is over all groups together */
} ssm_config;

/* Falcon-H1's factors of what matrices make; those of embeddings and logits are in model_config. */
typedef struct mup_config {
    double attention_in, key, attention_out;
    double ssm_in, ssm[5], ssm_out; /* ssm: of z, x, b, c, dt */
    double gate, down;
} mup_config;

/*
 * Recurrent layers of a gated delta net: heads that remember by the delta rule, behind a short
 * convolution. n_heads is 0 in models without.
 */
typedef struct delta_config {
    int32_t n_heads;     /* of values */
    int32_t n_key_heads; /* of queries and keys; divides n_heads */
    int32_t k_dim, v_dim;
    int32_t n_taps; /* of the convolution */
    bool is_tiled;  /* heads of values that share a key are n_key_heads apart; else side by side */
} delta_config;

/* Encoders: tokens see all of their sequence. They give hidden states, or scores, but no logits. */
typedef struct encoder_config {
    bool is_on;
    int32_t n_segments;     /* texts of a sequence that it tells apart; 0: it does not */
    int32_t n_classes;      /* that its head scores; 0: it has none */
    bool has_swiglu;        /* SiLU in its gates, where the architecture has another */
    int32_t first_position; /* row of a directory's table that is position 0 */
} encoder_config;

typedef struct model_config {
    char architecture[64]; /* general.architecture: "llama" */
    int32_t n_layers;
    int32_t n_predicting; /* layers behind them that predict further tokens; the first has an entry
                             in `layers` */
    int32_t n_embd;       /* even */
    /* Of the layers that have most of them. Where no layer attends: 1, 1 and 2. */
    int32_t n_heads, n_kv_heads; /* n_heads is a multiple of n_kv_heads */
    int32_t head_dim;            /* even; of keys */
    int32_t value_dim;           /* of values: head_dim, or architectures with ARCH_VALUE_DIM */
    int32_t n_ff;                /* 0: no layer has a feed-forward part */
    int32_t n_vocab;
    int32_t n_context; /* trained context */
    double norm_eps;
    rope_config rope;

    latent_config latent; /* if kv_rank > 0: head_dim and value_dim are of latent rows */

    layer_config layers[CONFIG_MAX_LAYERS + 1];
    int32_t window; /* positions that a local layer sees, itself included; of encoders half of it to
                       each side; 0: no windows */
    bool has_layer_kinds;    /* the format said which layers are local and which skip the rope */
    bool has_window_pattern; /* the file said which layers are local, and nothing else of them */
    bool centers_norms;      /* norms subtract the mean: LayerNorm */
    bool is_parallel;        /* attention and feed-forward part read the same residual stream */
    bool gates_attention;    /* q's matrix has as many rows more behind those of each head: a gate,
                                whose sigmoid multiplies what the head gives out */
    bool norms_each_head;    /* norms of q and k are over a head, not over all heads */
    bool head_norms_differ;  /* and each head has weights of its own */
    bool norms_after_rope;   /* q and k are rotated first */
    double rope_local_base;  /* of local layers; 0: the same as everywhere */
    bool norms_turned; /* q and k of layers with positions have a norm without weights there */
    bool windows_are_chunks; /* a local layer sees nothing before the last multiple of the window */
    int32_t rope_local_dims; /* rotated in their heads, where rope_local_base is; 0: the same */
    int32_t n_streams;       /* residual streams (AltUp); 0: one, as in most models */
    int32_t active_stream;   /* the one that layers read */
    int32_t n_embd_layer; /* values of a token's second embedding for each layer; 0: it has none */

    /* Factors that most models leave at 1. */
    double embedding_scale;   /* multiplies embeddings */
    double residual_scale;    /* multiplies what is added to the residual stream */
    double logit_scale;       /* logits are divided by it */
    double attention_scale;   /* multiplies q k; 0: 1 / sqrt(head_dim) */
    double attention_softcap; /* scores become cap * tanh(score / cap); 0: off */
    double final_softcap;     /* the same for logits */

    /* Queries times 1 + scale * ln(1 + floor((position + offset) / length)); scale 0: off. */
    double temperature_scale;
    int32_t temperature_length, temperature_offset;
    bool temperature_skips_turned; /* only in layers that know no positions */

    /* Mixture of experts; n_experts is 0 in dense models. */
    int32_t n_experts, n_experts_used;
    int32_t n_ff_expert; /* width of one expert */
    int32_t
        n_experts_shared; /* that every token goes through, as one network; 0: none, or not said */
    bool weighs_inputs;   /* a choice's weight multiplies what its expert reads */
    route_rule routing;   /* how experts are chosen and weighed; its vectors are the layers' */
    int32_t n_ff_shared;  /* width of the shared experts; 0: as their tensors say */
    int32_t n_latent;     /* width that experts read and write; 0: n_embd */

    ssm_config ssm;
    mup_config mup;   /* falcon-h1 alone */
    bool has_no_rope; /* no layer knows positions */
    delta_config delta;
    encoder_config encoder;
    lace_pooling pooling; /* that its embeddings are meant to have; LACE_POOLING_MODEL: not said */
} model_config;

/* Values of all heads of a layer: of q, and of k or v. */
static inline int64_t config_q_width(const model_config *c, int32_t layer)
{
    return (int64_t)c->layers[layer].n_heads * c->layers[layer].head_dim;
}

static inline int64_t config_kv_width(const model_config *c, int32_t layer)
{
    return (int64_t)c->layers[layer].n_kv_heads * c->layers[layer].head_dim;
}

/* What the convolution of a delta net sees: q, k and v of all heads, side by side. */
static inline int64_t config_delta_width(const delta_config *d)
{
    return 2 * (int64_t)d->n_key_heads * d->k_dim + (int64_t)d->n_heads * d->v_dim;
}

/* Whether the groups of the routing are equal and those that are used have enough experts. */
bool config_groups_fit(const model_config *c);

/*
 * The layer whose keys and values this one attends to: itself, or the last in front that has its
 * own and is local as well or is not, either.
 */
int32_t config_kv_layer(const model_config *c, int32_t layer);

/* Let the last n layers share. False: one of them has nobody, or one of another shape. */
bool config_share_kv(model_config *c, int32_t n);

/* Whether all layers have the same numbers of heads and are equally wide. */
bool config_is_uniform(const model_config *c);

/*
 * Which layers are local where the format does not say it: all but each period-th; 0: none, 1: all.
 */
void config_set_windows(model_config *c, int32_t period);

/* LACE_E_META, with the key's name, if there are no experts. */
lace_status config_need_experts(const model_config *c, lace_error *err);

/* Let the first layer that predicts be as the last that attends, with experts as the last one. */
void config_set_predicting(model_config *c);

/* Heads of latent rows, by what c->latent and c->rope say. */
void config_set_latent(model_config *c);

/* All factors 1, everything else off. */
model_config config_default(void);

/* general.architecture of a file, checked only for its letters. */
lace_status config_architecture(const gguf *g, char out[64], lace_error *err);

/*
 * Read and check a config from GGUF metadata. Any well-formed architecture name is taken; whether
 * lace knows it is for arch.c to say, which also sets rope.is_neox. n_vocab comes from vocab_size,
 * the tokens or the embedding, in this order. A failure is LACE_E_META (a key is missing or
 * impossible), LACE_E_VOCAB (no size of the vocabulary) or LACE_E_UNSUPPORTED, and names the key.
 */
lace_status config_from_gguf(const gguf *g, model_config *out, lace_error *err);

#endif
