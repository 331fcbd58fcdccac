/* Reading a model's hyperparameters from GGUF metadata, each one checked against its range. */
#include "model/config.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "model/config_source.h"
#include "model/model.h"

/* ---- Groups of values ------------------------------------------------------------------------ */

lace_status config_architecture(const gguf *g, char out[64], lace_error *err)
{
    text name = {NULL, 0};
    bool found;
    TRY(gguf_get_text(g, "general.architecture", &name, &found, err));
    if (!found)
        return error_set(err, LACE_E_META, "general.architecture: is missing");
    const gguf_value *v = gguf_find(g, "general.architecture");
    bool is_valid = name.size >= 1 && name.size <= 63;
    for (size_t i = 0; is_valid && i < name.size; i++)
        is_valid =
            name.data[i] != 0 && strchr("abcdefghijklmnopqrstuvwxyz0123456789_.-", name.data[i]);
    if (!is_valid)
        return error_at(err, LACE_E_META, v->offset,
                        "general.architecture: is \"%.*s\", expected 1 to 63 of a-z 0-9 _ . -",
                        text_width(name), name.data);
    memcpy(out, name.data, name.size);
    out[name.size] = 0;
    return LACE_OK;
}

/* The largest of what the layers have. */
static int32_t largest(const model_config *c, size_t field)
{
    int32_t most = 0;
    for (int32_t i = 0; i < c->n_layers; i++) {
        int32_t x = *(const int32_t *)((const char *)&c->layers[i] + field);
        most = x > most ? x : most;
    }
    return most;
}

/* A number of each layer: 0 only where layers of an architecture differ in kind. */
static lace_status read_layers(const config_source *s, const char *name, int64_t high, size_t field,
                               model_config *c, bool *found)
{
    int32_t *first = (int32_t *)((char *)&c->layers[0] + field);
    const arch *a = arch_find(s->architecture);
    bool may_be_none = a && (a->takes & ARCH_LAYER_KINDS);
    return config_layers_int(s, name, c->n_layers, may_be_none ? 0 : 1, high, first,
                             sizeof *c->layers, found);
}

static lace_status check_heads(const config_source *s, const model_config *c)
{
    for (int32_t i = 0; i < c->n_layers; i++) {
        const layer_config *l = &c->layers[i];
        if (l->n_kv_heads > 0 && (l->n_heads == 0 || l->n_heads % l->n_kv_heads != 0))
            return config_bad(s, "attention.head_count_kv", LACE_E_META,
                              "does not divide attention.head_count");
    }
    return LACE_OK;
}

/* Keys and values of a head. */
static lace_status read_head_dim(const config_source *s, model_config *c)
{
    bool found;
    TRY(config_int(s, "attention.key_length", 1, CONFIG_MAX_HEAD_DIM, &c->head_dim, &found));
    if (!found) {
        if (c->n_embd % c->n_heads != 0)
            return config_bad(s, "embedding_length", LACE_E_META,
                              "is not a multiple of attention.head_count");
        c->head_dim = c->n_embd / c->n_heads;
    }
    config_key length = config_key_of(s, found ? "attention.key_length" : "embedding_length");
    if (c->head_dim % 2 != 0 || c->head_dim > CONFIG_MAX_HEAD_DIM ||
        (int64_t)c->n_heads * c->head_dim > CONFIG_MAX_WIDTH)
        return error_set(s->err, LACE_E_META,
                         "%s: gives %d heads of %d values, expected an even number up to %d, "
                         "and %d in all",
                         length.text, c->n_heads, c->head_dim, CONFIG_MAX_HEAD_DIM,
                         CONFIG_MAX_WIDTH);
    c->value_dim = c->n_embd / c->n_heads; /* whatever key_length says, as in llama.cpp */
    TRY(config_int(s, "attention.value_length", 1, CONFIG_MAX_HEAD_DIM, &c->value_dim, &found));
    const arch *a = arch_find(s->architecture);
    if (c->value_dim != c->head_dim && !(a && (a->takes & ARCH_VALUE_DIM)))
        return config_bad(s, found ? "attention.value_length" : "attention.key_length",
                          LACE_E_UNSUPPORTED,
                          "keys and values have different lengths, which lace does not support");
    return LACE_OK;
}

