/*
 * Parsing GGUF: one pass over the metadata and the directory, in which every length is compared
 * with the bytes that remain before anything is allocated or read.
 */
#include "formats/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/utf8.h"

enum {
    MIN_VALUE_BYTES = 8 + 1 + 4 + 1,          /* key of one byte, type, value of one byte */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* name of one byte, one dimension */
    DEFAULT_ALIGNMENT = 32,
    FIRST_READ = 1 << 16, /* of a file that is copied */
};

struct gguf {
    uint32_t version;
    uint64_t alignment;
    uint64_t data_offset;
    uint8_t *head; /* owned copy of what comes before the data; NULL: it is read where it lies */
    gguf_value *values;
    size_t n_values;
    tensor *tensors;
    size_t n_tensors;
    map value_of_key;
    map tensor_of_name;
};

/* What a pass over the file knows at a point. */
typedef struct parser {
    cursor at; /* over the whole file; of which only this much can be read: */
    size_t readable;
    size_t wanted;       /* 0, or how much should have been readable to go on */
    span file;           /* where the data of the tensors lies */
    text item;           /* the key or tensor being read, for messages; empty in the header */
    uint64_t texts_left; /* how many more strings the arrays may hold */
    gguf *g;
    lace_error *err;
} parser;

/* Bytes that an item of a type takes; 0 for those whose length is stored with them. */
static const uint8_t type_bytes[GGUF_N_TYPES] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

/* ---- Reading --------------------------------------------------------------------------------- */

static lace_status take(parser *p, size_t n_bytes, const uint8_t **out, const char *field)
{
    size_t left = cursor_left(&p->at);
    *out = NULL;
    if (n_bytes > left)
        return error_at(p->err, LACE_E_TRUNC, p->at.at, "%s%s%.*s: needs %zu bytes, %zu are left",
                        field, p->item.size ? " of " : "", text_width(p->item), p->item.data,
                        n_bytes, left);
    if (p->at.at + n_bytes > GGUF_MAX_HEAD)
        return error_at(
            p->err, LACE_E_LIMIT, p->at.at,
            "%s%s%.*s: with these %zu bytes, metadata and tensor directory are larger than %d MiB",
            field, p->item.size ? " of " : "", text_width(p->item), p->item.data, n_bytes,
            GGUF_MAX_HEAD >> 20);
    if (p->at.at + n_bytes > p->readable) {
        p->wanted = p->at.at + n_bytes;
        return error_at(p->err, LACE_E_TRUNC, p->at.at, "more is to be read");
    }
    *out = p->at.bytes.data + p->at.at;
    p->at.at += n_bytes;
    return LACE_OK;
}

static lace_status take_u32(parser *p, uint32_t *out, const char *field)
{
    const uint8_t *bytes;
    TRY(take(p, 4, &bytes, field));
    *out = load_u32(bytes);
    return LACE_OK;
}

static lace_status take_u64(parser *p, uint64_t *out, const char *field)
{
    const uint8_t *bytes;
    TRY(take(p, 8, &bytes, field));
    *out = load_u64(bytes);
    return LACE_OK;
}

/* A length and that many characters. */
static lace_status take_text(parser *p, text *out, const char *field)
{
    size_t start = p->at.at;
    uint64_t length;
    const uint8_t *bytes;
    TRY(take_u64(p, &length, field));
    if (length > cursor_left(&p->at))
        return error_at(p->err, LACE_E_STRLEN, start,
                        "%s%s%.*s: is a string of %" PRIu64 " bytes, but only %zu are left", field,
                        p->item.size ? " of " : "", text_width(p->item), p->item.data, length,
                        cursor_left(&p->at));
    TRY(take(p, (size_t)length, &bytes, field));
    *out = (text){(const char *)bytes, (size_t)length};
    return LACE_OK;
}

const char *gguf_name_fault(text name, size_t max_bytes)
{
    if (name.size == 0)
        return "is empty";
    if (name.size > max_bytes)
        return "is too long";
    for (size_t i = 0; i < name.size; i++)
        if ((unsigned char)name.data[i] < 0x20 || name.data[i] == 0x7F)
            return "contains a control character";
    return utf8_is_valid(name.data, name.size) ? NULL : "is not valid UTF-8";
}

