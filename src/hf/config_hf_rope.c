/* The rotary embedding of config.json, with the methods that stretch it for longer contexts. */
#include <math.h>
#include <string.h>

#include "base/json_read.h"
#include "hf/config_json.h"

static const double PI = 3.14159265358979323846;

typedef enum method { DEFAULT, LINEAR, YARN, LLAMA3, LONGROPE, ALPHA, PROPORTIONAL } method;

static lace_status read_method(const source *s, method *out)
{
    static const struct {
        const char *name;
        method value;
    } methods[] = {{"default", DEFAULT},   {"linear", LINEAR},
                   {"yarn", YARN},         {"llama3", LLAMA3},
                   {"longrope", LONGROPE}, {"su", LONGROPE},
                   {"dynamic", ALPHA},     {"proportional", PROPORTIONAL}};
    const char *key = source_get(s, "rope_type") ? "rope_type" : "type"; /* "type" until 2024 */
    const json_t *value = source_get(s, key);
    const char *name = json_string_value(value);
    *out = DEFAULT;
    for (size_t i = 0; name && i < sizeof methods / sizeof *methods; i++)
        if (strcmp(name, methods[i].name) == 0) {
            *out = methods[i].value;
            return LACE_OK;
        }
    return value ? source_fail(s, LACE_E_UNSUPPORTED, key,
                               "expected default, linear, yarn, llama3, longrope or proportional")
                 : LACE_OK;
}

/* The factor that positions are divided by; by default how much longer the context became. */
static lace_status read_factor(const source *s, const model_config *c, double *out)
{
    bool found;
    *out = 1;
    TRY(source_float(s, "factor", 1e-3, 1e6, out, &found));
    if (found)
        return LACE_OK;
    if (!source_get(s, "original_max_position_embeddings"))
        return source_fail(s, LACE_E_META, "factor", "is missing");
    *out = (double)c->n_context / c->rope.original_context;
    return LACE_OK;
}

/* ---- llama3 ---------------------------------------------------------------------------------- */

/*
 * Frequencies with a wavelength above original / low_freq_factor are divided by the factor, those
 * below original / high_freq_factor stay, with a ramp in between. Float where the reference
 * computes with float, so that the divisors are the same to the last bit.
 */
static lace_status read_llama3(const source *s, hf_config *h)
{
    rope_config *r = &h->model.rope;
    double factor = 8, low = 1, high = 4;
    TRY(source_float(s, "factor", 1e-3, 1e6, &factor, NULL));
    TRY(source_float(s, "low_freq_factor", 1e-3, 1e6, &low, NULL));
    TRY(source_float(s, "high_freq_factor", 1e-3, 1e6, &high, NULL));
    if (high <= low)
        return source_fail(s, LACE_E_META, "high_freq_factor",
                           "expected more than low_freq_factor");
    double original = r->original_context;
    for (int32_t i = 0; i < r->n_dims / 2; i++) {
        float frequency = 1.0f / powf((float)r->base, (float)(2 * i) / (float)r->n_dims);
        float wavelength = (float)(2 * PI) / frequency;
        float smooth = ((float)original / wavelength - (float)low) / (float)(high - low);
        if (wavelength < (float)(original / high))
            h->rope_factors[i] = 1;
        else if (wavelength > (float)(original / low))
            h->rope_factors[i] = (float)factor;
        else
            h->rope_factors[i] = 1 / ((1 - smooth) / (float)factor + smooth);
    }
    h->has_rope_factors = true;
    return LACE_OK;
}

/* ---- proportional ---------------------------------------------------------------------------- */

/* Pairs lie as far apart as if all were turned, but only the first ones are. */
static lace_status read_proportional(const source *s, hf_config *h)
{
    static const float never = 1e30f; /* a divisor that stops a pair, as GGUF files have it */
    rope_config *r = &h->model.rope;
    double part = 1, factor = 1;
    TRY(source_float(s, "partial_rotary_factor", 0, 1, &part, NULL));
    TRY(source_float(s, "factor", 1e-3, 1e6, &factor, NULL));
    r->n_dims = h->model.head_dim;
    int32_t n_turned = (int32_t)(part * r->n_dims / 2);
    for (int32_t i = 0; i < r->n_dims / 2; i++)
        h->rope_factors[i] = i < n_turned ? (float)factor : never;
    h->has_rope_factors = true;
    return LACE_OK;
}

