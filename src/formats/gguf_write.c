/* Writing GGUF files. */
#include "formats/gguf_write.h"

#include <inttypes.h>
#include <string.h>

#include "base/arena.h"
#include "base/file_write.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/numbers.h"

enum { DEFAULT_ALIGNMENT = 32, MAX_META_BYTES = 1 << 30 };

typedef struct entry {
    text name;
    dtype type;
    shape shape;
    uint64_t n_bytes;
    const uint8_t *data; /* or NULL and */
    gguf_produce_fn fn;
    void *user;
} entry;

struct gguf_writer {
    buf values; /* as they will be in the file */
    uint64_t n_values;
    entry *entries;
    size_t n_entries, capacity;
    uint32_t alignment;
    arena names;
    map keys, tensors;       /* what was given, to find names that come twice */
    lace_error first;        /* the first failure; status LACE_OK if none */
    const file_rules *rules; /* for the file; may be NULL */
};

/* ---- Building -------------------------------------------------------------------------------- */

lace_status gguf_writer_create(gguf_writer **out, lace_error *err)
{
    *out = NULL;
    gguf_writer *w = mem_calloc(1, sizeof *w);
    if (!w)
        return error_nomem(err, "a GGUF writer");
    buf_init(&w->values, MAX_META_BYTES);
    arena_init(&w->names, MAX_META_BYTES);
    map_init(&w->keys);
    map_init(&w->tensors);
    w->alignment = DEFAULT_ALIGNMENT;
    *out = w;
    return LACE_OK;
}

void gguf_writer_free(gguf_writer *w)
{
    if (!w)
        return;
    buf_deinit(&w->values);
    arena_deinit(&w->names);
    map_deinit(&w->keys);
    map_deinit(&w->tensors);
    mem_free_all(w->entries, w);
}

/* Remember a failure: the first one is what writing will report. */
static lace_status keep(gguf_writer *w, const lace_error *failure, lace_error *err)
{
    if (w->first.status == LACE_OK)
        w->first = *failure;
    if (err)
        *err = *failure;
    return failure->status;
}

static lace_status fail(gguf_writer *w, lace_status status, const char *name, const char *what,
                        lace_error *err)
{
    lace_error failure;
    error_set(&failure, status, "%.100s: %s", name, what);
    return keep(w, &failure, err);
}

static lace_status fail_put(gguf_writer *w, const char *name, lace_status status, lace_error *err)
{
    return fail(w, status, name,
                status == LACE_E_LIMIT ? "the metadata is too large" : "out of memory", err);
}

static void store(uint8_t *out, uint64_t value, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        out[i] = (uint8_t)(value >> 8 * i);
}

static lace_status put(buf *b, uint64_t value, size_t n_bytes)
{
    uint8_t bytes[8];
    store(bytes, value, n_bytes);
    return buf_append(b, bytes, n_bytes);
}

static lace_status put_text(buf *b, text t)
{
    TRY(put(b, t.size, 8));
    return buf_append(b, t.data, t.size);
}

/* Add a copy of a name to a map, with its checks. */
static lace_status add_name(gguf_writer *w, map *names, text name, size_t max_bytes, text *copy,
                            lace_error *err)
{
    char shown[101];
    size_t n = name.size < 100 ? name.size : 100;
    memcpy(shown, name.data, n);
    shown[n] = 0;
    const char *fault = gguf_name_fault(name, max_bytes);
    if (fault)
        return fail(w, LACE_E_NAME, shown, fault, err);
    char *data = arena_strndup(&w->names, name.data, name.size);
    if (!data)
        return fail(w, LACE_E_NOMEM, shown, "out of memory", err);
    *copy = (text){data, name.size};
    lace_status status = map_add(names, *copy, 0);
    if (status != LACE_OK)
        return fail(w, status, shown, status == LACE_E_DUP ? "is given twice" : "out of memory",
                    err);
    return LACE_OK;
}

/* The key and type of a value whose bytes follow. */
static lace_status begin_value(gguf_writer *w, text key, gguf_type type, lace_error *err)
{
    text copy;
    TRY(add_name(w, &w->keys, key, GGUF_MAX_KEY_BYTES, &copy, err));
    lace_status status = put_text(&w->values, copy);
    if (status == LACE_OK)
        status = put(&w->values, type, 4);
    if (status != LACE_OK)
        return fail_put(w, copy.data, status, err);
    w->n_values++;
    return LACE_OK;
}

