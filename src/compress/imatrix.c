/* Importance matrices: in memory, and as files. */
#include "compress/imatrix.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "formats/gguf_write.h"

enum { MAX_ENTRIES = GGUF_MAX_TENSORS / 2 };

struct imatrix {
    arena memory;
    imatrix_entry **entries;
    size_t n, capacity;
    map names;
};

/* ---- In memory ------------------------------------------------------------------------------- */

lace_status imatrix_create(imatrix **out, lace_error *err)
{
    *out = mem_calloc(1, sizeof **out);
    if (!*out)
        return error_nomem(err, "an importance matrix");
    arena_init(&(*out)->memory, SIZE_MAX / 2);
    map_init(&(*out)->names);
    return LACE_OK;
}

void imatrix_free(imatrix *m)
{
    if (!m)
        return;
    arena_deinit(&m->memory);
    map_deinit(&m->names);
    mem_free_all(m->entries, m);
}

size_t imatrix_count(const imatrix *m)
{
    return m->n;
}

imatrix_entry *imatrix_at(const imatrix *m, size_t i)
{
    return m->entries[i];
}

imatrix_entry *imatrix_find(const imatrix *m, text name)
{
    int32_t i = map_find(&m->names, name);
    return i < 0 ? NULL : m->entries[i];
}

static lace_status add(imatrix *m, text name, int64_t n_cols, int64_t n_experts, int64_t n_counts,
                       imatrix_entry **out, lace_error *err)
{
    *out = NULL;
    if (m->n == MAX_ENTRIES)
        return error_set(err, LACE_E_LIMIT, "has more than %d matrices", MAX_ENTRIES);
    if (!mem_grow(&m->entries, m->n, &m->capacity, sizeof *m->entries, 64))
        return error_nomem(err, "an importance matrix");
    size_t n_values;
    imatrix_entry *e = arena_alloc(&m->memory, 1, sizeof *e);
    char *copy = arena_strndup(&m->memory, name.data, name.size);
    if (!e || !copy || !mem_mul((size_t)n_cols, (size_t)n_experts, &n_values) ||
        !(e->sums = arena_alloc(&m->memory, n_values, sizeof *e->sums)) ||
        !(e->counts = arena_alloc(&m->memory, (size_t)n_counts, sizeof *e->counts)) ||
        map_reserve(&m->names, m->n + 1) != LACE_OK)
        return error_nomem(err, "an importance matrix");
    e->name = (text){copy, name.size};
    e->n_cols = n_cols;
    e->n_experts = n_experts;
    if (map_add(&m->names, e->name, (int32_t)m->n) != LACE_OK)
        return error_set(err, LACE_E_DUP, "%.*s appears twice", text_width(name), name.data);
    m->entries[m->n++] = e;
    *out = e;
    return LACE_OK;
}

lace_status imatrix_add(imatrix *m, text name, int64_t n_cols, int64_t n_experts,
                        imatrix_entry **out, lace_error *err)
{
    return add(m, name, n_cols, n_experts, n_experts, out, err);
}

lace_status imatrix_add_flat(imatrix *m, text name, int64_t n_values, imatrix_entry **out,
                             lace_error *err)
{
    TRY(add(m, name, n_values, 1, n_values, out, err));
    (*out)->is_flat = true;
    return LACE_OK;
}

bool imatrix_fits(imatrix_entry *e, int64_t n_cols, int64_t n_experts)
{
    /* A flat entry has as many counts as columns, all the same. */
    if (e->is_flat && n_cols > 0 && e->n_cols % n_cols == 0 && e->n_cols / n_cols == n_experts) {
        e->n_cols = n_cols;
        e->n_experts = n_experts;
        e->is_flat = false;
    }
    return e->n_cols == n_cols && e->n_experts == n_experts;
}

