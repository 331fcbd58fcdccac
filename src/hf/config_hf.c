/* Reading a model's hyperparameters from config.json, each one checked against its range. */
#include "hf/config_hf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_read.h"
#include "hf/hf_family.h"

/* ---- Groups of values ------------------------------------------------------------------------ */

static lace_status read_heads(const source *s, const hf_family *f, hf_config *h)
{
    model_config *c = &h->model;
    if (f->lacks & HF_LACKS_HEADS) { /* nobody divides by 0 */
        c->n_heads = c->n_kv_heads = 1;
        c->head_dim = 2;
        return LACE_OK;
    }
    TRY(source_need_int(s, SOURCE_SPELLING(s, "num_attention_heads", "n_head"), 1, CONFIG_MAX_HEADS,
                        &c->n_heads));
    if (c->n_kv_heads == 0)
        c->n_kv_heads = c->n_heads;
    TRY(source_int(s, SOURCE_SPELLING(s, "num_key_value_heads", "num_kv_heads"), 1, c->n_heads,
                   &c->n_kv_heads, NULL));
    if (c->n_heads % c->n_kv_heads != 0)
        return source_fail(s, LACE_E_META, "num_key_value_heads",
                           "does not divide num_attention_heads");
    TRY(source_int(s, "head_dim", 1, CONFIG_MAX_HEAD_DIM, &c->head_dim, &h->has_head_dim));
    if (c->head_dim == 0 && (f->lacks & HF_LACKS_HEAD_DIM)) {
        int32_t nope = 0, turned = 0;
        TRY(source_need_int(s, "qk_nope_head_dim", 1, CONFIG_MAX_HEAD_DIM / 2, &nope));
        TRY(source_need_int(s, "qk_rope_head_dim", 1, CONFIG_MAX_HEAD_DIM / 2, &turned));
        c->head_dim = nope + turned;
    }
    if (c->head_dim == 0) {
        if (c->n_embd % c->n_heads != 0)
            return source_fail(s, LACE_E_META, "hidden_size",
                               "is not a multiple of num_attention_heads");
        c->head_dim = c->n_embd / c->n_heads;
    }
    bool is_odd = c->head_dim % 2 != 0 && !(f->lacks & HF_LACKS_HEAD_DIM); /* it turns a part */
    if (is_odd || c->head_dim > CONFIG_MAX_HEAD_DIM ||
        (int64_t)c->n_heads * c->head_dim > CONFIG_MAX_WIDTH)
        return error_set(s->err, LACE_E_META,
                         "config.json: %s: gives %d heads of %d values, expected an even "
                         "number up to %d, and %d in all",
                         h->has_head_dim ? "head_dim" : "hidden_size", c->n_heads, c->head_dim,
                         CONFIG_MAX_HEAD_DIM, CONFIG_MAX_WIDTH);
    return LACE_OK;
}

/* The width of the feed-forward part: silent configs mean four times the model's. */
static lace_status read_ffn(const source *s, const hf_family *f, model_config *c)
{
    const char *key = SOURCE_SPELLING(s, "intermediate_size", "n_inner", "ffn_hidden_size");
    if (hf_family_reads(f, key)) /* for each layer */
        return LACE_OK;
    if (f->lacks & HF_LACKS_FFN) {
        c->n_ff = 4 * c->n_embd;
        return source_int(s, key, 1, CONFIG_MAX_WIDTH, &c->n_ff, NULL);
    }
    return source_need_int(s, key, 1, CONFIG_MAX_WIDTH, &c->n_ff);
}