/* ---- longrope -------------------------------------------------------------------------------- */

static lace_status read_list(const source *s, const char *key, int32_t n, float *out)
{
    const json_t *list = source_get(s, key);
    if (!json_is_array(list) || json_array_size(list) != (size_t)n)
        return error_set(s->err, LACE_E_META,
                         "config.json: %s.%s: has %zu items, expected %d numbers", s->name, key,
                         json_array_size(list), n);
    for (int32_t i = 0; i < n; i++) {
        double x = json_number_value(json_array_get(list, (size_t)i));
        if (!(x >= 1e-6 && x <= 1e6))
            return error_set(s->err, LACE_E_META,
                             "config.json: %s.%s: item %d is %g, expected 1e-6 to 1e6", s->name,
                             key, i, x);
        out[i] = (float)x;
    }
    return LACE_OK;
}

static lace_status read_longrope(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    rope_config *r = &c->rope;
    r->scaling = ROPE_LONGROPE;
    TRY(read_list(s, "short_factor", r->n_dims / 2, h->short_factors));
    TRY(read_list(s, "long_factor", r->n_dims / 2, h->long_factors));
    h->has_long_factors = true;
    double stretch = (double)c->n_context / r->original_context;
    r->attention_factor = stretch > 1 ? sqrt(1 + log(stretch) / log(r->original_context)) : 1;
    double near = 0, far = 0; /* Phi-3.5-MoE has two factors, which are the same */
    TRY(source_float(s, "short_mscale", 1e-3, 1e3, &near, NULL));
    TRY(source_float(s, "long_mscale", 1e-3, 1e3, &far, NULL));
    if (near != far)
        return source_fail(s, LACE_E_UNSUPPORTED, "long_mscale", "differs from short_mscale");
    r->attention_factor = near > 0 ? near : r->attention_factor;
    return source_float(s, "attention_factor", 1e-3, 1e3, &r->attention_factor, NULL);
}

/* ---- yarn ------------------------------------------------------------------------------------ */

static double yarn_mscale(double factor, double weight)
{
    return factor <= 1 ? 1 : 0.1 * weight * log(factor) + 1;
}

static lace_status read_yarn(const source *s, model_config *c)
{
    rope_config *r = &c->rope;
    bool truncates = true, has_factor;
    double mscale = 0, mscale_all = 0;
    r->scaling = ROPE_YARN;
    TRY(read_factor(s, c, &r->factor));
    TRY(source_float(s, "beta_fast", 1e-3, 1e6, &r->yarn_beta_fast, NULL));
    TRY(source_float(s, "beta_slow", 1e-3, 1e6, &r->yarn_beta_slow, NULL));
    TRY(source_bool(s, "truncate", &truncates));
    r->yarn_keeps_fractions = !truncates;
    TRY(source_float(s, "attention_factor", 1e-3, 1e3, &r->attention_factor, &has_factor));
    TRY(source_float(s, "mscale", 0, 1e3, &mscale, NULL));
    TRY(source_float(s, "mscale_all_dim", 0, 1e3, &mscale_all, NULL));
    r->yarn_mscale_all = mscale_all;
    if (!has_factor && mscale != 0 && mscale_all != 0)
        r->attention_factor = yarn_mscale(r->factor, mscale) / yarn_mscale(r->factor, mscale_all);
    return LACE_OK;
}

/* ---------------------------------------------------------------------------------------------- */