/* A key or a tensor's name. */
static lace_status take_name(parser *p, size_t max_bytes, text *out, const char *field)
{
    size_t start = p->at.at;
    p->item = (text){NULL, 0};
    TRY(take_text(p, out, field));
    const char *fault = gguf_name_fault(*out, max_bytes);
    if (fault)
        return error_at(p->err, LACE_E_NAME, start,
                        "%s: %s: %zu bytes, expected 1 to %zu bytes of UTF-8", field, fault,
                        out->size, max_bytes);
    p->item = *out;
    return LACE_OK;
}

/* ---- Metadata -------------------------------------------------------------------------------- */

static lace_status take_array(parser *p, gguf_value *v)
{
    size_t start = p->at.at;
    uint32_t type;
    TRY(take_u32(p, &type, "array type"));
    if (type == GGUF_ARRAY)
        return error_at(p->err, LACE_E_ARRAY, start,
                        "%.*s: is an array of arrays, which is not supported", text_width(v->key),
                        v->key.data);
    if (type >= GGUF_N_TYPES)
        return error_at(p->err, LACE_E_TYPE, start,
                        "%.*s: is an array of the unknown element type %" PRIu32,
                        text_width(v->key), v->key.data, type);
    v->item_type = (gguf_type)type;
    start = p->at.at;
    TRY(take_u64(p, &v->n_items, "array length"));
    size_t least = type == GGUF_STRING ? 8 : type_bytes[type];
    if (v->n_items > cursor_left(&p->at) / least)
        return error_at(p->err, LACE_E_ARRAY, start,
                        "%.*s: is an array of %" PRIu64
                        " items of at least %zu bytes, but only %zu bytes are left",
                        text_width(v->key), v->key.data, v->n_items, least, cursor_left(&p->at));
    v->offset = p->at.at;
    v->bytes.data = p->at.bytes.data + p->at.at;
    if (type != GGUF_STRING) {
        TRY(take(p, (size_t)v->n_items * least, &v->bytes.data, "array items"));
    } else {
        if (v->n_items > p->texts_left)
            return error_at(p->err, LACE_E_LIMIT, start,
                            "%.*s: has %" PRIu64 " strings; all arrays together may have %d",
                            text_width(v->key), v->key.data, v->n_items, GGUF_MAX_TEXTS);
        p->texts_left -= v->n_items;
        for (uint64_t i = 0; i < v->n_items; i++) {
            text skipped;
            TRY(take_text(p, &skipped, "array item"));
        }
    }
    v->bytes.size = p->at.at - (size_t)v->offset;
    return LACE_OK;
}

static lace_status take_value(parser *p, gguf_value *v)
{
    TRY(take_name(p, GGUF_MAX_KEY_BYTES, &v->key, "key"));
    size_t start = p->at.at;
    uint32_t type;
    TRY(take_u32(p, &type, "value type"));
    if (type >= GGUF_N_TYPES)
        return error_at(p->err, LACE_E_TYPE, start, "%.*s: has the unknown value type %" PRIu32,
                        text_width(v->key), v->key.data, type);
    v->type = v->item_type = (gguf_type)type;
    v->n_items = 1;
    v->offset = p->at.at;
    if (type == GGUF_ARRAY)
        return take_array(p, v);
    if (type == GGUF_STRING) {
        text value;
        TRY(take_text(p, &value, "value"));
        v->bytes = (span){(const uint8_t *)value.data, value.size};
        return LACE_OK;
    }
    v->bytes.size = type_bytes[type];
    return take(p, v->bytes.size, &v->bytes.data, "value");
}

static lace_status add_name(parser *p, map *names, text name, size_t value, size_t start)
{
    lace_status status = map_add(names, name, (int32_t)value);
    if (status == LACE_E_DUP)
        return error_at(p->err, status, start, "%.*s: appears twice", text_width(name), name.data);
    return status == LACE_OK ? status : error_nomem(p->err, "the names of a GGUF file");
}

