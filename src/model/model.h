/*
 * A model: its numbers, its weights bound by name and checked for shape, and the architecture that
 * knows how to compute with them.
 *
 * Binding touches no weights. model_load brings every matrix to the device, in the layout that its
 * kernels want, and gives the file's pages back.
 */
#ifndef LACE_MODEL_MODEL_H
#define LACE_MODEL_MODEL_H

#include "base/arena.h"
#include "base/threads.h"
#include "formats/weights.h"
#include "backend/backend.h"
#include "state/states.h"
#include "model/config.h"
#include "plan/build.h"
#include "place/placement.h"
#include "rank/rank.h"

typedef struct model model;
typedef struct config_source config_source; /* config_source.h */
typedef struct encoder_parts encoder_parts; /* encoder.h */
typedef struct model_adapter model_adapter; /* adapters.h */
typedef struct tower_parts tower_parts;     /* tower.h */

/* Keys of files that an architecture understands; see arch_keys.c for those that nobody does. */
enum {
    ARCH_EXPERTS = 1 << 0, /* a mixture of experts */
    ARCH_WINDOW = 1 << 1,  /* layers that see a window; or it is known that they do not use it */
    ARCH_FACTORS = 1 << 2, /* of embeddings, residuals and logits */
    ARCH_ATTENTION_SCALE = 1 << 3, /* of q k, if not 1 / sqrt(head_dim) */
    ARCH_SOFTCAPS = 1 << 4,        /* of scores and logits */
    ARCH_LAYER_KINDS = 1 << 5,  /* layers without attention or feed-forward part: 0 heads, 0 wide */
    ARCH_RECURRENT = 1 << 6,    /* recurrent layers */
    ARCH_SECTIONS = 1 << 7,     /* frequencies turn by several axes of positions */
    ARCH_VALUE_DIM = 1 << 8,    /* values of another length than keys */
    ARCH_STATE_SPACE = 1 << 9,  /* the state spaces of Mamba-2 */
    ARCH_TEMPERATURE = 1 << 10, /* queries that grow warmer with the position */
    ARCH_PATTERN = 1 << 11,     /* a list of layers with a window, which other readers know too */
    ARCH_PARALLEL = 1 << 12,    /* a key for parallel parts */
    ARCH_YARN_FACTOR = 1 << 13, /* a magnitude for yarn of the file's own */
    ARCH_ENCODER = 1 << 14,     /* tokens see all of their sequence; it reads patterns of windows */
    ARCH_ROUTING = 1 << 15, /* all rules of routers, shared experts, layers without experts; with
                           ARCH_EXPERTS */
    ARCH_NEXTN = 1 << 16,   /* layers behind the last that predict further tokens */
    ARCH_LATENTS = 1 << 17, /* latent attention */
    ARCH_LAYER_SHAPES = 1 << 18, /* heads of local layers, layers that share keys and values, a
                                    second embedding for each layer */
    ARCH_STREAMS = 1 << 19,      /* residual streams, and gates that are cut off */
    ARCH_PERIOD = 1 << 20,       /* one number n: all layers but each n-th have a window. Other
                                    readers know it, too; files leave out what they assume */
};

/* What an architecture file provides. */
typedef struct arch {
    const char *name; /* general.architecture */
    unsigned takes;   /* ARCH_...: other keys that change what is computed are refused */

    /* Read keys of its own from a GGUF file, behind all others; may be NULL. */
    lace_status (*read)(const config_source *s, model_config *c);

    /* Complete the config with what the format does not say; may be NULL. */
    lace_status (*configure)(model_config *c, lace_error *err);

    /* A plain decoder (transformer.h), for what bind or build leaves NULL. */
    const struct decoder_form *form;

    /* Bind every weight, with the words of bind.h. */
    lace_status (*bind)(model *m, lace_error *err);

    /* What a layer remembers of a sequence. *out is keys and values of the config's heads, with its
     * window; may be NULL if that is right for all layers. */
    void (*state)(const model_config *c, int32_t layer, layer_state *out);

    /* Write the plan. memory has one entry per layer. */
    void (*build)(const model *m, plan *p, const layer_memory *memory);

    /* Bind one layer, where bind is not NULL and with ARCH_NEXTN (predicting.c). */
    lace_status (*bind_layer)(model *m, int layer, lace_error *err);
} arch;

