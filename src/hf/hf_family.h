/*
 * Families of Hugging Face directories: how each calls its tensors, and how its config.json is read.
 * Every family is a constant in one of the files family_*.c; families.def says which models are of
 * which family, and which architecture of GGUF files they are.
 *
 * Names: rows hold what follows "model.layers.3." and "blk.3.". A '*' stands for the number of an
 * expert. Two rows may take different parts of one tensor. A tensor that is not there is left out:
 * the architecture says what is missing.
 */
#ifndef LACE_HF_HF_FAMILY_H
#define LACE_HF_HF_FAMILY_H

#include "hf/config_json.h"
#include "hf/hf_recipes.h"

/* Which layers are local, where layer_types does not say it. */
typedef enum window_rule {
    WINDOW_NEVER,  /* sliding_window is not used */
    WINDOW_ALWAYS, /* every layer, if there is a window */
    WINDOW_FLAG,   /* if use_sliding_window: layers from max_window_layers on */
    WINDOW_PERIOD, /* all but each n-th layer */
} window_rule;

typedef struct name_table {
    const name_row *rows;
    size_t n_rows;
} name_table;

#define NAME_TABLE(list)                                                                           \
    {                                                                                              \
        list, sizeof list / sizeof *list                                                           \
    }

/* A family with names of its own, and keys that a reader of its own reads. */
#define FAMILY(rows, keys_read, reader)                                                            \
    .layers = NAME_TABLE(rows), .reads = keys_read, .read = reader

struct hf_family {
    name_table layers;       /* of each layer */
    const char *layer_start; /* in front of its number; NULL: "layers." */
    name_table predicting;   /* of a layer that predicts further tokens, beside `layers`; none: it
                                   has no such layers */
    const char *predicting_start; /* in front of these names, and of "layers.0." for the first such
                                     layer; NULL: they follow the other layers and their names */
    name_table ends;              /* outside of layers, the embedding first; none: llama's */
    name_table heads;             /* that never have a prefix; none: lm_head.weight */
    const char *const *ignores;   /* how names of tensors begin that are not computed with, up to a
                                   NULL; may be NULL */
    bool is_permuted; /* rows of q and k in GGUF files: pairs of the rope side by side */
    bool is_tied;     /* unless tie_word_embeddings says something else */

    window_rule window;
    int period;               /* WINDOW_PERIOD */
    const char *activation;   /* the only one that these models are computed with; NULL: silu */
    unsigned lacks;           /* HF_LACKS_...: sizes that configs may leave out */
    const char *const *reads; /* keys that change what is computed and that `read` reads, up to a
                                 NULL; other families are refused if they have them */

    /* What transformers assumes where a config is silent; may be NULL. */
    void (*set_defaults)(model_config *c);

    /* Keys of its own, behind all others; may be NULL. */
    lace_status (*read)(const source *s, hf_config *h);
};

#define HF_ANY_ACTIVATION "" /* configs do not say it, or `read` looks */

enum {
    HF_LACKS_HEADS = 1,    /* no layer attends */
    HF_LACKS_FFN = 2,      /* no layer has a feed-forward part, or `read` finds its width */
    HF_LACKS_CONTEXT = 4,  /* no limit: 2^20 */
    HF_LACKS_HEAD_DIM = 8, /* it is qk_nope_head_dim + qk_rope_head_dim */
};

/* Whether its reader reads this key. */
bool hf_family_reads(const hf_family *f, const char *key);

/* A model_type or class that lace knows: a row of families.def. */
typedef struct hf_model_type {
    const char *model_type;
    const char *class_name;   /* in "architectures" */
    const char *architecture; /* in GGUF files */
    const hf_family *family;
} hf_model_type;

/* The row of a config.json. */
lace_status hf_family_find(const source *s, const hf_model_type **out);

/* Row number i among those of an architecture of GGUF files; NULL: there are no more. */
const hf_model_type *hf_model_type_of(const char *architecture, size_t i);

/* In front of the names of tensors, up to a NULL; one of them, the last is "". */
extern const char *const hf_name_prefixes[];

/* Names outside of layers, with one of the prefixes; and those that never have one. */
name_table hf_family_ends(const hf_family *f);
name_table hf_family_heads(const hf_family *f);

/* ---- Rows that many families share ----------------------------------------------------------- */

/* clang-format off */

#define COPY(from, to)                      {.hf = from, .gguf = to, .kind = RECIPE_COPY}
#define MADE(from, to, how)                 {.hf = from, .gguf = to, .kind = how}
#define PART(from, to, how, number, count)  {.hf = from, .gguf = to, .kind = how, .part = number, .n_parts = count}
#define ROWS(from, to, map)                 {.hf = from, .gguf = to, .kind = RECIPE_ROWS, .rows = map}
#define SCALED(from, to, function)          {.hf = from, .gguf = to, .kind = RECIPE_SCALE, .factor_of = function}
#define SHAPED(from, to, form)              {.hf = from, .gguf = to, .kind = RECIPE_COPY, .shape = form}
#define COLUMNS(from, to, map)              {.hf = from, .gguf = to, .kind = RECIPE_COLUMNS, .rows = map}
#define VALUES(from, to, function)          {.hf = from, .gguf = to, .kind = RECIPE_VALUES, .value_of = function}

