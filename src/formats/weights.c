/* The files of a model, joined into one directory of tensors. */
#include "formats/weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "formats/weights_impl.h"

/* ---- Files ----------------------------------------------------------------------------------- */

lace_status weights_create(const char *name, size_t n_parts, weights **out, lace_error *err)
{
    weights *w = mem_calloc(1, sizeof *w);
    if (!w)
        return error_nomem(err, "a model file");
    map_init(&w->tensor_of_name);
    w->name = mem_strdup(name);
    w->parts = mem_calloc(n_parts, sizeof *w->parts);
    w->n_parts = n_parts;
    if (!w->name || !w->parts) {
        weights_close(w);
        return error_nomem(err, "a model file");
    }
    *out = w;
    return LACE_OK;
}

/* The memory of a tensor that is made. */
static void *memory_of(const weights *w, size_t i)
{
    return (uint8_t *)w->view->tensors[i].data - w->view->lead_bytes;
}

static void close_view(weights *w)
{
    if (!w->view)
        return;
    for (size_t i = 0; w->map_bytes && i < w->view->n_tensors; i++)
        if (w->map_bytes[i])
            mem_unmap(memory_of(w, i), w->map_bytes[i]);
    w->view->free(w->view->user);
    mem_free_all(w->map_bytes, w->is_made, w->view);
}

void weights_close(weights *w)
{
    if (!w)
        return;
    close_view(w);
    for (size_t i = 0; w->parts && i < w->n_parts; i++) {
        gguf_free(w->parts[i].g);
        safetensors_free(w->parts[i].st);
        file_map_close(&w->parts[i].map);
    }
    json_decref(w->config);
    map_deinit(&w->tensor_of_name);
    mem_free_all(w->tensors, w->parts, w->name, w);
}

lace_status weights_map_part(weights *w, size_t i, const char *path, lace_error *err)
{
    TRY(file_map_open(path, &w->parts[i].map, err));
    w->n_bytes += w->parts[i].map.bytes.size;
    return LACE_OK;
}

static size_t part_count(const part *p)
{
    return p->g ? gguf_n_tensors(p->g) : safetensors_count(p->st);
}

static const tensor *part_at(const part *p, size_t i)
{
    return p->g ? gguf_tensor_at(p->g, i) : safetensors_at(p->st, i);
}

lace_status weights_join(weights *w, lace_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < w->n_parts; i++)
        n += part_count(&w->parts[i]);
    if (n > INT32_MAX)
        return error_set(err, LACE_E_LIMIT,
                         "all parts together have %zu tensors, which is too many", n);
    w->tensors = mem_calloc(n, sizeof *w->tensors);
    if (!w->tensors || map_reserve(&w->tensor_of_name, n) != LACE_OK)
        return error_nomem(err, "the directory of a model");
    for (size_t i = 0; i < w->n_parts; i++)
        for (size_t k = 0; k < part_count(&w->parts[i]); k++) {
            const tensor *t = part_at(&w->parts[i], k);
            lace_status status = map_add(&w->tensor_of_name, t->name, (int32_t)w->n_tensors);
            if (status == LACE_E_DUP)
                return error_set(err, status,
                                 "part %zu of %zu: tensor %.*s is also in an earlier part", i + 1,
                                 w->n_parts, text_width(t->name), t->name.data);
            if (status != LACE_OK)
                return error_nomem(err, "the directory of a model");
            w->tensors[w->n_tensors++] = t;
        }
    return LACE_OK;
}

/* ---- The view -------------------------------------------------------------------------------- */

static lace_status reserve(weights *w, lace_error *err)
{
    for (size_t i = 0; i < w->view->n_tensors; i++) {
        tensor *t = &w->view->tensors[i];
        w->is_made[i] = t->data != NULL;
        if (t->data)
            continue;
        size_t n_bytes = (size_t)t->n_bytes + w->view->lead_bytes;
        uint8_t *memory = mem_map(n_bytes);
        if (!memory)
            return error_nomem(err, "the tensors of a model");
        t->data = memory + w->view->lead_bytes;
        w->map_bytes[i] = n_bytes;
    }
    return LACE_OK;
}

