/* Reading a model's hyperparameters from GGUF metadata, each one checked against its range. */
#include "model/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Where the numbers come from: a file, and the prefix of its keys. */
typedef struct source {
    const gguf *g;
    const char *architecture;
    lace_error *err;
} source;

typedef struct key {
    char text[160]; /* an architecture of up to 63 bytes, a dot, and a name from this file */
} key;

static key key_of(const source *s, const char *name)
{
    key k;
    snprintf(k.text, sizeof k.text, "%s.%s", s->architecture, name);
    return k;
}

/* A bad value at its place in the file. */
static lace_status bad(const source *s, const key *k, lace_status status, const char *what)
{
    const gguf_value *v = gguf_find(s->g, k->text);
    if (!v)
        return error_set(s->err, status, "%s: %s", k->text, what);
    return error_at(s->err, status, v->offset, "%s: %s", k->text, what);
}

/* ---- Single values --------------------------------------------------------------------------- */

/* An optional integer: *out keeps its value when the key is absent. */
static lace_status get_int(const source *s, const char *name, int64_t low, int64_t high,
                           int32_t *out, bool *found)
{
    key k = key_of(s, name);
    int64_t value = *out;
    TRY(gguf_get_int(s->g, k.text, low, high, &value, found, s->err));
    *out = (int32_t)value;
    return LACE_OK;
}

static lace_status need_int(const source *s, const char *name, int64_t low, int64_t high,
                            int32_t *out)
{
    bool found;
    TRY(get_int(s, name, low, high, out, &found));
    key k = key_of(s, name);
    return found ? LACE_OK : bad(s, &k, LACE_E_META, "is missing");
}

/* One number for all layers, stored as such or as an array with an item for each layer. */
static lace_status get_layers_int(const source *s, const char *name, int32_t n_layers, int64_t high,
                                  int32_t *out, bool *found)
{
    key k = key_of(s, name);
    const gguf_value *v = gguf_find(s->g, k.text);
    if (!v || v->type != GGUF_ARRAY)
        return get_int(s, name, 1, high, out, found);
    *found = true;
    if (v->n_items != (uint64_t)n_layers)
        return error_at(s->err, LACE_E_META, v->offset,
                        "%s: has %" PRIu64 " items, expected one for each of %d layers", k.text,
                        v->n_items, n_layers);
    int64_t first = 0;
    for (uint64_t i = 0; i < v->n_items; i++) {
        int64_t item;
        if (!gguf_value_int(v, i, &item) || item < 1 || item > high)
            return error_at(s->err, LACE_E_META, v->offset,
                            "%s: item %" PRIu64 " is not an integer from 1 to %" PRId64, k.text, i,
                            high);
        if (i > 0 && item != first)
            return bad(s, &k, LACE_E_UNSUPPORTED, "differs between layers, expected one value");
        first = item;
    }
    *out = (int32_t)first;
    return LACE_OK;
}

static lace_status get_float(const source *s, const char *name, double low, double high,
                             double *out, bool *found)
{
    key k = key_of(s, name);
    return gguf_get_float(s->g, k.text, low, high, out, found, s->err);
}

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

static lace_status read_heads(const source *s, model_config *c)
{
    bool found;
    TRY(get_layers_int(s, "attention.head_count", c->n_layers, CONFIG_MAX_HEADS, &c->n_heads,
                       &found));
    key k = key_of(s, "attention.head_count");
    if (!found)
        return bad(s, &k, LACE_E_META, "is missing");
    c->n_kv_heads = c->n_heads;
    TRY(get_layers_int(s, "attention.head_count_kv", c->n_layers, c->n_heads, &c->n_kv_heads,
                       &found));
    key kv = key_of(s, "attention.head_count_kv");
    if (c->n_heads % c->n_kv_heads != 0)
        return bad(s, &kv, LACE_E_META, "does not divide attention.head_count");

    TRY(get_int(s, "attention.key_length", 1, CONFIG_MAX_HEAD_DIM, &c->head_dim, &found));
    if (!found) {
        key embd = key_of(s, "embedding_length");
        if (c->n_embd % c->n_heads != 0)
            return bad(s, &embd, LACE_E_META, "is not a multiple of attention.head_count");
        c->head_dim = c->n_embd / c->n_heads;
    }
    key length = key_of(s, found ? "attention.key_length" : "embedding_length");
    if (c->head_dim % 2 != 0 || c->head_dim > CONFIG_MAX_HEAD_DIM ||
        (int64_t)c->n_heads * c->head_dim > CONFIG_MAX_WIDTH)
        return error_set(s->err, LACE_E_META,
                         "%s: gives %d heads of %d values, expected an even number up to %d, "
                         "and %d in all",
                         length.text, c->n_heads, c->head_dim, CONFIG_MAX_HEAD_DIM,
                         CONFIG_MAX_WIDTH);
    int32_t value_length = c->n_embd / c->n_heads; /* whatever key_length says, as in llama.cpp */
    TRY(get_int(s, "attention.value_length", 1, CONFIG_MAX_HEAD_DIM, &value_length, &found));
    key value = key_of(s, found ? "attention.value_length" : "attention.key_length");
    if (value_length != c->head_dim)
        return bad(s, &value, LACE_E_UNSUPPORTED,
                   "keys and values have different lengths, which lace does not support");
    return LACE_OK;
}