static lace_status read_heads(const config_source *s, model_config *c)
{
    bool found;
    TRY(read_layers(s, "attention.head_count", CONFIG_MAX_HEADS, offsetof(layer_config, n_heads), c,
                    &found));
    if (!found)
        return config_bad(s, "attention.head_count", LACE_E_META, "is missing");
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].n_kv_heads = c->layers[i].n_heads;
    c->n_heads = largest(c, offsetof(layer_config, n_heads));
    TRY(read_layers(s, "attention.head_count_kv", c->n_heads, offsetof(layer_config, n_kv_heads), c,
                    NULL));
    c->n_kv_heads = largest(c, offsetof(layer_config, n_kv_heads));
    if (c->n_heads == 0 || c->n_kv_heads == 0) { /* no layer attends: nobody divides by 0 */
        c->n_heads = c->n_kv_heads = 1;
        c->head_dim = c->value_dim = 2;
        return LACE_OK;
    }
    TRY(check_heads(s, c));
    if (c->n_heads % c->n_kv_heads != 0)
        return config_bad(s, "attention.head_count_kv", LACE_E_META,
                          "does not divide attention.head_count");
    TRY(read_head_dim(s, c));
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].head_dim = c->head_dim;
    return LACE_OK;
}

static lace_status read_vocab_size(const config_source *s, const model_config *c, int32_t *out)
{
    bool found;
    TRY(config_int(s, "vocab_size", 1, CONFIG_MAX_VOCAB, out, &found));
    if (found)
        return LACE_OK;
    int64_t n = 0;
    const gguf_value *tokens = gguf_find(s->g, "tokenizer.ggml.tokens");
    const tensor *embedding = gguf_find_tensor(s->g, "token_embd.weight");
    if (tokens) {
        if (tokens->type != GGUF_ARRAY || tokens->item_type != GGUF_STRING)
            return error_at(s->err, LACE_E_VOCAB, tokens->offset,
                            "tokenizer.ggml.tokens: expected an array of strings");
        n = (int64_t)tokens->n_items;
    } else if (embedding) {
        n = embedding->shape.dims[1];
    }
    if (n < 1 || n > CONFIG_MAX_VOCAB)
        return error_set(
            s->err, LACE_E_VOCAB, "%s.vocab_size: %s; %s has %" PRId64 " tokens, expected 1 to %d",
            c->architecture, "is missing", tokens ? "tokenizer.ggml.tokens" : "token_embd.weight",
            n, CONFIG_MAX_VOCAB);
    *out = (int32_t)n;
    return LACE_OK;
}

/* ---- Rotary embedding ------------------------------------------------------------------------ */

static lace_status read_rope_type(const config_source *s, bool *is_off, rope_scaling *out)
{
    static const struct {
        const char *name;
        rope_scaling scaling;
    } types[] = {{"none", ROPE_PLAIN},
                 {"linear", ROPE_LINEAR},
                 {"yarn", ROPE_YARN},
                 {"longrope", ROPE_LONGROPE}};
    text name = {NULL, 0};
    bool found;
    *out = ROPE_LINEAR; /* a factor without a type means this */
    *is_off = false;
    TRY(gguf_get_text(s->g, config_key_of(s, "rope.scaling.type").text, &name, &found, s->err));
    for (size_t i = 0; found && i < sizeof types / sizeof types[0]; i++)
        if (text_is(name, types[i].name)) {
            *out = types[i].scaling;
            *is_off = i == 0;
            return LACE_OK;
        }
    return found ? config_bad(s, "rope.scaling.type", LACE_E_UNSUPPORTED,
                              "expected none, linear, yarn or longrope")
                 : LACE_OK;
}

static lace_status read_rope_factor(const config_source *s, double *out)
{
    bool found;
    *out = 0;
    const char *name = "rope.scaling.factor";
    TRY(config_float(s, name, 0, 1e6, out, &found));
    if (!found) {
        name = "rope.scale_linear"; /* until 2023 */
        TRY(config_float(s, name, 0, 1e6, out, &found));
    }
    if (*out == 0) { /* some writers mean "none" by it */
        *out = 1;
        return LACE_OK;
    }
    return config_float(s, name, 1e-3, 1e6, out, NULL);
}

/* YaRN's correction of the attention's temperature. */
static double yarn_mscale(double factor, double share)
{
    return factor <= 1 ? 1 : 0.1 * share * log(factor) + 1;
}

static lace_status read_rope_attention(const config_source *s, rope_config *r)
{
    bool has_factor, has_log;
    double factor = 1, log_multiplier = 0;
    TRY(config_float(s, "rope.scaling.attn_factor", 1e-3, 1e3, &factor, &has_factor));
    TRY(config_float(s, "rope.scaling.yarn_log_multiplier", 0, 1e3, &log_multiplier, &has_log));
    /* The file's factor multiplies what the method prescribes. */
    if (r->scaling == ROPE_YARN && (has_factor || log_multiplier != 0))
        r->attention_factor = factor * yarn_mscale(r->factor, 1) /
                              (log_multiplier != 0 ? yarn_mscale(r->factor, log_multiplier) : 1);
    else if (has_factor)
        r->attention_factor = factor;
    return LACE_OK;
}

