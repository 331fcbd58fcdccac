/* Checked values of GGUF metadata. */
#include "model/config_source.h"

#include <inttypes.h>
#include <stdio.h>

config_key config_key_of(const config_source *s, const char *name)
{
    config_key k;
    snprintf(k.text, sizeof k.text, "%s.%s", s->architecture, name);
    return k;
}

lace_status config_bad(const config_source *s, const char *name, lace_status status,
                       const char *what)
{
    config_key k = config_key_of(s, name);
    const gguf_value *v = gguf_find(s->g, k.text);
    if (!v)
        return error_set(s->err, status, "%s: %s", k.text, what);
    return error_at(s->err, status, v->offset, "%s: %s", k.text, what);
}

lace_status config_int(const config_source *s, const char *name, int64_t low, int64_t high,
                       int32_t *out, bool *found)
{
    int64_t x = *out;
    TRY(gguf_get_int(s->g, config_key_of(s, name).text, low, high, &x, found, s->err));
    *out = (int32_t)x;
    return LACE_OK;
}

lace_status config_need_int(const config_source *s, const char *name, int64_t low, int64_t high,
                            int32_t *out)
{
    bool found;
    TRY(config_int(s, name, low, high, out, &found));
    return found ? LACE_OK : config_bad(s, name, LACE_E_META, "is missing");
}

lace_status config_float(const config_source *s, const char *name, double low, double high,
                         double *out, bool *found)
{
    return gguf_get_float(s->g, config_key_of(s, name).text, low, high, out, found, s->err);
}

lace_status config_bool(const config_source *s, const char *name, bool *out, bool *found)
{
    return gguf_get_bool(s->g, config_key_of(s, name).text, out, found, s->err);
}

lace_status config_layers_int(const config_source *s, const char *name, int32_t n_layers,
                              int64_t low, int64_t high, int32_t *out, size_t stride, bool *found)
{
    config_key k = config_key_of(s, name);
    const gguf_value *v = gguf_find(s->g, k.text);
    bool is_list = v && v->type == GGUF_ARRAY;
    int32_t one = *out;
    if (found)
        *found = v != NULL;
    if (!v)
        return LACE_OK;
    if (!is_list)
        TRY(config_int(s, name, low, high, &one, NULL));
    if (is_list && v->n_items != (uint64_t)n_layers)
        return error_at(s->err, LACE_E_META, v->offset,
                        "%s: has %" PRIu64 " items, expected one for each of %d layers", k.text,
                        v->n_items, n_layers);
    for (int32_t i = 0; i < n_layers; i++) {
        int64_t item = one;
        if (is_list && (!gguf_value_int(v, (uint64_t)i, &item) || item < low || item > high))
            return error_at(s->err, LACE_E_META, v->offset,
                            "%s: item %d is not an integer from %" PRId64 " to %" PRId64, k.text, i,
                            low, high);
        *(int32_t *)((char *)out + (size_t)i * stride) = (int32_t)item;
    }
    return LACE_OK;
}

lace_status config_sections(const config_source *s, rope_config *out)
{
    config_key k = config_key_of(s, "rope.dimension_sections");
    const gguf_value *v = gguf_find(s->g, k.text);
    int64_t sum = 0, item;
    if (!v)
        return LACE_OK;
    for (uint64_t i = 0; v->type == GGUF_ARRAY && i < v->n_items && i < 4; i++) {
        if (!gguf_value_int(v, i, &item) || item < 0 || item > out->n_dims / 2 - sum)
            return error_at(s->err, LACE_E_META, v->offset,
                            "%s: item %d is not an integer from 0 to %d, the frequencies that are "
                            "left",
                            k.text, (int)i, (int)(out->n_dims / 2 - sum));
        out->sections[i] = (int32_t)item;
        sum += item;
    }
    if (v->type != GGUF_ARRAY || v->n_items > 4)
        return error_at(s->err, LACE_E_META, v->offset, "%s: expected an array of up to 4 numbers",
                        k.text);
    return LACE_OK;
}