static lace_status end_value(gguf_writer *w, const char *key, lace_status status, lace_error *err)
{
    return status == LACE_OK ? LACE_OK : fail_put(w, key, status, err);
}

/* Bytes of an item, 0 for other types; and what an integer may be. */
static size_t item_bytes(gguf_type type, int64_t *low, int64_t *high)
{
    static const struct {
        uint8_t n_bytes;
        int64_t low, high;
    } types[GGUF_N_TYPES] = {
        [GGUF_U8] = {1, 0, UINT8_MAX},
        [GGUF_I8] = {1, INT8_MIN, INT8_MAX},
        [GGUF_U16] = {2, 0, UINT16_MAX},
        [GGUF_I16] = {2, INT16_MIN, INT16_MAX},
        [GGUF_U32] = {4, 0, UINT32_MAX},
        [GGUF_I32] = {4, INT32_MIN, INT32_MAX},
        [GGUF_U64] = {8, INT64_MIN, INT64_MAX},
        [GGUF_I64] = {8, INT64_MIN, INT64_MAX},
        /* low > high: not an integer */
        [GGUF_F32] = {4, 1, 0},
        [GGUF_F64] = {8, 1, 0},
        [GGUF_BOOL] = {1, 1, 0},
        [GGUF_STRING] = {0, 1, 0},
        [GGUF_ARRAY] = {0, 1, 0},
    };
    if ((unsigned)type >= GGUF_N_TYPES)
        return 0;
    *low = types[type].low;
    *high = types[type].high;
    return types[type].n_bytes;
}

lace_status gguf_writer_set_alignment(gguf_writer *w, uint32_t alignment, lace_error *err)
{
    if (alignment == 0 || (alignment & (alignment - 1)) != 0)
        return fail(w, LACE_E_ALIGN, "general.alignment", "expected a power of two", err);
    if (alignment != DEFAULT_ALIGNMENT)
        TRY(gguf_writer_add_int(w, "general.alignment", GGUF_U32, alignment, err));
    w->alignment = alignment;
    return LACE_OK;
}

lace_status gguf_writer_add_int(gguf_writer *w, const char *key, gguf_type type, int64_t value,
                                lace_error *err)
{
    int64_t low, high;
    size_t n_bytes = item_bytes(type, &low, &high);
    if (n_bytes == 0 || low > high)
        return fail(w, LACE_E_ARG, key, "its type is not an integer type", err);
    if (value < low || value > high)
        return fail(w, LACE_E_ARG, key, "the value does not fit its type", err);
    TRY(begin_value(w, text_of(key), type, err));
    return end_value(w, key, put(&w->values, (uint64_t)value, n_bytes), err);
}

lace_status gguf_writer_add_float(gguf_writer *w, const char *key, gguf_type type, double value,
                                  lace_error *err)
{
    uint64_t bits;
    if (type == GGUF_F32) {
        float narrow = (float)value;
        uint32_t narrow_bits;
        memcpy(&narrow_bits, &narrow, 4);
        bits = narrow_bits;
    } else if (type == GGUF_F64) {
        memcpy(&bits, &value, 8);
    } else {
        return fail(w, LACE_E_ARG, key, "its type is not a float type", err);
    }
    TRY(begin_value(w, text_of(key), type, err));
    return end_value(w, key, put(&w->values, bits, type == GGUF_F32 ? 4 : 8), err);
}

lace_status gguf_writer_add_bool(gguf_writer *w, const char *key, bool value, lace_error *err)
{
    TRY(begin_value(w, text_of(key), GGUF_BOOL, err));
    return end_value(w, key, put(&w->values, value, 1), err);
}

lace_status gguf_writer_add_text(gguf_writer *w, const char *key, text value, lace_error *err)
{
    TRY(begin_value(w, text_of(key), GGUF_STRING, err));
    return end_value(w, key, put_text(&w->values, value), err);
}

static lace_status begin_array(gguf_writer *w, text key, gguf_type item_type, uint64_t n_items,
                               lace_error *err)
{
    TRY(begin_value(w, key, GGUF_ARRAY, err));
    lace_status status = put(&w->values, item_type, 4);
    if (status == LACE_OK)
        status = put(&w->values, n_items, 8);
    return status == LACE_OK ? LACE_OK : fail_put(w, "an array", status, err);
}