static lace_status read_rope(const config_source *s, const model_config *c, rope_config *r)
{
    bool is_off, found;
    r->n_dims = c->head_dim;
    TRY(config_int(s, "rope.dimension_count", 2, c->head_dim, &r->n_dims, &found));
    if (r->n_dims % 2 != 0)
        return config_bad(s, "rope.dimension_count", LACE_E_META,
                          "is odd, expected an even number");
    r->base = 10000;
    /* YaRN divides by the base's logarithm, so 1 is not enough. */
    TRY(config_float(s, "rope.freq_base", 2, 1e15, &r->base, NULL));
    TRY(read_rope_type(s, &is_off, &r->scaling));
    TRY(read_rope_factor(s, &r->factor));
    if (is_off)
        r->factor = 1;
    if (r->scaling == ROPE_LINEAR && r->factor == 1)
        r->scaling = ROPE_PLAIN;
    r->original_context = c->n_context;
    TRY(config_int(s, "rope.scaling.original_context_length", 1, CONFIG_MAX_CONTEXT,
                   &r->original_context, NULL));
    r->yarn_beta_fast = 32;
    r->yarn_beta_slow = 1;
    TRY(config_float(s, "rope.scaling.yarn_beta_fast", 1e-3, 1e6, &r->yarn_beta_fast, NULL));
    TRY(config_float(s, "rope.scaling.yarn_beta_slow", 1e-3, 1e6, &r->yarn_beta_slow, NULL));
    return read_rope_attention(s, r);
}

/* ---------------------------------------------------------------------------------------------- */

/* Which layers are local: an item for each, or one number n: all but each n-th. */
static lace_status read_pattern(const config_source *s, model_config *c)
{
    const char *name = "attention.sliding_window_pattern";
    const gguf_value *v = gguf_find(s->g, config_key_of(s, name).text);
    int32_t period = 0;
    if (!v)
        return LACE_OK;
    if (v->type != GGUF_ARRAY) {
        TRY(config_int(s, name, 0, CONFIG_MAX_LAYERS, &period, NULL));
        for (int32_t i = 0; i < c->n_layers; i++)
            c->layers[i].is_local = period == 0 || (i + 1) % period != 0;
        c->has_window_pattern = true;
        return LACE_OK;
    }
    if (v->n_items != (uint64_t)c->n_layers ||
        (v->item_type != GGUF_BOOL && v->item_type != GGUF_I32 && v->item_type != GGUF_U32))
        return config_bad(s, name, LACE_E_META, "expected a number, or one for each layer");
    for (int32_t i = 0; i < c->n_layers; i++) {
        int64_t item = 0;
        if (v->item_type == GGUF_BOOL)
            item = v->bytes.data[i] != 0;
        else
            gguf_value_int(v, (uint64_t)i, &item);
        c->layers[i].is_local = item != 0;
    }
    c->has_window_pattern = true;
    return LACE_OK;
}

static lace_status read_factors(const config_source *s, model_config *c)
{
    TRY(read_pattern(s, c));
    TRY(config_float(s, "attention.temperature_scale", 0, 1e3, &c->temperature_scale, NULL));
    TRY(config_int(s, "attention.temperature_length", 0, CONFIG_MAX_CONTEXT, &c->temperature_length,
                   NULL));
    TRY(config_int(s, "attention.sliding_window", 0, CONFIG_MAX_CONTEXT, &c->window, NULL));
    TRY(config_float(s, "rope.freq_base_swa", 2, 1e15, &c->rope_local_base, NULL));
    TRY(config_float(s, "embedding_scale", 1e-6, 1e6, &c->embedding_scale, NULL));
    TRY(config_float(s, "residual_scale", 1e-6, 1e6, &c->residual_scale, NULL));
    TRY(config_float(s, "logit_scale", 1e-6, 1e6, &c->logit_scale, NULL));
    TRY(config_float(s, "attention.scale", 0, 1e6, &c->attention_scale, NULL));
    TRY(config_float(s, "attn_logit_softcapping", 0, 1e6, &c->attention_softcap, NULL));
    return config_float(s, "final_logit_softcapping", 0, 1e6, &c->final_softcap, NULL);
}

