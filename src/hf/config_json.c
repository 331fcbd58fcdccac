/* Checked values of config.json. */
#include "hf/config_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_read.h"

const json_t *source_get(const source *s, const char *key)
{
    const json_t *value = json_get(s->object, key);
    return value || !s->outer ? value : json_get(s->outer, key);
}

lace_status source_fail(const source *s, lace_status status, const char *key, const char *what)
{
    return error_set(s->err, status, "config.json: %s%s%s: %s", s->name ? s->name : "",
                     s->name ? "." : "", key, what);
}

/* A number, or NULL if there is none. */
static lace_status get_number(const source *s, const char *key, bool is_whole, const json_t **out,
                              bool *found)
{
    const json_t *value = *out = source_get(s, key);
    if (found)
        *found = value != NULL;
    if (!value || (is_whole ? json_is_integer(value) : json_is_number(value)))
        return LACE_OK;
    char what[128];
    snprintf(what, sizeof what, "is %s, expected %s", json_kind(value),
             is_whole ? "an integer" : "a number");
    return source_fail(s, LACE_E_META, key, what);
}

lace_status source_int(const source *s, const char *key, int64_t low, int64_t high, int32_t *out,
                       bool *found)
{
    const json_t *value;
    char what[128];
    TRY(get_number(s, key, true, &value, found));
    if (!value)
        return LACE_OK;
    json_int_t n = json_integer_value(value);
    if (n < low || n > high) {
        snprintf(what, sizeof what, "is %" JSON_INTEGER_FORMAT ", expected %" PRId64 " to %" PRId64,
                 n, low, high);
        return source_fail(s, LACE_E_META, key, what);
    }
    *out = (int32_t)n;
    return LACE_OK;
}

lace_status source_float(const source *s, const char *key, double low, double high, double *out,
                         bool *found)
{
    const json_t *value;
    TRY(get_number(s, key, false, &value, found));
    if (!value)
        return LACE_OK;
    double x = json_number_value(value);
    if (x >= low && x <= high) {
        *out = x;
        return LACE_OK;
    }
    char what[128];
    snprintf(what, sizeof what, "is %g, expected %g to %g", x, low, high);
    return source_fail(s, LACE_E_META, key, what);
}

lace_status source_bool(const source *s, const char *key, bool *out)
{
    const json_t *value = source_get(s, key);
    char what[64];
    if (!value)
        return LACE_OK;
    if (!json_is_boolean(value)) {
        snprintf(what, sizeof what, "is %s, expected true or false", json_kind(value));
        return source_fail(s, LACE_E_META, key, what);
    }
    *out = json_is_true(value);
    return LACE_OK;
}

lace_status source_expect_bool(const source *s, const char *key, bool expected)
{
    bool value = expected;
    TRY(source_bool(s, key, &value));
    if (value == expected)
        return LACE_OK;
    return source_fail(s, LACE_E_UNSUPPORTED, key,
                       expected ? "is false, expected true" : "is true, expected false");
}

lace_status source_expect_text(const source *s, const char *key, const char *expected)
{
    const json_t *value = source_get(s, key);
    const char *found = json_string_value(value);
    if (!value || (found && strcmp(found, expected) == 0))
        return LACE_OK;
    return error_set(s->err, LACE_E_UNSUPPORTED, "config.json: %s: is \"%.32s\", expected \"%s\"",
                     key, found ? found : "", expected);
}

lace_status source_need_int(const source *s, const char *key, int64_t low, int64_t high,
                            int32_t *out)
{
    TRY(source_int(s, key, low, high, out, NULL));
    return *out == 0 ? source_fail(s, LACE_E_META, key, "is missing") : LACE_OK;
}

lace_status source_need_float(const source *s, const char *key, double low, double high,
                              double *out)
{
    TRY(source_float(s, key, low, high, out, NULL));
    return *out == 0 ? source_fail(s, LACE_E_META, key, "is missing") : LACE_OK;
}

const char *source_spelling(const source *s, const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (source_get(s, keys[i]))
            return keys[i];
    return keys[0];
}

lace_status source_same_int(const source *s, const char *key, int64_t low, int64_t high,
                            int32_t *out)
{
    const json_t *list = source_get(s, key);
    if (!json_is_array(list))
        return source_int(s, key, low, high, out, NULL);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_integer(item) || json_integer_value(item) < low ||
            json_integer_value(item) > high)
            return source_fail(s, LACE_E_META, key, "expected integers within their limits");
        if (json_integer_value(item) != json_integer_value(json_array_get(list, 0)))
            return source_fail(s, LACE_E_UNSUPPORTED, key, "differs between layers");
        *out = (int32_t)json_integer_value(item);
    }
    return LACE_OK;
}

lace_status source_layers(const source *s, const char *key, int32_t n_layers, const json_t **out)
{
    *out = source_get(s, key);
    if (*out && (!json_is_array(*out) || json_array_size(*out) != (size_t)n_layers))
        return error_set(s->err, LACE_E_META,
                         "config.json: %s: has %zu items, expected one for each of %d layers", key,
                         json_array_size(*out), n_layers);
    return LACE_OK;
}

lace_status source_layer_list(const source *s, const char *key, int32_t n_layers, bool *is_listed)
{
    const json_t *list = source_get(s, key);
    for (int32_t i = 0; i < n_layers; i++)
        is_listed[i] = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0 ||
            json_integer_value(item) >= n_layers)
            return source_fail(s, LACE_E_META, key, "expected numbers of layers");
        is_listed[json_integer_value(item)] = true;
    }
    return LACE_OK;
}