lace_status gguf_writer_add_array(gguf_writer *w, const char *key, gguf_type item_type,
                                  const void *items, size_t n_items, lace_error *err)
{
    int64_t low, high;
    size_t n_bytes = item_bytes(item_type, &low, &high);
    if (n_bytes == 0)
        return fail(w, LACE_E_ARG, key, "its type is not a number type", err);
    TRY(begin_array(w, text_of(key), item_type, n_items, err));
    lace_status status = LACE_OK;
    const uint8_t *item = items;
    for (size_t i = 0; status == LACE_OK && i < n_items; i++, item += n_bytes) {
        /* Through a value, so that the file is little-endian on any machine. */
        uint16_t u16;
        uint32_t u32;
        uint64_t u64 = item[0];
        if (n_bytes == 2)
            memcpy(&u16, item, 2), u64 = u16;
        else if (n_bytes == 4)
            memcpy(&u32, item, 4), u64 = u32;
        else if (n_bytes == 8)
            memcpy(&u64, item, 8);
        status = put(&w->values, u64, n_bytes);
    }
    return end_value(w, key, status, err);
}

lace_status gguf_writer_add_texts(gguf_writer *w, const char *key, const text *items,
                                  size_t n_items, lace_error *err)
{
    TRY(begin_array(w, text_of(key), GGUF_STRING, n_items, err));
    lace_status status = LACE_OK;
    for (size_t i = 0; status == LACE_OK && i < n_items; i++)
        status = put_text(&w->values, items[i]);
    return end_value(w, key, status, err);
}

lace_status gguf_writer_add_value(gguf_writer *w, const gguf_value *value, lace_error *err)
{
    lace_status status = LACE_OK;
    if (value->type == GGUF_ARRAY) {
        TRY(begin_array(w, value->key, value->item_type, value->n_items, err));
    } else {
        TRY(begin_value(w, value->key, value->type, err));
        if (value->type == GGUF_STRING)
            status = put(&w->values, value->bytes.size, 8);
    }
    if (status == LACE_OK)
        status = buf_append(&w->values, value->bytes.data, value->bytes.size);
    return end_value(w, "a copied value", status, err);
}

static lace_status add_entry(gguf_writer *w, const entry *e, lace_error *err)
{
    entry copy = *e;
    uint64_t n_values;
    TRY(add_name(w, &w->tensors, e->name, GGUF_MAX_NAME_BYTES, &copy.name, err));
    lace_error failure;
    lace_status status = tensor_bytes(e->type, &e->shape, &n_values, &copy.n_bytes, &failure);
    if (status != LACE_OK) {
        error_prefix(&failure, status, copy.name.data);
        return keep(w, &failure, err);
    }
    if (dtype_describe(e->type)->number >= DTYPE_NOT_GGUF)
        return fail(w, LACE_E_TENSOR_TYPE, copy.name.data, "has a type that GGUF cannot hold", err);
    if (!mem_grow(&w->entries, w->n_entries, &w->capacity, sizeof *w->entries, 64))
        return fail(w, LACE_E_NOMEM, copy.name.data, "out of memory", err);
    w->entries[w->n_entries++] = copy;
    return LACE_OK;
}

lace_status gguf_writer_add_tensor(gguf_writer *w, text name, dtype type, const shape *s,
                                   const void *data, lace_error *err)
{
    entry e = {.name = name, .type = type, .shape = *s, .data = data};
    return add_entry(w, &e, err);
}