lace_status weights_set_view(weights *w, const weights_view *view, lace_error *err)
{
    size_t n = view->n_tensors;
    w->view = mem_alloc(sizeof *w->view);
    if (!w->view) {
        view->free(view->user);
        return error_nomem(err, "a view of a model");
    }
    *w->view = *view;
    w->is_made = mem_calloc(n, sizeof *w->is_made);
    w->map_bytes = mem_calloc(n, sizeof *w->map_bytes);
    const tensor **tensors = mem_realloc(w->tensors, (n ? n : 1) * sizeof *tensors);
    map_deinit(&w->tensor_of_name);
    map_init(&w->tensor_of_name);
    w->n_tensors = 0;
    if (tensors)
        w->tensors = tensors;
    if (!w->is_made || !w->map_bytes || !tensors || map_reserve(&w->tensor_of_name, n) != LACE_OK)
        return error_nomem(err, "a view of a model");
    TRY(reserve(w, err));
    for (size_t i = 0; i < n; i++) {
        tensor *t = &w->view->tensors[i];
        if (map_add(&w->tensor_of_name, t->name, (int32_t)i) != LACE_OK)
            return error_set(err, LACE_E_DUP, "tensor %.*s appears twice", text_width(t->name),
                             t->name.data);
        w->tensors[w->n_tensors++] = t;
    }
    return LACE_OK;
}

lace_status weights_prepare(weights *w, const tensor *t, lace_error *err)
{
    if (!w->view)
        return LACE_OK;
    size_t i = (size_t)(t - w->view->tensors);
    if (w->is_made[i])
        return LACE_OK;
    TRY(w->view->make(w->view->user, i, (uint8_t *)t->data, err));
    w->is_made[i] = true;
    return LACE_OK;
}

bool weights_stay(const weights *w)
{
    return !w->view;
}

void weights_release(const weights *w, const tensor *t)
{
    size_t i = w->view ? (size_t)(t - w->view->tensors) : 0;
    if (w->view && w->map_bytes[i]) {
        mem_discard(memory_of(w, i), w->map_bytes[i]);
        w->is_made[i] = false;
        return;
    }
    /* file_map_release ignores what is not in its mapping. */
    for (size_t k = 0; k < w->n_parts; k++)
        file_map_release(&w->parts[k].map, t->data, (size_t)t->n_bytes);
}

/* ---- Looking up ------------------------------------------------------------------------------ */

const gguf *weights_gguf(const weights *w)
{
    return w->parts[0].g;
}

const json_t *weights_config(const weights *w)
{
    return w->config;
}

size_t weights_count(const weights *w)
{
    return w->n_tensors;
}

const tensor *weights_at(const weights *w, size_t i)
{
    return i < w->n_tensors ? w->tensors[i] : NULL;
}

size_t weights_index(const weights *w, const char *name)
{
    int32_t i = map_find(&w->tensor_of_name, text_of(name));
    return i < 0 ? SIZE_MAX : (size_t)i;
}

const tensor *weights_find(const weights *w, const char *name)
{
    return weights_at(w, weights_index(w, name));
}

const char *weights_name(const weights *w)
{
    return w->name;
}

uint64_t weights_file_bytes(const weights *w)
{
    return w->n_bytes;
}

/* ---- Telling models apart -------------------------------------------------------------------- */

enum { SAMPLE_BYTES = 1024 }; /* of each tensor */

/* All before the first tensor of a file: its metadata and its directory. */
static size_t head_bytes(const part *p)
{
    const uint8_t *begin = p->map.bytes.data;
    size_t n = p->map.bytes.size;
    for (size_t i = 0; i < part_count(p); i++) {
        const uint8_t *data = part_at(p, i)->data;
        if (data >= begin && data < begin + n)
            n = (size_t)(data - begin);
    }
    return n;
}

static bool add_part(digest_stream *s, const part *p)
{
    bool ok = digest_stream_add(s, p->map.bytes.data, head_bytes(p));
    for (size_t i = 0; ok && i < part_count(p); i++) {
        const tensor *t = part_at(p, i);
        size_t n = t->n_bytes < SAMPLE_BYTES ? (size_t)t->n_bytes : SAMPLE_BYTES;
        ok = digest_stream_add(s, t->name.data, t->name.size) &&
             digest_stream_add(s, &t->type, sizeof t->type) &&
             digest_stream_add(s, &t->n_bytes, sizeof t->n_bytes) &&
             digest_stream_add(s, t->data, n) && digest_stream_add(s, t->data + t->n_bytes - n, n);
    }
    return ok;
}

bool weights_digest(const weights *w, digest *out)
{
    digest_stream *s = digest_stream_create();
    char *config = w->config ? json_dumps(w->config, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    bool ok = s && (!w->config || (config && digest_stream_add(s, config, strlen(config))));
    for (size_t i = 0; ok && i < w->n_parts; i++)
        ok = add_part(s, &w->parts[i]);
    ok = ok && digest_stream_peek(s, NULL, 0, out);
    digest_stream_free(s);
    free(config);
    return ok;
}