/* Hunyuan's: a base that grows with alpha, at once and for all lengths. */
static lace_status read_alpha(const source *s, rope_config *r)
{
    double alpha = 0;
    bool found;
    TRY(source_float(s, "alpha", 1e-3, 1e9, &alpha, &found));
    if (!found)
        return source_fail(s, LACE_E_UNSUPPORTED, source_get(s, "rope_type") ? "rope_type" : "type",
                           "is dynamic without alpha, which lace does not compute");
    if (r->n_dims > 2)
        r->base *= pow(alpha, (double)r->n_dims / (r->n_dims - 2));
    return LACE_OK;
}

/* Rotated values of a head. */
static lace_status read_n_dims(const source *s, model_config *c)
{
    double part = 1;
    TRY(source_float(s, "partial_rotary_factor", 1e-6, 1, &part, NULL));
    c->rope.n_dims = (int32_t)(c->head_dim * part);
    bool is_odd =
        c->rope.n_dims % 2 != 0 && c->head_dim % 2 == 0; /* odd heads: latents have a key */
    if (c->rope.n_dims < 2 || is_odd)
        return source_fail(s, LACE_E_META, "partial_rotary_factor",
                           "expected an even number of rotated values, 2 or more");
    return LACE_OK;
}

/* The object with the method, and inside of it the one for layers that see everything. */
static lace_status find_rope(const source *s, source *all, source *local)
{
    const char *name = source_get(s, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    const json_t *object = source_get(s, name);
    if (object && !json_is_object(object))
        return source_fail(s, LACE_E_META, name, "expected an object");
    const json_t *full = json_object_get(object, "full_attention");
    const json_t *sliding = json_object_get(object, "sliding_attention");
    /* The older spelling has these numbers beside the object. */
    *all = (source){json_is_object(full) ? full : object, s->object, name, s->err};
    *local = (source){json_is_object(sliding) ? sliding : NULL, NULL, name, s->err};
    return LACE_OK;
}

lace_status hf_rope_read(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    rope_config *r = &c->rope;
    source all, local;
    method how;
    TRY(find_rope(s, &all, &local));
    r->is_neox = true;
    r->base = r->base > 0 ? r->base : 10000;
    r->factor = 1;
    r->yarn_beta_fast = 32;
    r->yarn_beta_slow = 1;
    r->original_context = c->n_context;
    TRY(read_method(&all, &how));
    if (how != PROPORTIONAL)
        TRY(read_n_dims(&all, c));
    TRY(source_float(&all, "rope_theta", 2, 1e15, &r->base, NULL));
    TRY(source_float(s, "rope_local_base_freq", 2, 1e15, &c->rope_local_base, NULL));
    TRY(source_float(&local, "rope_theta", 2, 1e15, &c->rope_local_base, NULL));
    TRY(source_int(&all, "original_max_position_embeddings", 1, CONFIG_MAX_CONTEXT,
                   &r->original_context, NULL));
    switch (how) {
    case LINEAR:
        TRY(read_factor(&all, c, &r->factor));
        r->scaling = r->factor == 1 ? ROPE_PLAIN : ROPE_LINEAR;
        return LACE_OK;
    case YARN:
        return read_yarn(&all, c);
    case LLAMA3:
        return read_llama3(&all, h);
    case LONGROPE:
        return read_longrope(&all, h);
    case ALPHA:
        return read_alpha(&all, r);
    case PROPORTIONAL:
        return read_proportional(&all, h);
    default:
        return LACE_OK;
    }
}

lace_status hf_read_sections(const source *s, rope_config *r)
{
    const char *name = source_get(s, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    const json_t *list = json_object_get(source_get(s, name), "mrope_section");
    int32_t left = r->n_dims / 2;
    if (!list)
        return LACE_OK;
    if (!json_is_array(list) || json_array_size(list) > 4)
        return source_fail(s, LACE_E_META, "mrope_section", "expected a list of up to 4 numbers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t n = json_integer_value(item);
        if (!json_is_integer(item) || n < 0 || n > left)
            return source_fail(s, LACE_E_META, "mrope_section",
                               "expected whole numbers whose sum is at most the number of "
                               "frequencies");
        r->sections[i] = (int32_t)n;
        left -= (int32_t)n;
    }
    return LACE_OK;
}