static lace_status take_values(parser *p)
{
    gguf *g = p->g;
    for (size_t i = 0; i < g->n_values; i++) {
        size_t start = p->at.at;
        TRY(take_value(p, &g->values[i]));
        TRY(add_name(p, &g->value_of_key, g->values[i].key, i, start));
    }
    return LACE_OK;
}

static lace_status find_alignment(parser *p)
{
    const gguf_value *v = gguf_find(p->g, "general.alignment");
    if (!v)
        return LACE_OK;
    if (v->type != GGUF_U32)
        return error_at(p->err, LACE_E_META, v->offset,
                        "general.alignment: is of type %s, expected "
                        "u32",
                        gguf_type_name(v->type));
    uint32_t alignment = load_u32(v->bytes.data);
    if (alignment == 0 || (alignment & (alignment - 1)) != 0)
        return error_at(p->err, LACE_E_ALIGN, v->offset,
                        "general.alignment: is %" PRIu32 ", expected a power of two", alignment);
    p->g->alignment = alignment;
    return LACE_OK;
}

/* ---- Directory ------------------------------------------------------------------------------- */

/* Reads one entry; the place in the data section goes to *offset. */
static lace_status take_tensor(parser *p, tensor *t, uint64_t *offset)
{
    TRY(take_name(p, GGUF_MAX_NAME_BYTES, &t->name, "tensor name"));
    size_t start = p->at.at;
    uint32_t n_dims, type;
    TRY(take_u32(p, &n_dims, "n_dims"));
    if (n_dims < 1 || n_dims > TENSOR_MAX_DIMS)
        return error_at(p->err, LACE_E_DIMS, start,
                        "tensor %.*s: %" PRIu32 " dimensions, expected 1 to %d",
                        text_width(t->name), t->name.data, n_dims, TENSOR_MAX_DIMS);
    t->shape.n_dims = (int)n_dims;
    for (uint32_t i = 0; i < TENSOR_MAX_DIMS; i++) {
        uint64_t dim = 1;
        if (i < n_dims)
            TRY(take_u64(p, &dim, "dims"));
        /* Above 2^63 it becomes negative, which tensor_bytes refuses. */
        t->shape.dims[i] = (int64_t)dim;
    }
    size_t type_at = p->at.at;
    TRY(take_u32(p, &type, "tensor type"));
    if (!dtype_from_number(type, &t->type))
        return error_at(p->err, LACE_E_TENSOR_TYPE, type_at,
                        "tensor %.*s: has the unknown type %" PRIu32, text_width(t->name),
                        t->name.data, type);
    TRY(take_u64(p, offset, "tensor offset"));
    lace_error why;
    lace_status status = tensor_bytes(t->type, &t->shape, &t->n_values, &t->n_bytes, &why);
    if (status != LACE_OK)
        return error_at(p->err, status, start, "tensor %.*s: %s", text_width(t->name), t->name.data,
                        why.text);
    return LACE_OK;
}

typedef struct extent {
    uint64_t begin, end; /* in the data section */
    uint64_t entry_at;   /* where the directory says so */
    size_t index;
} extent;

