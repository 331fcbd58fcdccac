/*
 * A model: its numbers, its weights bound by name and checked for shape, and the architecture that
 * knows how to compute with them.
 *
 * Binding touches no weights. model_load packs every matrix into the layout that its kernel wants
 * and gives the file's pages back.
 */
#ifndef LACE_MODEL_MODEL_H
#define LACE_MODEL_MODEL_H

#include "base/arena.h"
#include "base/threads.h"
#include "formats/weights.h"
#include "backend/cuda/gpu.h"
#include "backend/cpu/kernels.h"
#include "state/states.h"
#include "model/config.h"
#include "plan/build.h"

typedef struct model model;

/* Keys of files that an architecture understands; see arch_keys.c for those that nobody does. */
enum {
    ARCH_EXPERTS = 1,         /* a mixture of experts */
    ARCH_WINDOW = 2,          /* layers that see a window; or it is known that they do not use it */
    ARCH_FACTORS = 4,         /* of embeddings, residuals and logits */
    ARCH_ATTENTION_SCALE = 8, /* of q k, if not 1 / sqrt(head_dim) */
    ARCH_SOFTCAPS = 16,       /* of scores and logits */
};

/* What an architecture file provides. */
typedef struct arch {
    const char *name; /* general.architecture */
    unsigned takes;   /* ARCH_...: other keys that change what is computed are refused */

    /* Complete the config with what the format does not say; may be NULL. */
    lace_status (*configure)(model_config *c, lace_error *err);

    /* Bind every weight, with the words of bind.h. */
    lace_status (*bind)(model *m, lace_error *err);

    /* What a layer remembers of a sequence. *out is keys and values of the config's heads, with its
     * window; may be NULL if that is right for all layers. */
    void (*state)(const model_config *c, int32_t layer, layer_state *out);

    /* Write the plan. memory has one entry per layer. */
    void (*build)(const model *m, plan *p, const layer_memory *memory);
} arch;

/* The architecture of that name, or NULL. */
const arch *arch_find(const char *name);

/*
 * LACE_E_UNSUPPORTED, with its name, if the file has a key that changes what is computed and that
 * the architecture does not understand. After arch.configure.
 */
lace_status arch_check_keys(const arch *a, const gguf *g, const model_config *c, lace_error *err);

/* One layer's weights. An absent matrix has impl NULL, an absent vector is NULL. */
typedef struct model_layer {
    const float *attn_norm; /* [n_embd] */
    weight wq;              /* [n_heads * head_dim, n_embd] */
    weight wk, wv;          /* [n_kv_heads * head_dim, n_embd] */
    weight wo;              /* [n_embd, n_heads * head_dim] */
    const float *bq, *bk, *bv, *bo;
    const float *q_norm, *k_norm;                /* [head_dim], or the width of all heads */
    const float *sinks;                          /* [n_heads] */
    const float *attn_post_norm, *ffn_post_norm; /* [n_embd], of what is added to the residual */

    const float *ffn_norm; /* [n_embd] */
    weight gate, up;       /* [n_ff, n_embd] */
    weight down;           /* [n_embd, n_ff] */

    weight router; /* [n_experts, n_embd] */
    const float *router_bias;
    weight *gate_experts, *up_experts;                /* [n_experts] of [n_ff_expert, n_embd] */
    weight *down_experts;                             /* [n_experts] of [n_embd, n_ff_expert] */
    const float *gate_experts_bias, *up_experts_bias; /* [n_experts, n_ff_expert] */
    const float *down_experts_bias;                   /* [n_experts, n_embd] */
} model_layer;

/* A matrix to be packed: where its blocks are, and which `weight` waits for the result. */
typedef struct model_matrix {
    weight *target;
    const tensor *source;                   /* the tensor that holds it */
    const uint8_t *blocks;                  /* its rows in that tensor */
    uint64_t offset, n_bytes;               /* in the packed memory; 0 bytes: used in place */
    uint64_t columns_offset, columns_bytes; /* there too, in columns; 0 bytes: not */
} model_matrix;

/* WEIGHTS_PACKED_LATER: in place at first, packed by and by; see model_pack_more. */
typedef enum weight_mode {
    WEIGHTS_PACKED,
    WEIGHTS_PACKED_LATER,
    WEIGHTS_IN_PLACE,
    WEIGHTS_EXACT
} weight_mode;

struct model {
    model_config config;
    const arch *arch;
    kernel_table kernels;
    weight_mode mode;
    weights *files; /* owned */
    arena memory;   /* vectors and tables */

    const tensor *embedding;  /* [n_vocab, n_embd] in the file */
    const float *output_norm; /* [n_embd] */
    weight output;            /* [n_vocab, n_embd]; may be the embedding again */
    rope_params rope;         /* of layers that see everything */
    rope_params rope_local;   /* of layers with a window */
    rope_params rope_long;    /* longrope: beyond the original context; frequencies NULL: none */
    model_layer *layers;      /* [n_layers] */
    thinning *thinnings;      /* activation sparsity (thinning.h), or NULL */

    model_matrix *matrices; /* every matrix bound */
    int32_t n_matrices, matrices_capacity;
    uint64_t packed_bytes;   /* of all matrices that are packed */
    uint64_t in_place_bytes; /* of all tensors that are used where they lie */
    uint8_t *packed;         /* NULL until loaded; on the card if there is one */
    bool is_loaded;
    int32_t n_ready;     /* WEIGHTS_PACKED_LATER: matrices that have been packed, the first ones */
    uint64_t packing_ns; /* and what that took */

    gpu *card; /* the weights' GPU, owned; NULL: the CPU */
    uint8_t
        *card_embedding; /* the embedding table there, of gpu_embedding_type; NULL until loaded */
};

/* Check and bind. Takes `files` and `card` (NULL: for the CPU), also on failure. */
lace_status model_create(weights *files, cpu_level level, weight_mode mode, gpu *card, model **out,
                         lace_error *err);
void model_free(model *m);

/* What the model's layers remember of sequences, laid out but not allocated. */
lace_status model_states(const model *m, const states_options *options, states **out,
                         lace_error *err);

/* Memory that the weights take once loaded. */
uint64_t model_weight_bytes(const model *m);

/* Pack the matrices on all workers. Does nothing the second time. */
lace_status model_load(model *m, pool *workers, lace_progress_fn on_progress, void *user,
                       lace_error *err);

/*
 * With WEIGHTS_PACKED_LATER, model_load leaves matrices in place where the results are the same to
 * the bit, and this packs a few of them: an eighth of all bytes. Call it between runs of plans;
 * when all are packed, it does nothing.
 */
void model_pack_more(model *m, pool *workers);

/* The same for a card: upload all matrices and the embedding table. model_load calls it. */
lace_status model_load_gpu(model *m, lace_progress_fn on_progress, void *user, lace_error *err);

/* Frequencies and magnitude of the rotary embedding. `factors`: [n_dims / 2] divisors, or NULL. */
lace_status rope_prepare(const rope_config *config, const float *factors, arena *memory,
                         rope_params *out, lace_error *err);

#endif
