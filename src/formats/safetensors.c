/* Parsing safetensors files. */
#define _GNU_SOURCE
#include "formats/safetensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json_read.h"
#include "base/mem.h"
#include "formats/gguf.h"

struct safetensors {
    arena names;
    tensor *tensors;
    size_t n_tensors;
};

/* What the format calls the types. */
static const struct {
    const char *name;
    dtype type;
} type_names[] = {
    {"F32", DTYPE_F32},         {"F16", DTYPE_F16},         {"BF16", DTYPE_BF16},
    {"F64", DTYPE_F64},         {"F8_E4M3", DTYPE_F8_E4M3}, {"F8_E5M2", DTYPE_F8_E5M2},
    {"F8_E8M0", DTYPE_F8_E8M0}, {"F6_E2M3", DTYPE_F6_E2M3}, {"F6_E3M2", DTYPE_F6_E3M2},
    {"F4", DTYPE_F4},           {"C64", DTYPE_C64},         {"I8", DTYPE_I8},
    {"I16", DTYPE_I16},         {"I32", DTYPE_I32},         {"I64", DTYPE_I64},
    {"U8", DTYPE_U8},           {"U16", DTYPE_U16},         {"U32", DTYPE_U32},
    {"U64", DTYPE_U64},         {"BOOL", DTYPE_BOOL},
};

/* A file while it is parsed. */
typedef struct source {
    span header; /* the JSON, at byte 8 of the file */
    span data;
    lace_error *err;
} source;

/* Where a tensor's entry begins in the file; the header's begin if its name is written escaped. */
static uint64_t offset_of(const source *s, text name)
{
    char quoted[SAFETENSORS_MAX_NAME + 2];
    if (name.size > SAFETENSORS_MAX_NAME)
        return 8;
    quoted[0] = quoted[name.size + 1] = '"';
    memcpy(quoted + 1, name.data, name.size);
    const uint8_t *at = memmem(s->header.data, s->header.size, quoted, name.size + 2);
    return at ? 9 + (uint64_t)(at - s->header.data) : 8;
}

__attribute__((format(printf, 4, 5))) static lace_status fail(const source *s, lace_status status,
                                                              text name, const char *format, ...)
{
    va_list args;
    char what[256];
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return error_at(s->err, status, offset_of(s, name), "%.*s: %s", text_width(name), name.data,
                    what);
}

/* ---- One tensor ------------------------------------------------------------------------------ */

static lace_status read_type(const source *s, text name, const json_t *value, dtype *out)
{
    const char *found = json_string_value(value);
    for (size_t i = 0; found && i < sizeof type_names / sizeof *type_names; i++)
        if (strcmp(found, type_names[i].name) == 0) {
            *out = type_names[i].type;
            return LACE_OK;
        }
    if (found)
        return fail(s, LACE_E_TENSOR_TYPE, name,
                    "dtype \"%.32s\" is not a type of safetensors files", found);
    return fail(s, LACE_E_TENSOR_TYPE, name, "dtype is %s, expected a string", json_kind(value));
}

static lace_status read_shape(const source *s, text name, const json_t *value, shape *out)
{
    if (!json_is_array(value))
        return fail(s, LACE_E_DIMS, name, "shape is %s, expected an array", json_kind(value));
    enum { MOST = TENSOR_MAX_DIMS + 1 }; /* of convolutions over time; the slowest two are joined */
    size_t n = json_array_size(value);
    if (n > MOST)
        return fail(s, LACE_E_DIMS, name, "shape has %zu dimensions, expected up to %d", n, MOST);
    *out = (shape){.n_dims = n ? (int)n : 1, .dims = {1, 1, 1, 1}};
    if (n == MOST)
        out->n_dims = TENSOR_MAX_DIMS;
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(value, n - 1 - i);
        if (!json_is_integer(item))
            return fail(s, LACE_E_DIMS, name, "shape holds %s, expected integers", json_kind(item));
        if (json_integer_value(item) < 1)
            return fail(s, LACE_E_DIMS, name,
                        "shape holds %" JSON_INTEGER_FORMAT ", expected 1 or more",
                        json_integer_value(item));
        if (i < TENSOR_MAX_DIMS)
            out->dims[i] = json_integer_value(item);
        else if (json_integer_value(item) > INT64_MAX / out->dims[TENSOR_MAX_DIMS - 1])
            return fail(s, LACE_E_DIMS, name, "shape has too many values");
        else
            out->dims[TENSOR_MAX_DIMS - 1] *= json_integer_value(item);
    }
    return LACE_OK;
}