static lace_status read_sizes(const source *s, const hf_family *f, hf_config *h)
{
    model_config *c = &h->model;
    size_t n_kinds = json_array_size(source_get(s, "layers_block_type"));
    if (n_kinds <= CONFIG_MAX_LAYERS) /* which configs may have instead of a number */
        c->n_layers = (int32_t)n_kinds;
    TRY(source_need_int(s, SOURCE_SPELLING(s, "num_hidden_layers", "n_layer"), 1, CONFIG_MAX_LAYERS,
                        &c->n_layers));
    TRY(source_need_int(s, SOURCE_SPELLING(s, "hidden_size", "n_embd"), 1, CONFIG_MAX_WIDTH / 4,
                        &c->n_embd));
    if (c->n_embd % 2 != 0)
        return source_fail(s, LACE_E_META, "hidden_size", "is odd, expected an even number");
    if (f->lacks & HF_LACKS_CONTEXT)
        c->n_context = 1 << 20;
    TRY(source_need_int(s, SOURCE_SPELLING(s, "max_position_embeddings", "n_positions"), 1,
                        CONFIG_MAX_CONTEXT, &c->n_context));
    TRY(read_ffn(s, f, c));
    TRY(read_heads(s, f, h));
    TRY(source_need_float(s,
                          SOURCE_SPELLING(s, "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon",
                                          "norm_eps", "norm_epsilon"),
                          1e-30, 0.999, &c->norm_eps));
    c->value_dim = c->head_dim;
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i] = (layer_config){.n_heads = c->n_heads,
                                      .n_kv_heads = c->n_kv_heads,
                                      .head_dim = c->head_dim,
                                      .n_ff = c->n_ff};
    return source_need_int(s, "vocab_size", 1, CONFIG_MAX_VOCAB, &c->n_vocab);
}

/* What changes the arithmetic and has only one value that lace computes. */
static lace_status check_arithmetic(const source *s, const hf_family *f)
{
    const char *expected = f->activation ? f->activation : "silu";
    if (*expected)
        TRY(source_expect_text(s, SOURCE_SPELLING(s, "hidden_activation", "hidden_act"), expected));
    static const char *const flags[] = {"mlp_bias", "use_bidirectional_attention"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (!hf_family_reads(f, flags[i]))
            TRY(source_expect_bool(s, flags[i], false));
    return LACE_OK;
}

lace_status hf_read_multipliers(const source *s, model_config *c)
{
    TRY(source_float(s, "attention_multiplier", 1e-6, 1e6, &c->attention_scale, NULL));
    TRY(source_float(s, "embedding_multiplier", 1e-6, 1e6, &c->embedding_scale, NULL));
    TRY(source_float(s, "residual_multiplier", 1e-6, 1e6, &c->residual_scale, NULL));
    return source_float(s, "logits_scaling", 1e-6, 1e6, &c->logit_scale, NULL);
}

const char *const hf_expert_keys[] = {"num_local_experts", "num_experts", NULL};

lace_status hf_read_experts(const source *s, model_config *c)
{
    TRY(source_need_int(s, SOURCE_SPELLING(s, "num_experts", "num_local_experts"), 1,
                        CONFIG_MAX_EXPERTS, &c->n_experts));
    TRY(source_need_int(s, "num_experts_per_tok", 1, c->n_experts, &c->n_experts_used));
    c->n_ff_expert = c->n_ff;
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].has_experts = true;
    return LACE_OK;
}

const char *const hf_mixture_keys[] = {"num_local_experts",
                                       "num_experts",
                                       "n_routed_experts",
                                       "moe_num_experts",
                                       "n_shared_experts",
                                       "num_shared_experts",
                                       "num_shared_expert",
                                       "moe_num_shared_experts",
                                       "shared_expert_intermediate_size",
                                       "first_k_dense_replace",
                                       NULL};

/* Layers without experts: those in front, all but each n-th, and those that a list names. */
static lace_status read_expert_layers(const source *s, model_config *c)
{
    int32_t n_dense = 0, step = 1;
    bool is_dense[CONFIG_MAX_LAYERS];
    TRY(source_int(s, "first_k_dense_replace", 0, CONFIG_MAX_LAYERS, &n_dense, NULL));
    TRY(source_int(s, "decoder_sparse_step", 1, CONFIG_MAX_LAYERS, &step, NULL));
    TRY(source_layer_list(s, "mlp_only_layers", c->n_layers, is_dense));
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].has_experts = i >= n_dense && (i + 1) % step == 0 && !is_dense[i];
    return LACE_OK;
}

static lace_status read_scores(const source *s, route_rule *r)
{
    static const struct {
        const char *name;
        route_scores scores;
    } names[] = {{"softmax", ROUTE_SOFTMAX},
                 {"sigmoid", ROUTE_SIGMOID},
                 {"noaux_tc", ROUTE_SIGMOID}}; /* dots.llm1's word for it */
    const json_t *value = source_get(s, "scoring_func");
    const char *name = json_string_value(value);
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i].name) == 0) {
            r->scores = names[i].scores;
            return LACE_OK;
        }
    return value ? source_fail(s, LACE_E_UNSUPPORTED, "scoring_func", "expected softmax or sigmoid")
                 : LACE_OK;
}

