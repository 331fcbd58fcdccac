/*
 * Hugging Face directories of Gemma 4. Layers differ: heads of full layers have another size, given
 * once for all of them (global_head_dim) or for each layer by its number (per_layer_config).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hf/family_gemma.h"

/* clang-format off */
static const name_row rows[] = {
    GEMMA_ROWS(RECIPE_COPY),
    COPY("layer_scalar", "layer_output_scale.weight"),
    LAYER_INPUT_ROWS,
    COPY("router.proj.weight", "ffn_gate_inp.weight"),
    COPY("router.scale", "ffn_gate_inp.scale"),
    COPY("router.per_expert_scale", "ffn_down_exps.scale"),
    COPY("experts.gate_up_proj", "ffn_gate_up_exps.weight"),
    COPY("experts.down_proj", "ffn_down_exps.weight"),
    COPY("pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight"),
    COPY("post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight"),
    COPY("post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight"),
};

static const name_row ends[] = {
    LAYER_INPUT_ENDS,
};
/* clang-format on */

static const char *const keys[] = {"final_logit_softcapping", "num_experts",
                                   "use_bidirectional_attention", NULL};

/* What one layer of per_layer_config has instead of what all have. */
static lace_status read_layer(const source *s, const char *number, const json_t *object,
                              model_config *c)
{
    char name[64], *end;
    long i = strtol(number, &end, 10);
    snprintf(name, sizeof name, "per_layer_config.%.16s", number);
    source layer = {object, NULL, name, s->err};
    if (*end != 0 || end == number || i < 0 || i >= c->n_layers || !json_is_object(object))
        return source_fail(s, LACE_E_META, "per_layer_config",
                           "expected numbers of layers, and an object for each");
    for (void *at = json_object_iter((json_t *)object); at;
         at = json_object_iter_next((json_t *)object, at)) {
        const char *key = json_object_iter_key(at);
        if (strcmp(key, "head_dim") != 0 && strcmp(key, "num_key_value_heads") != 0)
            return source_fail(&layer, LACE_E_UNSUPPORTED, key,
                               "changes one layer, which lace does not support");
    }
    layer_config *l = &c->layers[i];
    TRY(source_int(&layer, "head_dim", 2, CONFIG_MAX_HEAD_DIM, &l->head_dim, NULL));
    return source_int(&layer, "num_key_value_heads", 1, l->n_heads, &l->n_kv_heads, NULL);
}

/* What full layers have instead of what all have. */
static lace_status read_full_layers(const source *s, model_config *c)
{
    int32_t dim = 512, n_kv = c->n_kv_heads;
    bool is_shared = false; /* K and V of full layers are the same */
    TRY(source_bool(s, "attention_k_eq_v", &is_shared));
    TRY(source_int(s, "global_head_dim", 2, CONFIG_MAX_HEAD_DIM, &dim, NULL));
    TRY(source_int(s, "num_global_key_value_heads", 1, c->n_heads, &n_kv, NULL));
    for (int32_t i = 0; i < c->n_layers; i++)
        if (!c->layers[i].is_local) {
            c->layers[i].head_dim = dim;
            c->layers[i].n_kv_heads = is_shared ? n_kv : c->n_kv_heads;
        }
    return LACE_OK;
}

/* The heads of all full layers are of one size, and those of all local ones. */
static lace_status check_heads(const source *s, model_config *c)
{
    int32_t full = c->layers[c->n_layers - 1].head_dim;
    c->rope_local_dims = c->head_dim;
    for (int32_t i = 0; i < c->n_layers; i++) {
        const layer_config *l = &c->layers[i];
        if (l->head_dim != (l->is_local ? c->head_dim : full) || l->head_dim % 2 != 0 ||
            (int64_t)l->n_heads * l->head_dim > CONFIG_MAX_WIDTH || l->n_heads % l->n_kv_heads != 0)
            return source_fail(s, LACE_E_META, "per_layer_config",
                               "heads of a layer do not fit together, or not to those of the "
                               "other layers of its kind");
    }
    c->head_dim = c->value_dim = full; /* whom the rotary embedding is read for */
    return LACE_OK;
}