/* Which layers have experts: each n-th, behind those in front that have none. */
static lace_status read_expert_layers(const config_source *s, model_config *c)
{
    int32_t n_dense = 0, every = 1;
    TRY(config_int(s, "leading_dense_block_count", 0, CONFIG_MAX_LAYERS, &n_dense, NULL));
    TRY(config_int(s, "interleave_moe_layer_step", 0, CONFIG_MAX_LAYERS, &every, NULL));
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].has_experts = i >= n_dense && every > 0 && (i + 1) % every == 0;
    return LACE_OK;
}

bool config_groups_fit(const model_config *c)
{
    int32_t n = c->routing.n_groups, n_used = c->routing.n_groups_used;
    return n <= 1 || (c->n_experts % n == 0 && n_used >= 1 && n_used <= n &&
                      c->n_experts_used <= c->n_experts / n * n_used);
}

static lace_status read_routing(const config_source *s, model_config *c)
{
    enum { SOFTMAX = 1, SIGMOID = 2, SOFTMAX_OF_CHOSEN = 3 }; /* as files count them; 0: not said */
    route_rule *r = &c->routing;
    int32_t function = 0;
    double factor = 0;
    TRY(config_int(s, "expert_gating_func", 0, 3, &function, NULL));
    r->scores = function == SIGMOID ? ROUTE_SIGMOID : ROUTE_SOFTMAX;
    TRY(config_bool(s, "expert_weights_norm", &r->norms, NULL));
    r->norms = r->norms || function == SOFTMAX_OF_CHOSEN;
    TRY(config_float(s, "expert_weights_scale", 0, 1e6, &factor, NULL));
    r->factor = (float)factor;
    TRY(config_int(s, "expert_group_count", 0, c->n_experts, &r->n_groups, NULL));
    TRY(config_int(s, "expert_group_used_count", 0, c->n_experts, &r->n_groups_used, NULL));
    r->n_ranking = r->scores == ROUTE_SIGMOID ? 2 : 1;
    return config_groups_fit(c) ? LACE_OK
                                : config_bad(s, "expert_group_count", LACE_E_META,
                                             "its groups do not fit expert_count, "
                                             "expert_used_count and expert_group_used_count");
}

static lace_status read_experts(const config_source *s, model_config *c)
{
    TRY(config_int(s, "expert_count", 0, CONFIG_MAX_EXPERTS, &c->n_experts, NULL));
    if (c->n_experts == 0)
        return LACE_OK;
    TRY(config_need_int(s, "expert_used_count", 1, c->n_experts, &c->n_experts_used));
    c->n_ff_expert = c->n_ff;
    TRY(config_int(s, "expert_feed_forward_length", 1, CONFIG_MAX_WIDTH, &c->n_ff_expert, NULL));
    TRY(config_int(s, "expert_shared_count", 0, CONFIG_MAX_EXPERTS, &c->n_experts_shared, NULL));
    TRY(read_expert_layers(s, c));
    return read_routing(s, c);
}

/* What norms add to a variance. Models whose norms subtract the mean have another key for it. */
static lace_status read_eps(const config_source *s, model_config *c)
{
    bool found;
    const char *rms = "attention.layer_norm_rms_epsilon";
    TRY(config_float(s, rms, 1e-30, 0.999, &c->norm_eps, &found));
    if (!found)
        TRY(config_float(s, "attention.layer_norm_epsilon", 1e-30, 0.999, &c->norm_eps, &found));
    return found ? LACE_OK : config_bad(s, rms, LACE_E_META, "is missing");
}

static lace_status read_pooling(const config_source *s, model_config *c)
{
    static const lace_pooling kinds[] = {LACE_POOLING_NONE, LACE_POOLING_MEAN, LACE_POOLING_CLS,
                                         LACE_POOLING_LAST, LACE_POOLING_RANK};
    int32_t number = 0;
    bool found;
    TRY(config_int(s, "pooling_type", 0, 4, &number, &found));
    if (found)
        c->pooling = kinds[number];
    return LACE_OK;
}

/* Layers, and behind them those that predict further tokens. */
static lace_status read_n_layers(const config_source *s, model_config *c)
{
    const arch *a = arch_find(s->architecture);
    TRY(config_need_int(s, "block_count", 1, CONFIG_MAX_LAYERS, &c->n_layers));
    if (a && (a->takes & ARCH_NEXTN))
        TRY(config_int(s, "nextn_predict_layers", 0, c->n_layers - 1, &c->n_predicting, NULL));
    c->n_layers -= c->n_predicting;
    return LACE_OK;
}