lace_status gguf_writer_add_tensor_from(gguf_writer *w, text name, dtype type, const shape *s,
                                        gguf_produce_fn fn, void *user, lace_error *err)
{
    entry e = {.name = name, .type = type, .shape = *s, .fn = fn, .user = user};
    return add_entry(w, &e, err);
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Where bytes go: a file or a buffer. */
typedef struct sink {
    file_writer *file;
    buf *memory;
    uint64_t at, total; /* bytes written, bytes in all */
    lace_progress_fn on_progress;
    void *user;
    lace_error *err;
} sink;

static lace_status emit(sink *s, const void *data, size_t n_bytes)
{
    if (s->file) {
        TRY(file_writer_write(s->file, data, n_bytes, s->err));
    } else {
        lace_status status = buf_append(s->memory, data, n_bytes);
        if (status != LACE_OK)
            return error_set(s->err, status, "%s for a GGUF of %" PRIu64 " bytes",
                             lace_status_text(status), s->total);
    }
    s->at += n_bytes;
    if (s->on_progress && !s->on_progress(s->user, "writing", (double)s->at / (double)s->total))
        return error_set(s->err, LACE_E_CANCELLED, "writing was cancelled");
    return LACE_OK;
}

static lace_status pad(sink *s, uint64_t to)
{
    static const uint8_t zeros[4096];
    while (s->at < to) {
        uint64_t n = to - s->at;
        TRY(emit(s, zeros, n < sizeof zeros ? (size_t)n : sizeof zeros));
    }
    return LACE_OK;
}

/* Everything before the data; the size of the data goes to *data_bytes. */
static lace_status build_header(const gguf_writer *w, buf *b, uint64_t *data_bytes)
{
    TRY(buf_append(b, "GGUF", 4));
    TRY(put(b, 3, 4));
    TRY(put(b, w->n_entries, 8));
    TRY(put(b, w->n_values, 8));
    TRY(buf_append(b, w->values.data, w->values.size));
    uint64_t offset = 0;
    for (size_t i = 0; i < w->n_entries; i++) {
        const entry *e = &w->entries[i];
        TRY(put_text(b, e->name));
        TRY(put(b, (uint64_t)e->shape.n_dims, 4));
        for (int k = 0; k < e->shape.n_dims; k++)
            TRY(put(b, (uint64_t)e->shape.dims[k], 8));
        TRY(put(b, (uint64_t)dtype_describe(e->type)->number, 4));
        TRY(put(b, offset, 8));
        if (e->n_bytes > INT64_MAX - w->alignment - offset)
            return LACE_E_OVERFLOW;
        offset = round_up(offset + e->n_bytes, w->alignment);
    }
    *data_bytes = offset;
    return LACE_OK;
}

static lace_status emit_data(const entry *e, sink *s, uint8_t *chunk)
{
    size_t block = (size_t)dtype_describe(e->type)->block_bytes;
    size_t most = GGUF_WRITE_CHUNK / block * block;
    for (uint64_t at = 0; at < e->n_bytes;) {
        size_t n = e->n_bytes - at < most ? (size_t)(e->n_bytes - at) : most;
        if (e->fn)
            TRY(e->fn(e->user, at, chunk, n, s->err));
        TRY(emit(s, e->fn ? chunk : e->data + at, n));
        at += n;
    }
    return LACE_OK;
}

static lace_status write_all(gguf_writer *w, sink *s)
{
    if (w->first.status != LACE_OK) {
        if (s->err)
            *s->err = w->first;
        return w->first.status;
    }
    buf header;
    buf_init(&header, SIZE_MAX / 2);
    uint64_t data_bytes = 0;
    uint8_t *chunk = NULL;
    lace_status status = build_header(w, &header, &data_bytes);
    if (status != LACE_OK) {
        error_set(s->err, status, "the header of a GGUF file: %s", lace_status_text(status));
        goto done;
    }
    uint64_t begin = round_up(header.size, w->alignment);
    s->total = begin + data_bytes;
    for (size_t i = 0; i < w->n_entries && !chunk; i++)
        if (w->entries[i].fn && !(chunk = mem_alloc(GGUF_WRITE_CHUNK))) {
            status = error_nomem(s->err, "writing a GGUF file");
            goto done;
        }
    TRY_GOTO(status, done, emit(s, header.data, header.size));
    TRY_GOTO(status, done, pad(s, begin));
    for (size_t i = 0; i < w->n_entries; i++) {
        TRY_GOTO(status, done, emit_data(&w->entries[i], s, chunk));
        TRY_GOTO(status, done, pad(s, round_up(s->at, w->alignment)));
    }
done:
    mem_free(chunk);
    buf_deinit(&header);
    return status;
}

void gguf_writer_set_rules(gguf_writer *w, const file_rules *rules)
{
    w->rules = rules;
}

lace_status gguf_writer_to_file(gguf_writer *w, const char *path, lace_progress_fn on_progress,
                                void *user, lace_error *err)
{
    sink s = {.on_progress = on_progress, .user = user, .err = err};
    TRY(file_writer_create_by(path, w->rules, &s.file, err));
    lace_status status = write_all(w, &s);
    if (status != LACE_OK) {
        file_writer_abort(s.file);
        return status;
    }
    return file_writer_commit(s.file, err);
}

lace_status gguf_writer_to_buf(gguf_writer *w, buf *out, lace_error *err)
{
    size_t before = out->size;
    sink s = {.memory = out, .err = err};
    lace_status status = write_all(w, &s);
    if (status != LACE_OK && out->data) {
        out->size = before;
        out->data[before] = 0;
    }
    return status;
}