static lace_status read_offsets(const source *s, text name, const json_t *value, uint64_t *begin,
                                uint64_t *end)
{
    const json_t *first = json_array_get(value, 0), *second = json_array_get(value, 1);
    if (!json_is_array(value) || json_array_size(value) != 2 || !json_is_integer(first) ||
        !json_is_integer(second))
        return fail(s, LACE_E_OFFSET, name, "data_offsets: expected an array of two integers");
    json_int_t b = json_integer_value(first), e = json_integer_value(second);
    if (b < 0 || e < b)
        return fail(s, LACE_E_OFFSET, name,
                    "data_offsets are %" JSON_INTEGER_FORMAT " and %" JSON_INTEGER_FORMAT
                    ", expected a begin and an end",
                    b, e);
    if ((uint64_t)e > s->data.size)
        return fail(s, LACE_E_TRUNC, name,
                    "data_offsets end at %" JSON_INTEGER_FORMAT
                    ", but the data has only %zu bytes: the file is incomplete; get it again",
                    e, s->data.size);
    *begin = (uint64_t)b;
    *end = (uint64_t)e;
    return LACE_OK;
}

static lace_status read_tensor(const source *s, text name, const json_t *value, tensor *out)
{
    uint64_t begin = 0, end = 0;
    if (!json_is_object(value))
        return fail(s, LACE_E_JSON, name, "is %s, expected an object", json_kind(value));
    TRY(read_type(s, name, json_object_get(value, "dtype"), &out->type));
    TRY(read_shape(s, name, json_object_get(value, "shape"), &out->shape));
    TRY(read_offsets(s, name, json_object_get(value, "data_offsets"), &begin, &end));
    lace_error failure;
    lace_status status =
        tensor_bytes(out->type, &out->shape, &out->n_values, &out->n_bytes, &failure);
    if (status != LACE_OK)
        return fail(s, status, name, "%.200s", failure.text);
    if (end - begin != out->n_bytes) {
        char dims[96];
        return fail(s, LACE_E_SHAPE, name,
                    "data_offsets hold %" PRIu64 " bytes, but %s of %s are %" PRIu64, end - begin,
                    shape_format(&out->shape, dims), dtype_describe(out->type)->name, out->n_bytes);
    }
    out->name = name;
    out->data = s->data.data + begin;
    return LACE_OK;
}

/* ---- The directory --------------------------------------------------------------------------- */

static lace_status check_metadata(const source *s, const json_t *value)
{
    text name = text_of("__metadata__");
    const char *key;
    json_t *item;
    if (!json_is_object(value))
        return fail(s, LACE_E_META, name, "is %s, expected an object", json_kind(value));
    json_object_foreach((json_t *)value, key, item)
    {
        if (!json_is_string(item))
            return fail(s, LACE_E_META, name, "\"%.64s\" is %s, expected a string", key,
                        json_kind(item));
    }
    return LACE_OK;
}

static lace_status add_tensor(const source *s, safetensors *st, const char *key,
                              const json_t *value)
{
    text name = text_of(key);
    const char *fault = gguf_name_fault(name, SAFETENSORS_MAX_NAME);
    if (fault)
        return fail(s, LACE_E_NAME, name, "%s", fault);
    /* The JSON's own copy goes with the JSON. */
    char *copy = arena_strndup(&st->names, name.data, name.size);
    if (!copy)
        return error_nomem(s->err, "the names of tensors");
    name.data = copy;
    return read_tensor(s, name, value, &st->tensors[st->n_tensors++]);
}

static int by_offset(const void *a, const void *b)
{
    const tensor *x = a, *y = b;
    return (x->data > y->data) - (x->data < y->data);
}