static lace_status read_routing(const source *s, model_config *c)
{
    route_rule *r = &c->routing;
    double factor = r->factor;
    TRY(read_scores(s, r));
    TRY(source_bool(s, "norm_topk_prob", &r->norms));
    TRY(source_float(s, "routed_scaling_factor", 1e-6, 1e6, &factor, NULL));
    r->factor = (float)factor;
    TRY(source_int(s, "n_group", 0, c->n_experts, &r->n_groups, NULL));
    TRY(source_int(s, "topk_group", 0, c->n_experts, &r->n_groups_used, NULL));
    r->n_ranking = r->scores == ROUTE_SIGMOID ? 2 : 1;
    return config_groups_fit(c) ? LACE_OK
                                : source_fail(s, LACE_E_META, "n_group",
                                              "its groups do not fit the experts, those used of a "
                                              "token and topk_group");
}

lace_status hf_read_mixture(const source *s, model_config *c)
{
    const char *count = SOURCE_SPELLING(s, "num_experts", "num_local_experts", "n_routed_experts",
                                        "moe_num_experts");
    const char *used = SOURCE_SPELLING(s, "num_experts_per_tok", "moe_k", "moe_topk");
    const char *shared = SOURCE_SPELLING(s, "n_shared_experts", "num_shared_experts",
                                         "num_shared_expert", "moe_num_shared_experts");
    TRY(source_same_int(s, count, 1, CONFIG_MAX_EXPERTS, &c->n_experts));
    TRY(source_same_int(s, used, 1, CONFIG_MAX_EXPERTS, &c->n_experts_used));
    if (c->n_experts == 0 || c->n_experts_used == 0)
        return source_fail(s, LACE_E_META, c->n_experts == 0 ? count : used, "is missing");
    if (c->n_experts_used > c->n_experts)
        return source_fail(s, LACE_E_META, used, "is more than there are experts");
    TRY(source_same_int(s, shared, 0, CONFIG_MAX_EXPERTS, &c->n_experts_shared));
    c->n_ff_expert = c->n_ff;
    TRY(source_same_int(s, "moe_intermediate_size", 1, CONFIG_MAX_WIDTH, &c->n_ff_expert));
    TRY(read_expert_layers(s, c));
    return read_routing(s, c);
}

/* ---- Kinds of layers ------------------------------------------------------------------------- */

/* What layer_types may say. */
static const struct {
    const char *name;
    layer_kind kind;
    bool is_local;
} layer_names[] = {
    {"full_attention", LAYER_ATTENTION, false},
    {"attention", LAYER_ATTENTION, false},
    {"sliding_attention", LAYER_ATTENTION, true},
    {"chunked_attention", LAYER_ATTENTION, true},
    {"linear_attention", LAYER_RECURRENT, false},
    {"mamba", LAYER_RECURRENT, false},
    {"conv", LAYER_RECURRENT, false},
};

/* Only families whose reader says so (layer_types in its keys) have layers of other kinds. */
static lace_status read_layer_types(const source *s, const hf_family *f, const json_t *types,
                                    model_config *c)
{
    bool takes_all = hf_family_reads(f, "layer_types");
    enum { N = sizeof layer_names / sizeof *layer_names };
    for (int32_t i = 0; i < c->n_layers; i++) {
        const char *name = json_string_value(json_array_get(types, (size_t)i));
        size_t k = 0;
        while (name && k < N && strcmp(name, layer_names[k].name) != 0)
            k++;
        if (!name || k == N || (!takes_all && k != 0 && k != 2))
            return error_set(s->err, LACE_E_UNSUPPORTED,
                             "config.json: layer_types: item %d is \"%.32s\", expected %s", i,
                             name ? name : "",
                             takes_all ? "a kind of layer that lace knows"
                                       : "full_attention or sliding_attention");
        if (k == 2 && c->window == 0)
            return source_fail(s, LACE_E_META, "sliding_window",
                               "is missing, layer_types needs it");
        c->layers[i].kind = layer_names[k].kind;
        c->layers[i].is_local = layer_names[k].is_local;
    }
    return LACE_OK;
}

