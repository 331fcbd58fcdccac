/*
 * Keys of config.json that change what is computed, where the family does not read them: each must
 * have the value that changes nothing, or the model is refused by the key's name. Keys that are in
 * no row here describe, or are for training, and change nothing.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hf/config_json.h"

/* Whose key it is: families that read it, which check its value themselves. */
typedef enum reader { NOBODY, EXPERTS, FACTORS, GEMMA, WINDOWS, POSITIONS } reader;

/* clang-format off */
typedef struct graph_key {
    const char *name;
    reader reader;
    double neutral;
} graph_key;

static const graph_key keys[] = {
    {"num_local_experts",               EXPERTS,   0},
    {"num_experts",                     EXPERTS,   0},
    {"n_routed_experts",                NOBODY,    0},
    {"n_shared_experts",                NOBODY,    0},
    {"num_shared_experts",              NOBODY,    0},
    {"shared_expert_intermediate_size", NOBODY,    0},
    {"shared_intermediate_size",        NOBODY,    0},
    {"first_k_dense_replace",           NOBODY,    0},
    {"embedding_multiplier",            FACTORS,   1},
    {"residual_multiplier",             FACTORS,   1},
    {"logits_scaling",                  FACTORS,   1},
    {"attention_multiplier",            FACTORS,   0}, /* or 1 / sqrt(head_dim) */
    {"logit_scale",                     NOBODY,    1},
    {"query_pre_attn_scalar",           GEMMA,     0}, /* or head_dim */
    {"attn_logit_softcapping",          GEMMA,     0},
    {"final_logit_softcapping",         GEMMA,     0},
    {"sliding_window",                  WINDOWS,   0}, /* or not smaller than the context */
    {"no_rope_layers",                  POSITIONS, 1},
    {"clip_qkv",                        NOBODY,    0},
    {"attention_chunk_size",            NOBODY,    0},
    {"kv_lora_rank",                    NOBODY,    0},
};
/* clang-format on */

static bool is(const hf_config *h, const char *architecture)
{
    return strcmp(h->model.architecture, architecture) == 0;
}

static bool reads(const source *s, const hf_config *h, reader who)
{
    bool is_used = true;
    switch (who) {
    case EXPERTS:
        return h->model.n_experts > 0;
    case FACTORS:
        return is(h, "granite");
    case GEMMA:
        return h->family == HF_GEMMA;
    case WINDOWS:
        /* That of "llama" is known to mean nothing, and so is one that is not used. */
        return !(is(h, "granite") || is(h, "olmo2")) ||
               (source_bool(s, "use_sliding_window", &is_used) == LACE_OK && !is_used);
    case POSITIONS:
        return is(h, "smollm3");
    case NOBODY:
        break;
    }
    return false;
}

static bool is_neutral(const graph_key *k, const model_config *c, const json_t *value)
{
    double x = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
    if (!json_is_number(value) && !json_is_boolean(value))
        return false;
    if (k->reader == WINDOWS && x >= c->n_context)
        return true;
    if (strcmp(k->name, "attention_multiplier") == 0 &&
        fabs(x * sqrt((double)c->head_dim) - 1) < 1e-6)
        return true;
    if (strcmp(k->name, "query_pre_attn_scalar") == 0 && x == c->head_dim)
        return true;
    return x == k->neutral;
}

lace_status hf_check_keys(const source *s, const hf_config *h)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const graph_key *k = &keys[i];
        const json_t *value = source_get(s, k->name);
        if (!value || reads(s, h, k->reader))
            continue;
        size_t n = json_is_array(value) ? json_array_size(value) : 1;
        for (size_t item = 0; item < n; item++) {
            const json_t *one = json_is_array(value) ? json_array_get(value, item) : value;
            char what[160];
            if (is_neutral(k, &h->model, one))
                continue;
            snprintf(what, sizeof what,
                     "changes what is computed; of %s models lace computes only %g, or configs "
                     "without the key",
                     h->model.architecture, k->neutral);
            return source_fail(s, LACE_E_UNSUPPORTED, k->name, what);
        }
    }
    return LACE_OK;
}
