/* A model to be compressed: one view of GGUF files and Hugging Face directories. */
#include "compress/source.h"

#include <assert.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "compress/convert_meta.h"
#include "formats/weights.h"
#include "tensor/codec/unpack.h"
#include "hf/hf_names.h"
#include "model/model.h"

struct source {
    char *path;
    weights *files;
    model_config config;
    hf_config hf;        /* of a directory */
    hf_tensors *tensors; /* NULL: a GGUF file */
};

enum { QUANTIZATION_VERSION = 2 };

static lace_status open_directory(source *s, lace_error *err)
{
    TRY(hf_config_read(weights_config(s->files), &s->hf, err));
    s->config = s->hf.model;
    return hf_tensors_create(s->files, &s->hf, HF_AS_GGUF, &s->tensors, err);
}

static lace_status check_types(const source *s, lace_error *err)
{
    for (size_t i = 0; i < source_count(s); i++) {
        const tensor *t = source_at(s, i);
        if (!unpack_ref[t->type])
            return error_set(err, LACE_E_TENSOR_TYPE,
                             "tensor %.*s: type %s cannot be read as numbers", text_width(t->name),
                             t->name.data, dtype_describe(t->type)->name);
    }
    return LACE_OK;
}

/*
 * A model that does not run is not made smaller: its tensors are those that its metadata speak of,
 * in number and shape. Binding checks that; no weight is read.
 */
static lace_status check_binds(const char *path, lace_error *err)
{
    weights *files;
    model *m;
    TRY(weights_open(path, &files, err));
    device_options options = {.level = cpu_level_detect()};
    TRY(model_create(files, NULL, &options, &m, err));
    model_free(m);
    return LACE_OK;
}

lace_status source_open(const char *path, source **out, lace_error *err)
{
    *out = NULL;
    source *s = mem_calloc(1, sizeof *s);
    if (!s)
        return error_nomem(err, "a model");
    lace_status status = LACE_OK;
    s->path = mem_strdup(path);
    if (!s->path)
        status = error_nomem(err, "a model");
    if (status == LACE_OK)
        status = weights_open(path, &s->files, err);
    else
        s->files = NULL;
    if (status == LACE_OK)
        status = check_binds(path, err); /* first: it says what lace cannot run */
    if (status == LACE_OK) {
        bool is_directory = weights_config(s->files) != NULL;
        status =
            is_directory ? open_directory(s, err) : config_from_weights(s->files, &s->config, err);
        if (status == LACE_OK)
            status = check_types(s, err);
        if (status != LACE_OK)
            error_prefix(err, status, path);
    }
    return GIVE_OR_FREE(status, s, out, source_close);
}

void source_close(source *s)
{
    if (!s)
        return;
    hf_tensors_free(s->tensors);
    weights_close(s->files);
    mem_free_all(s->path, s);
}

const model_config *source_config(const source *s)
{
    return &s->config;
}

size_t source_count(const source *s)
{
    return s->tensors ? hf_tensors_count(s->tensors) : weights_count(s->files);
}

bool source_is_directory(const source *s)
{
    return s->tensors != NULL;
}

bool source_is_meta(const source *s, size_t i)
{
    return s->tensors && convert_is_meta(source_at(s, i));
}

const tensor *source_at(const source *s, size_t i)
{
    return s->tensors ? hf_tensors_at(s->tensors, i) : weights_at(s->files, i);
}

void source_copy(const source *s, size_t i, uint64_t first, uint64_t n, void *out)
{
    const tensor *t = source_at(s, i);
    assert(first + n <= t->n_values);
    if (s->tensors)
        hf_tensors_make(s->tensors, i, first, n, out);
    else
        memcpy(out, t->data + row_bytes(t->type, (int64_t)first),
               (size_t)row_bytes(t->type, (int64_t)n));
}

void source_read(const source *s, size_t i, uint64_t first, uint64_t n, float *out)
{
    enum { N = 4096 }; /* whole blocks of every type */
    const tensor *t = source_at(s, i);
    for (uint64_t at = 0; at < n; at += N) {
        uint8_t blocks[N * sizeof(float)];
        uint64_t count = n - at < N ? n - at : N;
        source_copy(s, i, first + at, count, blocks);
        unpack_row(t->type, blocks, (int64_t)count, out + at);
    }
}

static bool begins_with(text key, const char *start)
{
    size_t n = strlen(start);
    return key.size >= n && memcmp(key.data, start, n) == 0;
}

lace_status source_add_meta(const source *s, int file_type, gguf_writer *w, lace_error *err)
{
    if (s->tensors) {
        TRY(convert_add_meta(s->path, &s->hf, s->tensors, file_type, w, err));
        return convert_add_vocab(s->path, s->files, s->config.n_vocab, w, err);
    }
    const gguf *g = weights_gguf(s->files);
    for (size_t i = 0; i < gguf_n_values(g); i++) {
        const gguf_value *v = gguf_value_at(g, i);
        if (text_is(v->key, "general.file_type") ||
            text_is(v->key, "general.quantization_version") ||
            text_is(v->key, "general.alignment") || begins_with(v->key, "split.") ||
            begins_with(v->key, "quantize.") || begins_with(v->key, "lace."))
            continue;
        TRY(gguf_writer_add_value(w, v, err));
    }
    TRY(gguf_writer_add_int(w, "general.quantization_version", GGUF_U32, QUANTIZATION_VERSION,
                            err));
    return gguf_writer_add_int(w, "general.file_type", GGUF_U32, file_type, err);
}

mix_context source_mix_context(const source *s, bool has_importance)
{
    const model_config *c = source_config(s);
    mix_context m = {.n_layers = c->n_layers,
                     .n_experts = c->n_experts,
                     .n_heads_per_kv = c->n_heads / c->n_kv_heads,
                     .is_tied = true,
                     .has_importance = has_importance};
    for (size_t i = 0; i < source_count(s); i++)
        if (text_is(source_at(s, i)->name, "output.weight"))
            m.is_tied = false;
    return m;
}

const char *source_architecture(const source *s)
{
    return s->config.architecture;
}

lace_status source_add_meta_but(const source *s, const char *const *keys, size_t n_keys,
                                gguf_writer *w, lace_error *err)
{
    if (s->tensors) {
        enum { FILE_TYPE_F16 = 1 };
        if (n_keys > 0)
            return error_set(
                err, LACE_E_UNSUPPORTED,
                "%s is a directory, expected a GGUF file; lace convert makes one of it", s->path);
        TRY(convert_add_meta(s->path, &s->hf, s->tensors, FILE_TYPE_F16, w, err));
        return convert_add_vocab(s->path, s->files, s->config.n_vocab, w, err);
    }
    const gguf *g = weights_gguf(s->files);
    for (size_t i = 0; i < gguf_n_values(g); i++) {
        const gguf_value *v = gguf_value_at(g, i);
        bool is_left_out = text_is(v->key, "general.alignment") || begins_with(v->key, "split.");
        for (size_t k = 0; k < n_keys; k++)
            is_left_out |= text_is(v->key, keys[k]);
        if (!is_left_out)
            TRY(gguf_writer_add_value(w, v, err));
    }
    return LACE_OK;
}