static int compare_extents(const void *a, const void *b)
{
    const extent *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static lace_status check_overlap(parser *p, extent *extents)
{
    size_t n = p->g->n_tensors;
    bool is_sorted = true;
    for (size_t i = 1; i < n; i++)
        is_sorted = is_sorted && extents[i - 1].begin <= extents[i].begin;
    if (!is_sorted)
        qsort(extents, n, sizeof *extents, compare_extents);
    for (size_t i = 1; i < n; i++)
        if (extents[i].begin < extents[i - 1].end) {
            text a = p->g->tensors[extents[i].index].name;
            text b = p->g->tensors[extents[i - 1].index].name;
            return error_at(p->err, LACE_E_OVERLAP, extents[i].entry_at,
                            "tensor %.*s: begins inside tensor %.*s", text_width(a), a.data,
                            text_width(b), b.data);
        }
    return LACE_OK;
}

static lace_status place_tensors(parser *p, extent *extents)
{
    gguf *g = p->g;
    size_t size = p->at.bytes.size;
    uint64_t data_bytes = g->data_offset < size ? size - g->data_offset : 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        tensor *t = &g->tensors[i];
        uint64_t offset = extents[i].begin;
        if (offset > data_bytes)
            return error_at(p->err, LACE_E_OFFSET, extents[i].entry_at,
                            "tensor %.*s: begins %" PRIu64
                            " bytes into the data, which has %" PRIu64
                            ": the file is incomplete; get it again",
                            text_width(t->name), t->name.data, offset, data_bytes);
        if (t->n_bytes > data_bytes - offset)
            return error_at(p->err, LACE_E_OFFSET, extents[i].entry_at,
                            "tensor %.*s: ends at byte %" PRIu64
                            ", the file has %zu: it is incomplete; get it again",
                            text_width(t->name), t->name.data, g->data_offset + offset + t->n_bytes,
                            size);
        if (offset % g->alignment != 0)
            return error_at(p->err, LACE_E_ALIGN, extents[i].entry_at,
                            "tensor %.*s: its offset is %" PRIu64
                            ", expected a multiple of %" PRIu64,
                            text_width(t->name), t->name.data, offset, g->alignment);
        t->data = p->file.data + g->data_offset + offset;
        extents[i].end = offset + t->n_bytes;
    }
    return check_overlap(p, extents);
}

static lace_status take_tensors(parser *p)
{
    gguf *g = p->g;
    extent *extents = mem_calloc(g->n_tensors, sizeof *extents);
    if (!extents)
        return error_nomem(p->err, "the directory of a GGUF file");
    lace_status status = LACE_OK;
    for (size_t i = 0; i < g->n_tensors; i++) {
        size_t start = p->at.at;
        extents[i].entry_at = start;
        extents[i].index = i;
        TRY_GOTO(status, done, take_tensor(p, &g->tensors[i], &extents[i].begin));
        TRY_GOTO(status, done, add_name(p, &g->tensor_of_name, g->tensors[i].name, i, start));
    }
    /* Round up: the directory seldom ends on the boundary. No overflow, as at <= SIZE_MAX / 2. */
    g->data_offset = round_up(p->at.at, g->alignment);
    status = place_tensors(p, extents);
done:
    mem_free(extents);
    return status;
}

/* ---- The file -------------------------------------------------------------------------------- */

static lace_status check_count(parser *p, uint64_t n, uint64_t limit, size_t least, size_t at,
                               const char *field)
{
    size_t left = cursor_left(&p->at);
    if (n > left / least)
        return error_at(p->err, LACE_E_COUNT, at,
                        "%s: is %" PRIu64 ", but the %zu bytes that follow hold at most %zu", field,
                        n, left, left / least);
    if (n > limit)
        return error_at(p->err, LACE_E_LIMIT, at, "%s: is %" PRIu64 ", expected at most %" PRIu64,
                        field, n, limit);
    return LACE_OK;
}

static lace_status take_header(parser *p)
{
    gguf *g = p->g;
    const uint8_t *magic;
    uint64_t n_tensors, n_values;
    TRY(take(p, 4, &magic, "magic"));
    if (memcmp(magic, "GGUF", 4) != 0)
        return error_at(p->err, LACE_E_MAGIC, 0,
                        "not a GGUF file: it begins with %02X %02X %02X %02X, expected GGUF",
                        magic[0], magic[1], magic[2], magic[3]);
    TRY(take_u32(p, &g->version, "version"));
    if (g->version != 2 && g->version != 3)
        return error_at(p->err, LACE_E_VERSION, 4, "version: %" PRIu32 "%s, expected 2 or 3",
                        g->version, g->version == 0x03000000 ? " (a big-endian file)" : "");
    TRY(take_u64(p, &n_tensors, "n_tensors"));
    TRY(take_u64(p, &n_values, "n_kv"));
    TRY(check_count(p, n_tensors, GGUF_MAX_TENSORS, MIN_TENSOR_BYTES, 8, "n_tensors"));
    TRY(check_count(p, n_values, GGUF_MAX_VALUES, MIN_VALUE_BYTES, 16, "n_kv"));
    g->values = mem_calloc((size_t)n_values, sizeof *g->values);
    g->tensors = mem_calloc((size_t)n_tensors, sizeof *g->tensors);
    if (!g->values || !g->tensors || map_reserve(&g->value_of_key, (size_t)n_values) != LACE_OK ||
        map_reserve(&g->tensor_of_name, (size_t)n_tensors) != LACE_OK)
        return error_nomem(p->err, "the directory of a GGUF file");
    g->n_values = (size_t)n_values;
    g->n_tensors = (size_t)n_tensors;
    return LACE_OK;
}

