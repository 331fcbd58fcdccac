/*
 * Keys of config.json that change what is computed, where the family does not read them: each must
 * have the value that changes nothing, or the model is refused by the key's name. Keys that are in
 * no row here describe, or are for training, and change nothing.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hf/hf_family.h"

/* clang-format off */
typedef struct graph_key {
    const char *name;
    double neutral;
} graph_key;

static const graph_key keys[] = {
    {"num_local_experts",               0},
    {"num_experts",                     0},
    {"n_routed_experts",                0},
    {"n_shared_experts",                0},
    {"num_shared_experts",              0},
    {"shared_expert_intermediate_size", 0},
    {"shared_intermediate_size",        0},
    {"first_k_dense_replace",           0},
    {"embedding_multiplier",            1},
    {"residual_multiplier",             1},
    {"logits_scaling",                  1},
    {"attention_multiplier",            0}, /* or 1 / sqrt(head_dim) */
    {"logit_scale",                     1},
    {"query_pre_attn_scalar",           0}, /* or head_dim */
    {"attn_logit_softcapping",          0},
    {"final_logit_softcapping",         0},
    {"sliding_window",                  0}, /* or not smaller than the context */
    {"no_rope_layers",                  1},
    {"clip_qkv",                        0},
    {"attention_chunk_size",            0},
    {"kv_lora_rank",                    0},
};
/* clang-format on */

/* A window that is not used, or that the family's rule reads. */
static bool ignores_window(const source *s, const hf_config *h)
{
    bool is_used = true;
    return strcmp(h->model.architecture, "llama") == 0 || h->family->window != WINDOW_NEVER ||
           (source_bool(s, "use_sliding_window", &is_used) == LACE_OK && !is_used);
}

static bool is_neutral(const graph_key *k, const model_config *c, const json_t *value)
{
    double x = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
    if (!json_is_number(value) && !json_is_boolean(value))
        return false;
    if (strcmp(k->name, "sliding_window") == 0 && x >= c->n_context)
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
        if (!value || hf_family_reads(h->family, k->name) ||
            (strcmp(k->name, "sliding_window") == 0 && ignores_window(s, h)))
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