/* A weight and its bias. */
#define WITH_BIAS(from, to)                 COPY(from ".weight", to ".weight"), COPY(from ".bias", to ".bias")

#define ATTENTION_ROWS                                                                             \
    MADE("self_attn.q_proj.weight", "attn_q.weight", RECIPE_PERMUTE_Q),                          \
    MADE("self_attn.q_proj.bias", "attn_q.bias", RECIPE_PERMUTE_Q),                          \
    MADE("self_attn.k_proj.weight", "attn_k.weight", RECIPE_PERMUTE_K),                          \
    MADE("self_attn.k_proj.bias", "attn_k.bias", RECIPE_PERMUTE_K),                          \
    WITH_BIAS("self_attn.v_proj", "attn_v"),                               \
    WITH_BIAS("self_attn.o_proj", "attn_output")

#define MLP_ROWS                                                                                   \
    COPY("mlp.gate_proj.weight", "ffn_gate.weight"),                                \
    COPY("mlp.up_proj.weight", "ffn_up.weight"),                                \
    COPY("mlp.down_proj.weight", "ffn_down.weight")

#define PRE_NORM_ROWS                                                                              \
    COPY("input_layernorm.weight", "attn_norm.weight"),                    \
    COPY("post_attention_layernorm.weight", "ffn_norm.weight")

#define HEAD_NORM_ROWS(kind)                                                                       \
    MADE("self_attn.q_norm.weight", "attn_q_norm.weight", kind),                                 \
    MADE("self_attn.k_norm.weight", "attn_k_norm.weight", kind)

/* Of a layer that predicts further tokens, where those are counted like the others. */
#define PREDICTING_ROWS                                                                            \
    COPY("eh_proj.weight", "nextn.eh_proj.weight"),                                                \
    COPY("enorm.weight", "nextn.enorm.weight"),                                                    \
    COPY("hnorm.weight", "nextn.hnorm.weight"),                                                    \
    COPY("embed_tokens.weight", "nextn.embed_tokens.weight"),                                      \
    COPY("shared_head.norm.weight", "nextn.shared_head_norm.weight"),                              \
    COPY("shared_head.head.weight", "nextn.shared_head_head.weight")

/* Experts of one tensor each, and all of a kind in one tensor. */
#define EXPERT_ROWS                                                                                \
    MADE("mlp.experts.*.gate_proj.weight", "ffn_gate_exps.weight", RECIPE_STACK),                \
    MADE("mlp.experts.*.down_proj.weight", "ffn_down_exps.weight", RECIPE_STACK),                \
    MADE("mlp.experts.*.up_proj.weight", "ffn_up_exps.weight", RECIPE_STACK),                \
    PART("mlp.experts.gate_up_proj", "ffn_gate_exps.weight", RECIPE_HALVE, 0, 2),                \
    PART("mlp.experts.gate_up_proj", "ffn_up_exps.weight", RECIPE_HALVE, 1, 2),                \
    COPY("mlp.experts.down_proj", "ffn_down_exps.weight")

/* Layers of a network, or of experts with shared ones and a router. */
#define ROUTED_ROWS                                                                                \
    MLP_ROWS,                                                                                      \
    EXPERT_ROWS,                                                                                   \
    SHARED_EXPERT_ROWS("mlp.shared_experts"),                                                      \
    COPY("mlp.gate.weight", "ffn_gate_inp.weight")

/* Shared experts: a network beside the others, under the name that the family has for it. */
#define SHARED_EXPERT_ROWS(name)                                                                   \
    COPY(name ".gate_proj.weight", "ffn_gate_shexp.weight"),                        \
    COPY(name ".up_proj.weight", "ffn_up_shexp.weight"),                            \
    COPY(name ".down_proj.weight", "ffn_down_shexp.weight")

/* Mixtral's names of experts. */
#define SPARSE_MOE_ROWS                                                                            \
    COPY("block_sparse_moe.gate.weight", "ffn_gate_inp.weight"),                    \
    MADE("block_sparse_moe.experts.*.w1.weight", "ffn_gate_exps.weight", RECIPE_STACK),          \
    MADE("block_sparse_moe.experts.*.w2.weight", "ffn_down_exps.weight", RECIPE_STACK),          \
    MADE("block_sparse_moe.experts.*.w3.weight", "ffn_up_exps.weight", RECIPE_STACK)

/* clang-format on */

#endif