static lace_status read_windows(const source *s, const hf_family *f, model_config *c)
{
    const json_t *types;
    int32_t first = 28, period = f->period; /* Qwen2's default */
    bool is_used = f->window != WINDOW_FLAG;
    TRY(source_int(s, "sliding_window", 0, CONFIG_MAX_CONTEXT, &c->window, NULL));
    TRY(source_bool(s, "use_sliding_window", &is_used));
    if (f->window == WINDOW_NEVER || !is_used)
        c->window = 0;
    TRY(source_layers(s, "layer_types", c->n_layers, &types));
    if (types)
        return read_layer_types(s, f, types, c);
    TRY(source_int(s, "max_window_layers", 0, INT32_MAX, &first, NULL));
    TRY(source_int(s, "sliding_window_pattern", 1, CONFIG_MAX_LAYERS, &period, NULL));
    for (int32_t i = 0; c->window > 0 && i < c->n_layers; i++)
        c->layers[i].is_local = f->window == WINDOW_ALWAYS   ? true
                                : f->window == WINDOW_PERIOD ? (i + 1) % period != 0
                                                             : i >= first;
    return LACE_OK;
}

lace_status hf_read_no_rope(const source *s, model_config *c)
{
    const json_t *kept;
    int32_t interval = 4;
    TRY(source_layers(s, "no_rope_layers", c->n_layers, &kept));
    TRY(source_int(s, "no_rope_layer_interval", 1, INT32_MAX, &interval, NULL));
    for (int32_t i = 0; i < c->n_layers; i++) {
        const json_t *item = json_array_get(kept, (size_t)i);
        json_int_t value = json_integer_value(item);
        if (kept && (!json_is_integer(item) || (value != 0 && value != 1)))
            return error_set(s->err, LACE_E_META,
                             "config.json: no_rope_layers: item %d: expected 0 or 1", i);
        c->layers[i].skips_rope = kept ? value == 0 : (i + 1) % interval == 0;
    }
    return LACE_OK;
}

/* ---------------------------------------------------------------------------------------------- */

bool hf_family_reads(const hf_family *f, const char *key)
{
    for (size_t i = 0; f->reads && f->reads[i]; i++)
        if (strcmp(f->reads[i], key) == 0)
            return true;
    return false;
}

/* Models that also see keep the numbers of their language part in an object. */
static lace_status find_text(const json_t *config, source *s, const hf_model_type **out)
{
    const json_t *inner = json_object_get(config, "text_config");
    source inside = {.object = inner, .outer = config, .err = s->err};
    if (!json_is_object(inner))
        return hf_family_find(s, out);
    lace_error unknown;
    source quiet = {.object = config, .err = &unknown};
    if (hf_family_find(&quiet, out) != LACE_OK)
        TRY(hf_family_find(&inside, out));
    *s = inside;
    return LACE_OK;
}

lace_status hf_config_read(const json_t *config, hf_config *out, lace_error *err)
{
    memset(out, 0, sizeof *out);
    source s = {.object = config, .err = err};
    const hf_model_type *type = NULL;
    hf_config h = {.model = config_default()};
    model_config *c = &h.model;
    TRY(find_text(config, &s, &type));
    const hf_family *f = type->family;
    snprintf(c->architecture, sizeof c->architecture, "%s", type->architecture);
    h.family = f;
    h.is_tied = f->is_tied;
    if (f->set_defaults)
        f->set_defaults(c);
    TRY(read_sizes(&s, f, &h));
    TRY(check_arithmetic(&s, f));
    TRY(hf_quant_read(&s, &h.quant));
    if (h.quant.method == HF_QUANT_MXFP4 && strcmp(type->architecture, "gpt-oss") != 0)
        return source_fail(&s, LACE_E_UNSUPPORTED, "quantization_config",
                           "is mxfp4, which lace reads only for gpt-oss");
    TRY(read_windows(&s, f, c));
    TRY(hf_rope_read(&s, &h));
    if (f->read)
        TRY(f->read(&s, &h));
    TRY(hf_check_keys(&s, &h));
    c->has_layer_kinds = true;
    const char *later = SOURCE_SPELLING(&s, "num_nextn_predict_layers", "num_mtp_layers");
    if (!source_get(&s, later))
        later = "mtp_num_hidden_layers";
    TRY(source_int(&s, later, 0, CONFIG_MAX_LAYERS, &h.n_later_layers, NULL));
    TRY(source_bool(&s, "tie_word_embeddings", &h.is_tied));
    *out = h;
    return LACE_OK;
}