void imatrix_means(const imatrix_entry *e, int64_t expert, float *out)
{
    const float *sums = e->sums + expert * e->n_cols;
    for (int64_t i = 0; i < e->n_cols; i++)
        out[i] = e->counts[expert] > 0 ? sums[i] / e->counts[expert] : 1.0f;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static const char sums_end[] = ".in_sum2", counts_end[] = ".counts";

/* The name without its end; false if it ends in something else. */
static bool cut_end(text name, const char *end, text *out)
{
    size_t n = strlen(end);
    if (name.size <= n || memcmp(name.data + name.size - n, end, n) != 0)
        return false;
    *out = (text){name.data, name.size - n};
    return true;
}

lace_status imatrix_check_entry(const imatrix_entry *e, lace_error *err)
{
    for (int64_t i = 0; i < e->n_cols * e->n_experts; i++) {
        float sum = e->sums[i], count = e->counts[i / e->n_cols];
        bool is_good = isfinite(sum) && sum >= 0 && isfinite(count) && count >= 0;
        if (!is_good || (count > 0 && !isfinite(sum / count)))
            return error_set(err, LACE_E_NUMERIC,
                             "%.*s: value %" PRId64
                             " is %g over %g tokens, expected numbers of 0 or more",
                             text_width(e->name), e->name.data, i, (double)sum, (double)count);
    }
    return LACE_OK;
}

static void copy_floats(const tensor *t, float *out)
{
    for (uint64_t i = 0; i < t->n_values; i++)
        out[i] = load_f32(t->data + 4 * i);
}

static lace_status read_entry(const gguf *g, const tensor *t, text name, imatrix *m,
                              lace_error *err)
{
    char counts_name[GGUF_MAX_NAME_BYTES + 1];
    snprintf(counts_name, sizeof counts_name, "%.*s%s", (int)name.size, name.data, counts_end);
    const tensor *counts = gguf_find_tensor(g, counts_name);
    int64_t n_experts = t->shape.n_dims > 1 ? t->shape.dims[1] : 1;
    if (!counts || t->type != DTYPE_F32 || counts->type != DTYPE_F32 || t->shape.n_dims > 2 ||
        (int64_t)counts->n_values != n_experts)
        return error_set(err, LACE_E_META,
                         "tensor %.*s: expected F32 sums, and %s with a count for each "
                         "of %" PRId64 " experts",
                         text_width(t->name), t->name.data, counts_name, n_experts);
    imatrix_entry *e;
    TRY(imatrix_add(m, name, t->shape.dims[0], n_experts, &e, err));
    copy_floats(t, e->sums);
    copy_floats(counts, e->counts);
    return imatrix_check_entry(e, err);
}

static lace_status read_entries(const gguf *g, imatrix *m, lace_error *err)
{
    text kind = {"", 0};
    TRY(gguf_get_text(g, "general.type", &kind, NULL, err));
    if (!text_is(kind, "imatrix"))
        return error_set(err, LACE_E_META, "general.type is \"%.*s\", expected \"imatrix\"",
                         text_width(kind), kind.data);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const tensor *t = gguf_tensor_at(g, i);
        text name;
        if (cut_end(t->name, sums_end, &name))
            TRY(read_entry(g, t, name, m, err));
        else if (!cut_end(t->name, counts_end, &name))
            return error_set(err, LACE_E_NAME, "tensor %.*s: expected *%s or *%s",
                             text_width(t->name), t->name.data, sums_end, counts_end);
    }
    return LACE_OK;
}

lace_status imatrix_parse(span bytes, imatrix **out, lace_error *err)
{
    gguf *g = NULL;
    *out = NULL;
    bool is_gguf = bytes.size < 4 || memcmp(bytes.data, "GGUF", 4) == 0;
    if (is_gguf)
        TRY(gguf_parse_file(bytes, &g, err));
    lace_status status = imatrix_create(out, err);
    if (status == LACE_OK)
        status = is_gguf ? read_entries(g, *out, err) : imatrix_parse_dat(bytes, *out, err);
    if (status != LACE_OK) {
        imatrix_free(*out);
        *out = NULL;
    }
    gguf_free(g);
    return status;
}

lace_status imatrix_read(const char *path, imatrix **out, lace_error *err)
{
    file_map file;
    *out = NULL;
    TRY(file_map_open(path, &file, err));
    lace_status status = imatrix_parse(file.bytes, out, err);
    file_map_close(&file);
    return status == LACE_OK ? status : error_prefix(err, status, path);
}

static void add_entry(gguf_writer *w, const imatrix_entry *e)
{
    char name[GGUF_MAX_NAME_BYTES + 16];
    shape sums = {2, {e->n_cols, e->n_experts}}, counts = {2, {1, e->n_experts}};
    snprintf(name, sizeof name, "%.*s%s", (int)e->name.size, e->name.data, sums_end);
    gguf_writer_add_tensor(w, text_of(name), DTYPE_F32, &sums, e->sums, NULL);
    snprintf(name, sizeof name, "%.*s%s", (int)e->name.size, e->name.data, counts_end);
    gguf_writer_add_tensor(w, text_of(name), DTYPE_F32, &counts, e->counts, NULL);
}

lace_status imatrix_write(const imatrix *m, const char *path, const file_rules *rules,
                          const char *dataset, int64_t n_windows, int64_t n_context,
                          lace_error *err)
{
    gguf_writer *w;
    TRY(gguf_writer_create(&w, err));
    text name = text_of(dataset);
    gguf_writer_add_text(w, "general.type", text_of("imatrix"), NULL);
    gguf_writer_add_texts(w, "imatrix.datasets", &name, 1, NULL);
    gguf_writer_add_int(w, "imatrix.chunk_count", GGUF_U32, n_windows, NULL);
    gguf_writer_add_int(w, "imatrix.chunk_size", GGUF_U32, n_context, NULL);
    for (size_t i = 0; i < m->n; i++)
        add_entry(w, m->entries[i]);
    gguf_writer_set_rules(w, rules);
    lace_status status = gguf_writer_to_file(w, path, NULL, NULL, err);
    gguf_writer_free(w);
    return status;
}