/* The architecture of that name, or NULL. */
const arch *arch_find(const char *name);

/*
 * LACE_E_UNSUPPORTED, with its name, if the file has a key that changes what is computed and that
 * the architecture does not understand. After arch.configure.
 */
lace_status arch_check_keys(const arch *a, const gguf *g, const model_config *c, lace_error *err);

/*
 * A state space or a short convolution. inner: n_inner + 2 n_groups n_state; a short convolution
 * has n_embd of each.
 */
typedef struct model_ssm {
    weight gate;    /* [n_inner, n_embd]; of what comes out */
    weight in;      /* [inner, n_embd]; of what is convolved */
    weight in_gate; /* [n_embd, n_embd]; short convolutions alone */
    weight dt;      /* [n_heads, n_embd] */
    weight out;     /* [n_embd, n_inner] */
    const float *gate_bias, *in_bias, *in_gate_bias, *dt_bias_in, *out_bias;
    const float *taps;            /* [inner, n_taps] */
    const float *taps_bias;       /* [inner] */
    const float *a, *d, *dt_bias; /* [n_heads] */
    const float *norm;            /* [n_inner] */
} model_ssm;

/* A gated delta net's weights of a layer; widths as in delta_config. */
typedef struct delta_layer {
    weight qkv;         /* [config_delta_width, n_embd] */
    weight gate;        /* [n_heads * v_dim, n_embd] of what comes out */
    weight decay, beta; /* [n_heads, n_embd] each; or both in one: */
    weight beta_decay;  /* [2 * n_heads, n_embd] for each key head its betas, then its decays */
    const float *conv;  /* [config_delta_width, n_taps] */
    const float *rate;  /* [n_heads] how fast a head forgets: below 0 */
    const float *bias;  /* [n_heads] of the decays */
    const float *norm;  /* [v_dim] */
    weight out;         /* [n_embd, n_heads * v_dim] */
} delta_layer;