/*
 * Parse a head of which `readable` bytes are there. *wanted: 0, or how many are needed, and then
 * the status is none of the file's.
 */
static lace_status parse_head(const uint8_t *head, size_t readable, span file, size_t *wanted,
                              gguf **out, lace_error *err)
{
    *out = NULL;
    *wanted = 0;
    gguf *g = mem_calloc(1, sizeof *g);
    if (!g)
        return error_nomem(err, "a GGUF file");
    g->alignment = DEFAULT_ALIGNMENT;
    map_init(&g->value_of_key);
    map_init(&g->tensor_of_name);
    parser p = {.at = {.bytes = {head, file.size}},
                .readable = readable,
                .file = file,
                .texts_left = GGUF_MAX_TEXTS,
                .g = g,
                .err = err};
    lace_status status;
    TRY_GOTO(status, fail, take_header(&p));
    TRY_GOTO(status, fail, take_values(&p));
    TRY_GOTO(status, fail, find_alignment(&p));
    TRY_GOTO(status, fail, take_tensors(&p));
    *out = g;
    return LACE_OK;
fail:
    *wanted = p.wanted;
    gguf_free(g);
    return status;
}

lace_status gguf_parse(span bytes, gguf **out, lace_error *err)
{
    size_t wanted;
    return parse_head(bytes.data, bytes.size, bytes, &wanted, out, err);
}

lace_status gguf_parse_file(span file, gguf **out, lace_error *err)
{
    size_t n = 0, wanted = FIRST_READ;
    uint8_t *head = NULL;
    lace_status status = LACE_OK;
    *out = NULL;
    while (wanted) {
        /* At least twice as much as before: all readings together take twice the last one. */
        size_t more = wanted > 2 * n ? wanted : 2 * n;
        more = more < file.size ? more : file.size;
        uint8_t *grown = mem_realloc(head, more ? more : 1);
        if (!grown) {
            status = error_nomem(err, "the metadata of a GGUF file");
            break;
        }
        head = grown;
        if (more > n)
            memcpy(head + n, file.data + n, more - n);
        n = more;
        status = parse_head(head, n, file, &wanted, out, err);
    }
    if (status == LACE_OK)
        (*out)->head = head;
    else
        mem_free(head);
    return status;
}

void gguf_free(gguf *g)
{
    if (!g)
        return;
    map_deinit(&g->value_of_key);
    map_deinit(&g->tensor_of_name);
    mem_free_all(g->values, g->tensors, g->head, g);
}

/* ---- Looking up ------------------------------------------------------------------------------ */

uint32_t gguf_version(const gguf *g)
{
    return g->version;
}

uint64_t gguf_alignment(const gguf *g)
{
    return g->alignment;
}

uint64_t gguf_data_offset(const gguf *g)
{
    return g->data_offset;
}

size_t gguf_n_values(const gguf *g)
{
    return g->n_values;
}

const gguf_value *gguf_value_at(const gguf *g, size_t i)
{
    return i < g->n_values ? &g->values[i] : NULL;
}

const gguf_value *gguf_find(const gguf *g, const char *key)
{
    int32_t i = map_find(&g->value_of_key, text_of(key));
    return i < 0 ? NULL : &g->values[i];
}

size_t gguf_n_tensors(const gguf *g)
{
    return g->n_tensors;
}

const tensor *gguf_tensor_at(const gguf *g, size_t i)
{
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const tensor *gguf_find_tensor(const gguf *g, const char *name)
{
    int32_t i = map_find(&g->tensor_of_name, text_of(name));
    return i < 0 ? NULL : &g->tensors[i];
}