static lace_status read_vocab_size(const source *s, const model_config *c, int32_t *out)
{
    bool found;
    TRY(get_int(s, "vocab_size", 1, CONFIG_MAX_VOCAB, out, &found));
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

static lace_status read_rope_type(const source *s, bool *is_off, rope_scaling *out)
{
    static const struct {
        const char *name;
        rope_scaling scaling;
    } types[] = {{"none", ROPE_PLAIN},
                 {"linear", ROPE_LINEAR},
                 {"yarn", ROPE_YARN},
                 {"longrope", ROPE_LONGROPE}};
    key k = key_of(s, "rope.scaling.type");
    text name = {NULL, 0};
    bool found;
    *out = ROPE_LINEAR; /* a factor without a type means this */
    *is_off = false;
    TRY(gguf_get_text(s->g, k.text, &name, &found, s->err));
    for (size_t i = 0; found && i < sizeof types / sizeof types[0]; i++)
        if (text_is(name, types[i].name)) {
            *out = types[i].scaling;
            *is_off = i == 0;
            return LACE_OK;
        }
    return found ? bad(s, &k, LACE_E_UNSUPPORTED, "expected none, linear, yarn or longrope")
                 : LACE_OK;
}

static lace_status read_rope_factor(const source *s, double *out)
{
    bool found;
    *out = 0;
    const char *name = "rope.scaling.factor";
    TRY(get_float(s, name, 0, 1e6, out, &found));
    if (!found) {
        name = "rope.scale_linear"; /* until 2023 */
        TRY(get_float(s, name, 0, 1e6, out, &found));
    }
    if (*out == 0) { /* some writers mean "none" by it */
        *out = 1;
        return LACE_OK;
    }
    return get_float(s, name, 1e-3, 1e6, out, NULL);
}

/* YaRN's correction of the attention's temperature. */
static double yarn_mscale(double factor, double weight)
{
    return factor <= 1 ? 1 : 0.1 * weight * log(factor) + 1;
}

static lace_status read_rope_attention(const source *s, rope_config *r)
{
    bool has_factor, has_log;
    double factor = 1, log_multiplier = 0;
    TRY(get_float(s, "rope.scaling.attn_factor", 1e-3, 1e3, &factor, &has_factor));
    TRY(get_float(s, "rope.scaling.yarn_log_multiplier", 0, 1e3, &log_multiplier, &has_log));
    /* The file's factor multiplies what the method prescribes. */
    if (r->scaling == ROPE_YARN && (has_factor || log_multiplier != 0))
        r->attention_factor = factor * yarn_mscale(r->factor, 1) /
                              (log_multiplier != 0 ? yarn_mscale(r->factor, log_multiplier) : 1);
    else if (has_factor)
        r->attention_factor = factor;
    return LACE_OK;
}

static lace_status read_rope(const source *s, const model_config *c, rope_config *r)
{
    bool is_off, found;
    r->n_dims = c->head_dim;
    TRY(get_int(s, "rope.dimension_count", 2, c->head_dim, &r->n_dims, &found));
    key k = key_of(s, "rope.dimension_count");
    if (r->n_dims % 2 != 0)
        return bad(s, &k, LACE_E_META, "is odd, expected an even number");
    r->base = 10000;
    /* YaRN divides by the base's logarithm, so 1 is not enough. */
    TRY(get_float(s, "rope.freq_base", 2, 1e15, &r->base, NULL));
    TRY(read_rope_type(s, &is_off, &r->scaling));
    TRY(read_rope_factor(s, &r->factor));
    if (is_off)
        r->factor = 1;
    if (r->scaling == ROPE_LINEAR && r->factor == 1)
        r->scaling = ROPE_PLAIN;
    r->original_context = c->n_context;
    TRY(get_int(s, "rope.scaling.original_context_length", 1, CONFIG_MAX_CONTEXT,
                &r->original_context, NULL));
    r->yarn_beta_fast = 32;
    r->yarn_beta_slow = 1;
    TRY(get_float(s, "rope.scaling.yarn_beta_fast", 1e-3, 1e6, &r->yarn_beta_fast, NULL));
    TRY(get_float(s, "rope.scaling.yarn_beta_slow", 1e-3, 1e6, &r->yarn_beta_slow, NULL));
    return read_rope_attention(s, r);
}

/* ---------------------------------------------------------------------------------------------- */

static lace_status read_factors(const source *s, model_config *c)
{
    TRY(get_int(s, "attention.sliding_window", 0, CONFIG_MAX_CONTEXT, &c->window, NULL));
    TRY(get_float(s, "rope.freq_base_swa", 2, 1e15, &c->rope_local_base, NULL));
    TRY(get_float(s, "embedding_scale", 1e-6, 1e6, &c->embedding_scale, NULL));
    TRY(get_float(s, "residual_scale", 1e-6, 1e6, &c->residual_scale, NULL));
    TRY(get_float(s, "logit_scale", 1e-6, 1e6, &c->logit_scale, NULL));
    TRY(get_float(s, "attention.scale", 0, 1e6, &c->attention_scale, NULL));
    TRY(get_float(s, "attn_logit_softcapping", 0, 1e6, &c->attention_softcap, NULL));
    return get_float(s, "final_logit_softcapping", 0, 1e6, &c->final_softcap, NULL);
}

static lace_status read_experts(const source *s, model_config *c)
{
    TRY(get_int(s, "expert_count", 0, CONFIG_MAX_EXPERTS, &c->n_experts, NULL));
    if (c->n_experts == 0)
        return LACE_OK;
    TRY(need_int(s, "expert_used_count", 1, c->n_experts, &c->n_experts_used));
    c->n_ff_expert = c->n_ff;
    TRY(get_int(s, "expert_feed_forward_length", 1, CONFIG_MAX_WIDTH, &c->n_ff_expert, NULL));
    return gguf_get_bool(s->g, key_of(s, "expert_weights_norm").text, &c->norms_experts, NULL,
                         s->err);
}

static lace_status read_config(const source *s, model_config *c)
{
    bool found;
    TRY(need_int(s, "block_count", 1, CONFIG_MAX_LAYERS, &c->n_layers));
    TRY(need_int(s, "embedding_length", 1, CONFIG_MAX_WIDTH, &c->n_embd));
    key embd = key_of(s, "embedding_length");
    if (c->n_embd % 2 != 0)
        return bad(s, &embd, LACE_E_META, "is odd, expected an even number");
    TRY(need_int(s, "context_length", 1, CONFIG_MAX_CONTEXT, &c->n_context));
    TRY(get_layers_int(s, "feed_forward_length", c->n_layers, CONFIG_MAX_WIDTH, &c->n_ff, &found));
    key ff = key_of(s, "feed_forward_length");
    if (!found)
        return bad(s, &ff, LACE_E_META, "is missing");
    TRY(read_heads(s, c));
    TRY(get_float(s, "attention.layer_norm_rms_epsilon", 1e-30, 0.999, &c->rms_eps, &found));
    key eps = key_of(s, "attention.layer_norm_rms_epsilon");
    if (!found)
        return bad(s, &eps, LACE_E_META, "is missing");
    TRY(read_vocab_size(s, c, &c->n_vocab));
    TRY(read_rope(s, c, &c->rope));
    TRY(read_factors(s, c));
    return read_experts(s, c);
}

model_config config_default(void)
{
    return (model_config){
        .embedding_scale = 1, .residual_scale = 1, .logit_scale = 1, .norms_experts = true};
}

lace_status config_from_gguf(const gguf *g, model_config *out, lace_error *err)
{
    *out = (model_config){0};
    model_config c = config_default();
    TRY(config_architecture(g, c.architecture, err));
    source s = {g, c.architecture, err};
    TRY(read_config(&s, &c));
    *out = c;
    return LACE_OK;
}