/* One layer's weights. An absent matrix has no rows, an absent vector is NULL. */
typedef struct model_layer {
    const float *attn_norm, *attn_norm_bias; /* [n_embd] */
    weight wq;                               /* [n_heads * head_dim, n_embd] */
    weight wk, wv;                           /* [n_kv_heads * head_dim, n_embd] */
    weight wo;                               /* [n_embd, n_heads * head_dim] */
    const float *bq, *bk, *bv, *bo;
    const float *q_norm, *k_norm, *v_norm;       /* [head_dim], or the width of all heads */
    const float *sinks;                          /* [n_heads] */
    const float *attn_post_norm, *ffn_post_norm; /* [n_embd], of what is added to the residual */

    /* Latent attention: wq reads what wq_a makes, if it is there; wk makes the latent row. */
    weight wq_a; /* [q_rank, n_embd] */
    const float *bq_a;
    const float *q_a_norm, *kv_a_norm; /* [q_rank], [kv_rank] */
    weight *k_b;                       /* [n_heads] of [kv_rank, nope_dim]: q to latents */
    weight *v_b;                       /* [n_heads] of [value_dim, kv_rank]: latents to values */

    const float *stream_norm;         /* [n_embd] of what the router of streams sees: */
    weight stream_router;             /* [n_streams, n_embd] */
    weight predict, correct;          /* [n_streams * n_streams or n_streams, n_streams] */
    weight correct_scale;             /* a table of one row: [1, n_embd] */
    weight low_rank_in, low_rank_out; /* [rank, n_embd] and [n_embd, rank], beside attention */
    const float *low_rank_norm;       /* [n_embd] */

    float output_scale;       /* multiplies what the layer gives out */
    weight second_gate;       /* [n_embd_layer, n_embd]: what it takes of a second embedding, */
    weight second_proj;       /* [n_embd, n_embd_layer] and adds to the residual, */
    const float *second_norm; /* [n_embd] normed */

    const float *ffn_norm, *ffn_norm_bias; /* [n_embd] */
    weight gate, up;                       /* [n_ff, n_embd] */
    weight down;                           /* [n_embd, n_ff] */
    const float *b_up, *b_down;
    xielu_params xielu;

    weight router; /* [n_experts, n_embd] */
    const float *router_bias;
    const float *choice_bias; /* [n_experts] of the choice alone */
    const float *router_norm,
        *experts_norm; /* [n_embd] of what they see, and of what is given by */
    const float *ffn_branch_norm, *experts_branch_norm; /* a feed-forward part and experts beside */
    const float *expert_scales;                         /* [n_experts] of the weights */
    weight *gate_experts, *up_experts;                  /* [n_experts] of [n_ff_expert, n_embd] */
    weight *down_experts;                               /* [n_experts] of [n_embd, n_ff_expert] */
    const float *gate_experts_bias, *up_experts_bias;   /* [n_experts, n_ff_expert] */
    const float *down_experts_bias;                     /* [n_experts, n_embd] */

    weight shared_gate, shared_up; /* [any width, n_embd]: experts that every token goes through */
    weight shared_down;            /* [n_embd, that width] */
    weight shared_router;          /* [1, n_embd]: a sigmoid of it multiplies their answer */
    weight latent_down, latent_up; /* [n_latent, n_embd] and back: around the experts */

    model_ssm ssm;
    delta_layer delta; /* of recurrent layers */
} model_layer;

/*
 * What predicts the token behind the next one: matrices and norms around a layer like the others,
 * layers[n_layers].
 */
typedef struct model_predicting {
    bool is_bound;
    const float *norms; /* [2 * n_embd] of a token's embedding, and of the hidden row before it */
    weight join;        /* [n_embd, 2 * n_embd] makes what the layer reads of both */
    weight table;       /* [n_vocab, n_embd] embeddings of its own; no rows: the model's */
    const float *head_norm; /* [n_embd] */
    weight head;            /* [n_vocab, n_embd] its own; no rows: the model's */
} model_predicting;

/* A matrix of the model: where its rows are in the files, and which weight is made of them. */
typedef struct model_matrix {
    weight *target;
    const tensor *source; /* the tensor that holds it */
    int64_t first_row;    /* of that tensor */
    weight_rows rows;
} model_matrix;

struct model {
    model_config config;
    const arch *arch;
    device *device;   /* that keeps the weights; owned */
    placement *where; /* which layer is on which part of the device; NULL: it is one */
    ranks *ranks;     /* who computes it together; NULL: this one alone. Borrowed */
    weights *files;   /* owned */
    arena memory;     /* vectors and tables */

    const tensor *embedding; /* [n_vocab, n_embd] in the file; NULL of a vision tower */
    weight table;            /* the same, whose rows are looked up */
    weight_rows table_rows;
    encoder_parts *encoder; /* what encoders have; else NULL */
    tower_parts *tower;     /* what vision towers have; else NULL */
    weight streams_in;      /* [(n_streams - 1) * n_embd, n_embd] makes streams behind the first */
    weight *streams_out;    /* [n_streams - 1] of [n_embd, n_embd] before they are added up */
    const float *ones;      /* [n_streams] */
    weight second_table;    /* [tokens, n_layers * n_embd_layer] a second embedding, and */
    weight second_proj;     /* [n_layers * n_embd_layer, n_embd] what the first one adds, */
    const float *second_norm;                    /* [n_embd_layer] normed for each layer */
    const float *output_norm, *output_norm_bias; /* [n_embd] */
    weight output;                               /* [n_vocab, n_embd]; may be the embedding again */
    const float *output_bias;                    /* [n_vocab], or NULL */
    weight positions;       /* [n_context, n_embd] learned ones; no rows: none */
    rope_params rope;       /* of layers that see everything */
    rope_params rope_local; /* of layers with a window */
    rope_params rope_long;  /* longrope: beyond the original context; frequencies NULL: none */
    model_layer *layers;    /* [n_layers + 1] */
    model_predicting predicting;
    sparsity_rule *sparsities; /* activation sparsity (sparsity.h), or NULL */
    model_adapter *adapters;   /* [n_adapters] LoRA adapters (adapters.h) */
    int32_t n_adapters;

