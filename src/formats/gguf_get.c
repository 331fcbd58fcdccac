/* Typed access to the metadata of a GGUF file: what was found is compared with what is expected. */
#include "formats/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const char *gguf_type_name(gguf_type type)
{
    static const char *const names[GGUF_N_TYPES] = {
        [GGUF_U8] = "u8",         [GGUF_I8] = "i8",       [GGUF_U16] = "u16", [GGUF_I16] = "i16",
        [GGUF_U32] = "u32",       [GGUF_I32] = "i32",     [GGUF_F32] = "f32", [GGUF_BOOL] = "bool",
        [GGUF_STRING] = "string", [GGUF_ARRAY] = "array", [GGUF_U64] = "u64", [GGUF_I64] = "i64",
        [GGUF_F64] = "f64",
    };
    return (unsigned)type < GGUF_N_TYPES ? names[type] : "unknown";
}

/* The value of a key; sets *out_found. NULL if absent. */
static const gguf_value *look_up(const gguf *g, const char *key, bool *out_found)
{
    const gguf_value *v = gguf_find(g, key);
    if (out_found)
        *out_found = v != NULL;
    return v;
}

static lace_status wrong_type(const gguf_value *v, const char *key, const char *expected,
                              lace_error *err)
{
    return error_at(err, LACE_E_META, v->offset, "%s: is %s%s%s, expected %s", key,
                    gguf_type_name(v->type), v->type == GGUF_ARRAY ? " of " : "",
                    v->type == GGUF_ARRAY ? gguf_type_name(v->item_type) : "", expected);
}

bool gguf_value_int(const gguf_value *value, uint64_t i, int64_t *out)
{
    *out = 0;
    if (i >= value->n_items)
        return false;
    const uint8_t *p = value->bytes.data;
    switch (value->item_type) {
    case GGUF_U8:
        *out = p[i];
        return true;
    case GGUF_I8:
        *out = (int8_t)p[i];
        return true;
    case GGUF_U16:
        *out = load_u16(p + 2 * i);
        return true;
    case GGUF_I16:
        *out = (int16_t)load_u16(p + 2 * i);
        return true;
    case GGUF_U32:
        *out = load_u32(p + 4 * i);
        return true;
    case GGUF_I32:
        *out = (int32_t)load_u32(p + 4 * i);
        return true;
    case GGUF_U64:
    case GGUF_I64:
        *out = (int64_t)load_u64(p + 8 * i);
        return value->item_type == GGUF_I64 || *out >= 0;
    default:
        return false;
    }
}

lace_status gguf_get_int(const gguf *g, const char *key, int64_t low, int64_t high, int64_t *out,
                         bool *out_found, lace_error *err)
{
    const gguf_value *v = look_up(g, key, out_found);
    if (!v)
        return LACE_OK;
    int64_t n;
    if (!gguf_value_int(v, 0, &n) || v->type == GGUF_ARRAY) {
        if (v->type != GGUF_U64)
            return wrong_type(v, key, "an integer", err);
        return error_at(err, LACE_E_META, v->offset,
                        "%s: is %" PRIu64 ", expected %" PRId64 " to %" PRId64, key, (uint64_t)n,
                        low, high);
    }
    if (n < low || n > high)
        return error_at(err, LACE_E_META, v->offset,
                        "%s: is %" PRId64 ", expected %" PRId64 " to %" PRId64, key, n, low, high);
    *out = n;
    return LACE_OK;
}

lace_status gguf_get_float(const gguf *g, const char *key, double low, double high, double *out,
                           bool *out_found, lace_error *err)
{
    const gguf_value *v = look_up(g, key, out_found);
    if (!v)
        return LACE_OK;
    double x;
    if (v->type == GGUF_F32) {
        x = (double)load_f32(v->bytes.data);
    } else if (v->type == GGUF_F64) {
        uint64_t bits = load_u64(v->bytes.data);
        memcpy(&x, &bits, sizeof x);
    } else {
        return wrong_type(v, key, "f32", err);
    }
    if (!isfinite(x) || !(x >= low && x <= high))
        return error_at(err, LACE_E_META, v->offset, "%s: is %g, expected %g to %g", key, x, low,
                        high);
    *out = x;
    return LACE_OK;
}

/* The value of a key if it is of this type; *out is NULL if it is absent. */
static lace_status look_up_as(const gguf *g, const char *key, gguf_type type, const char *name,
                              const gguf_value **out, bool *out_found, lace_error *err)
{
    *out = look_up(g, key, out_found);
    return *out && (*out)->type != type ? wrong_type(*out, key, name, err) : LACE_OK;
}

lace_status gguf_get_bool(const gguf *g, const char *key, bool *out, bool *out_found,
                          lace_error *err)
{
    const gguf_value *v;
    TRY(look_up_as(g, key, GGUF_BOOL, "bool", &v, out_found, err));
    if (v)
        *out = v->bytes.data[0] != 0;
    return LACE_OK;
}

lace_status gguf_get_text(const gguf *g, const char *key, text *out, bool *out_found,
                          lace_error *err)
{
    const gguf_value *v;
    TRY(look_up_as(g, key, GGUF_STRING, "a string", &v, out_found, err));
    if (v)
        *out = (text){(const char *)v->bytes.data, v->bytes.size};
    return LACE_OK;
}

lace_status gguf_get_array(const gguf *g, const char *key, gguf_type item_type,
                           const gguf_value **out, lace_error *err)
{
    *out = NULL;
    const gguf_value *v = gguf_find(g, key);
    if (!v)
        return LACE_OK;
    if (v->type != GGUF_ARRAY || v->item_type != item_type)
        return error_at(err, LACE_E_META, v->offset, "%s: is %s%s%s, expected an array of %s", key,
                        gguf_type_name(v->type), v->type == GGUF_ARRAY ? " of " : "",
                        v->type == GGUF_ARRAY ? gguf_type_name(v->item_type) : "",
                        gguf_type_name(item_type));
    *out = v;
    return LACE_OK;
}

void gguf_array_texts(const gguf_value *array, text *out)
{
    const uint8_t *p = array->bytes.data;
    for (uint64_t i = 0; i < array->n_items; i++) {
        size_t size = (size_t)load_u64(p);
        out[i] = (text){(const char *)p + 8, size};
        p += 8 + size;
    }
}