static lace_status read_config(const config_source *s, model_config *c)
{
    bool found;
    TRY(read_n_layers(s, c));
    TRY(config_need_int(s, "embedding_length", 1, CONFIG_MAX_WIDTH, &c->n_embd));
    if (c->n_embd % 2 != 0)
        return config_bad(s, "embedding_length", LACE_E_META, "is odd, expected an even number");
    TRY(config_need_int(s, "context_length", 1, CONFIG_MAX_CONTEXT, &c->n_context));
    TRY(read_layers(s, "feed_forward_length", CONFIG_MAX_WIDTH, offsetof(layer_config, n_ff), c,
                    &found));
    /* Where all layers have experts, files may say their width alone. */
    if (!found && !gguf_find(s->g, config_key_of(s, "expert_feed_forward_length").text))
        return config_bad(s, "feed_forward_length", LACE_E_META, "is missing");
    c->n_ff = largest(c, offsetof(layer_config, n_ff));
    TRY(read_heads(s, c));
    TRY(read_eps(s, c));
    TRY(read_vocab_size(s, c, &c->n_vocab));
    TRY(read_rope(s, c, &c->rope));
    TRY(read_factors(s, c));
    TRY(read_experts(s, c));
    TRY(read_pooling(s, c));
    const arch *a = arch_find(s->architecture);
    return a && a->read ? a->read(s, c) : LACE_OK;
}

int32_t config_kv_layer(const model_config *c, int32_t layer)
{
    const layer_config *l = &c->layers[layer];
    int32_t i = layer;
    while (i >= 0 && (c->layers[i].shares_kv || c->layers[i].is_local != l->is_local ||
                      c->layers[i].kind != LAYER_ATTENTION))
        i--;
    return i;
}

bool config_share_kv(model_config *c, int32_t n)
{
    for (int32_t i = c->n_layers - n; i < c->n_layers; i++)
        c->layers[i].shares_kv = true;
    for (int32_t i = c->n_layers - n; i < c->n_layers; i++) {
        const layer_config *l = &c->layers[i];
        int32_t of = config_kv_layer(c, i);
        if (of < 0 || l->head_dim != c->layers[of].head_dim ||
            l->n_kv_heads != c->layers[of].n_kv_heads)
            return false;
    }
    return true;
}

bool config_is_uniform(const model_config *c)
{
    for (int32_t i = 1; i < c->n_layers; i++) {
        const layer_config *a = &c->layers[0], *b = &c->layers[i];
        if (a->kind != b->kind || a->n_heads != b->n_heads || a->n_kv_heads != b->n_kv_heads ||
            a->head_dim != b->head_dim || a->n_ff != b->n_ff || a->has_experts != b->has_experts ||
            a->shares_kv != b->shares_kv)
            return false;
    }
    return true;
}

lace_status config_need_experts(const model_config *c, lace_error *err)
{
    return c->n_experts > 0
               ? LACE_OK
               : error_set(err, LACE_E_META, "%s.expert_count is missing", c->architecture);
}

void config_set_windows(model_config *c, int32_t period)
{
    for (int32_t i = 0; i < c->n_layers && !c->has_layer_kinds && !c->has_window_pattern; i++)
        c->layers[i].is_local =
            c->window > 0 && period > 0 && (period == 1 || (i + 1) % period != 0);
}

void config_set_predicting(model_config *c)
{
    int32_t like = c->n_layers - 1;
    while (like > 0 && c->layers[like].kind != LAYER_ATTENTION)
        like--;
    c->layers[c->n_layers] = c->layers[like];
    c->layers[c->n_layers].kind = LAYER_ATTENTION;
    c->layers[c->n_layers].has_experts = c->layers[c->n_layers - 1].has_experts;
}

void config_set_latent(model_config *c)
{
    c->n_kv_heads = 1;
    c->head_dim = c->latent.kv_rank + c->rope.n_dims;
    c->value_dim = c->latent.kv_rank;
    for (int32_t i = 0; i < c->n_layers; i++) {
        c->layers[i].n_kv_heads = 1;
        c->layers[i].head_dim = c->head_dim;
    }
}

model_config config_default(void)
{
    return (model_config){.embedding_scale = 1,
                          .residual_scale = 1,
                          .logit_scale = 1,
                          .routing.norms = true,
                          .mup = {1, 1, 1, 1, {1, 1, 1, 1, 1}, 1, 1, 1}};
}

lace_status config_from_gguf(const gguf *g, model_config *out, lace_error *err)
{
    *out = (model_config){0};
    model_config c = config_default();
    TRY(config_architecture(g, c.architecture, err));
    config_source s = {g, c.architecture, err};
    TRY(read_config(&s, &c));
    *out = c;
    return LACE_OK;
}