static lace_status read_heads(const source *s, model_config *c)
{
    const json_t *each = source_get(s, "per_layer_config");
    if (each && !json_is_object(each))
        return source_fail(s, LACE_E_META, "per_layer_config", "expected an object");
    if (!each)
        TRY(read_full_layers(s, c));
    for (void *at = json_object_iter((json_t *)each); at;
         at = json_object_iter_next((json_t *)each, at))
        TRY(read_layer(s, json_object_iter_key(at), json_object_iter_value(at), c));
    for (int32_t i = 0; i < c->n_layers; i++)
        c->n_kv_heads =
            c->layers[i].n_kv_heads > c->n_kv_heads ? c->layers[i].n_kv_heads : c->n_kv_heads;
    return check_heads(s, c);
}

/* Layers at the end that attend to what others keep, and may be wider. */
static lace_status read_shared(const source *s, model_config *c)
{
    int32_t n = 0;
    bool is_wide = false;
    TRY(source_int(s, "num_kv_shared_layers", 0, c->n_layers - 1, &n, NULL));
    TRY(source_bool(s, "use_double_wide_mlp", &is_wide));
    if (!config_share_kv(c, n))
        return source_fail(s, LACE_E_META, "num_kv_shared_layers",
                           "a layer has no earlier one of its kind and shape to share with");
    for (int32_t i = c->n_layers - n; is_wide && i < c->n_layers; i++) {
        if (c->n_ff > CONFIG_MAX_WIDTH / 2)
            return source_fail(s, LACE_E_META, "intermediate_size", "is too large to be doubled");
        c->layers[i].n_ff = 2 * c->n_ff;
    }
    c->n_ff = c->layers[c->n_layers - 1].n_ff;
    return LACE_OK;
}

static lace_status read_experts(const source *s, model_config *c)
{
    bool has_experts = false;
    TRY(source_bool(s, "enable_moe_block", &has_experts));
    if (!has_experts)
        return LACE_OK;
    TRY(source_need_int(s, "num_experts", 1, CONFIG_MAX_EXPERTS, &c->n_experts));
    TRY(source_need_int(s, "top_k_experts", 1, c->n_experts, &c->n_experts_used));
    TRY(source_need_int(s, "moe_intermediate_size", 1, CONFIG_MAX_WIDTH, &c->n_ff_expert));
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].has_experts = true;
    return LACE_OK;
}

/* Configs that are silent mean a proportional rotary embedding of a quarter in full layers. */
static void turn_a_quarter(hf_config *h)
{
    int32_t n = h->model.rope.n_dims / 2;
    for (int32_t i = 0; i < n; i++)
        h->rope_factors[i] = i < n / 4 ? 1 : 1e30f;
    h->has_rope_factors = true;
}

static lace_status read(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    const char *both_ways = json_string_value(source_get(s, "use_bidirectional_attention"));
    if (both_ways && strcmp(both_ways, "vision") != 0) /* which text does not meet */
        return source_fail(s, LACE_E_UNSUPPORTED, "use_bidirectional_attention",
                           "expected null or \"vision\"");
    c->layers[c->n_layers - 1].is_local = false; /* whatever layer_types says */
    TRY(read_heads(s, c));
    TRY(hf_rope_read(s, h)); /* once more, now that the heads of full layers are known */
    if (!source_get(s, "rope_parameters"))
        turn_a_quarter(h);
    TRY(source_float(s, "final_logit_softcapping", 0, 1e6, &c->final_softcap, NULL));
    TRY(source_int(s, "hidden_size_per_layer_input", 0, CONFIG_MAX_WIDTH / c->n_layers,
                   &c->n_embd_layer, NULL));
    TRY(read_shared(s, c));
    h->has_head_dim = true;
    return read_experts(s, c);
}

static void set_defaults(model_config *c)
{
    set_gemma_defaults(c);
    c->n_embd = 2304;
    c->n_ff = 9216;
    c->n_layers = 30;
    c->n_vocab = 262144;
    c->window = 512;
    c->n_embd_layer = 256;
    c->rope_local_base = 10000;
}

const hf_family family_gemma4 = {GEMMA_FAMILY(rows, ends, keys, read, 6),
                                 .set_defaults = set_defaults};