    model_matrix *matrices; /* every matrix bound */
    int32_t n_matrices, matrices_capacity;
    bool is_loaded;
    int32_t n_ready; /* matrices that model_pack_more need not look at any more: the first ones */
    uint64_t packing_ns; /* and what it took so far */
};

/*
 * A model without a config: the device is opened, and `files` are the model's, unless that fails.
 * model_bind binds what the architecture that it was given says.
 */
lace_status model_create_shell(weights *files, const char *device_name, const device_options *o,
                               model **out, lace_error *err);
lace_status model_bind(model *m, lace_error *err);

/* Open the device of that name (backend.h), check and bind. Takes `files`, also on failure. */
lace_status model_create(weights *files, const char *device_name, const device_options *o,
                         model **out, lace_error *err);

/*
 * This is one of several ranks, and has its rows of each matrix alone: everything is placed again,
 * on `d` (taken, also on failure), which was opened by that name. Before anything is loaded. `together`
 * must outlive it.
 */
lace_status model_cut(model *m, const char *device_name, const device_options *o, device *d,
                      ranks *together, lace_error *err);

/*
 * Its layers are on several devices, each opened by its name: everything is placed again. Before
 * anything is loaded, and behind model_bind_predicting. May be done once more. If nothing is on a card,
 * the model is on the host alone.
 */
lace_status model_spread(model *m, const placement *where, const device_options *o,
                         lace_error *err);

/* Which of its devices the layer's states are on. */
static inline int32_t model_layer_device(const model *m, int32_t layer)
{
    if (!m->where)
        return 0;
    return layer < m->where->n_layers ? m->where->layers[layer] : m->where->output;
}

void model_free(model *m);

/* Write the plan, as arch.build says. */
void model_build(const model *m, plan *p, const layer_memory *memory);

/*
 * Bind what predicts further tokens, before the weights are loaded. LACE_E_UNSUPPORTED if the model
 * has no such layer.
 */
lace_status model_bind_predicting(model *m, lace_error *err);

/*
 * The plan of what predicts: a row is a token and, in batch.embeddings, the hidden row of the token
 * before it (plan_limits.gives_hidden). The results are logits of the token behind it, and a hidden
 * row to go on with.
 */
void model_build_predicting(const model *m, plan *p, const layer_memory *memory);

/* What the model's layers remember of sequences, laid out but not allocated. */
lace_status model_states(const model *m, const states_options *options, states **out,
                         lace_error *err);

/* Memory that the weights take once loaded. */
uint64_t model_weight_bytes(const model *m);

/* Before a session is made: a device that was lost is opened anew (device_renew). */
lace_status model_renew(model *m, lace_error *err);

/* Bring the weights to the device, with all workers. Does nothing the second time. */
lace_status model_load(model *m, pool *workers, lace_progress_fn on_progress, void *user,
                       lace_error *err);

/*
 * A device may leave matrices in place at first where the results are the same to the bit
 * (WEIGHTS_PACKED_LATER); this packs a few of them: an eighth of all bytes. Call it between runs;
 * when all are packed, it does nothing.
 */
void model_pack_more(model *m, pool *workers);

/* Frequencies and magnitude of the rotary embedding. `factors`: [n_dims / 2] divisors, or NULL. */
lace_status rope_prepare(const rope_config *config, const float *factors, arena *memory,
                         rope_params *out, lace_error *err);

#endif