/* In the order of the data, each tensor begins where the one before ended. */
static lace_status check_cover(const source *s, safetensors *st)
{
    qsort(st->tensors, st->n_tensors, sizeof *st->tensors, by_offset);
    const uint8_t *at = s->data.data;
    for (size_t i = 0; i < st->n_tensors; i++) {
        const tensor *t = &st->tensors[i];
        uint64_t begin = (uint64_t)(t->data - s->data.data);
        if (t->data < at)
            return fail(s, LACE_E_OVERLAP, t->name, "begins at %" PRIu64 ", inside of %.64s", begin,
                        st->tensors[i - 1].name.data);
        if (t->data > at)
            return fail(s, LACE_E_OFFSET, t->name,
                        "begins at %" PRIu64 ", but the tensor before ends at %" PRIu64, begin,
                        (uint64_t)(at - s->data.data));
        at = t->data + t->n_bytes;
    }
    uint64_t covered = (uint64_t)(at - s->data.data);
    if (covered != s->data.size)
        return error_at(s->err, LACE_E_TAIL, 8 + s->header.size + covered,
                        "%" PRIu64 " bytes follow the last tensor", s->data.size - covered);
    return LACE_OK;
}

static lace_status read_directory(const source *s, const json_t *root, safetensors *st)
{
    if (!json_is_object(root))
        return error_at(s->err, LACE_E_JSON, 8, "the header is %s, expected an object",
                        json_kind(root));
    const char *key;
    json_t *value;
    st->tensors = mem_calloc(json_object_size(root), sizeof *st->tensors);
    if (!st->tensors)
        return error_nomem(s->err, "the directory of tensors");
    json_object_foreach((json_t *)root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0)
            TRY(check_metadata(s, value));
        else
            TRY(add_tensor(s, st, key, value));
    }
    if (st->n_tensors == 0)
        return error_at(s->err, LACE_E_META, 8, "there are no tensors");
    return check_cover(s, st);
}

static lace_status find_header(span bytes, source *s)
{
    cursor c = {bytes, 0};
    uint64_t n;
    TRY(cursor_u64(&c, &n, "header size", s->err));
    if (n > SAFETENSORS_MAX_HEADER)
        return error_at(s->err, LACE_E_LIMIT, 0, "header size: is %" PRIu64 ", expected up to %d",
                        n, SAFETENSORS_MAX_HEADER);
    TRY(cursor_take(&c, n, &s->header, "header", s->err));
    TRY(cursor_take(&c, cursor_left(&c), &s->data, "data", s->err));
    if (n == 0 || s->header.data[0] != '{')
        return error_at(s->err, LACE_E_JSON, 8, "the header does not begin with '{'");
    return LACE_OK;
}

lace_status safetensors_parse(span bytes, safetensors **out, lace_error *err)
{
    *out = NULL;
    source s = {.err = err};
    TRY(find_header(bytes, &s));
    /* Read once: a mapped file may change between the checks of the JSON and its reading. */
    uint8_t *header = mem_alloc(s.header.size);
    safetensors *st = mem_calloc(1, sizeof *st);
    json_t *root = NULL;
    lace_status status = LACE_OK;
    if (!st || !header) {
        status = error_nomem(err, "a safetensors file");
    } else {
        memcpy(header, s.header.data, s.header.size);
        s.header.data = header;
        arena_init(&st->names, 2 * (size_t)SAFETENSORS_MAX_HEADER);
        status = json_read(s.header, 8, &root, err);
    }
    if (status == LACE_OK)
        status = read_directory(&s, root, st);
    json_decref(root);
    mem_free(header);
    return GIVE_OR_FREE(status, st, out, safetensors_free);
}

void safetensors_free(safetensors *s)
{
    if (!s)
        return;
    arena_deinit(&s->names);
    mem_free_all(s->tensors, s);
}

size_t safetensors_count(const safetensors *s)
{
    return s->n_tensors;
}

const tensor *safetensors_at(const safetensors *s, size_t i)
{
    return i < s->n_tensors ? &s->tensors[i] : NULL;
}
