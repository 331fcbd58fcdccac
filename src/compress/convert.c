/* Converting a Hugging Face directory into a GGUF file. */
#include "compress/convert.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "compress/convert_meta.h"
#include "tensor/codec/pack.h"
#include "tensor/codec/unpack.h"

/* One tensor to be written. */
typedef struct job {
    const hf_tensors *tensors;
    size_t index;
    const tensor *t;
    dtype type; /* in the file */
} job;

convert_options convert_options_default(void)
{
    return (convert_options){.type = DTYPE_F16};
}

/* ---- Types ----------------------------------------------------------------------------------- */

static bool ends_with(text name, const char *end)
{
    size_t n = strlen(end);
    return name.size >= n && memcmp(name.data + name.size - n, end, n) == 0;
}

/* Matrices that are quantized already stay as they are, unless a type was asked for. */
static dtype type_in_file(const tensor *t, dtype main_type, bool has_type)
{
    bool is_quantized = t->type == DTYPE_Q4_0 || t->type == DTYPE_Q8_0;
    if (t->type == DTYPE_MXFP4 || (is_quantized && !has_type))
        return t->type;
    if (t->shape.n_dims == 1 || ends_with(t->name, "_norm.weight") ||
        ends_with(t->name, "ffn_gate_inp.weight") || ends_with(t->name, "conv1d.weight") ||
        ends_with(t->name, "shortconv.conv.weight") || ends_with(t->name, "position_embd.weight") ||
        ends_with(t->name, "token_types.weight") || !ends_with(t->name, ".weight"))
        return DTYPE_F32;
    if (t->shape.dims[0] % dtype_describe(main_type)->block_values != 0)
        return DTYPE_F16;
    return main_type;
}

dtype convert_type_in_file(const tensor *t, dtype main_type)
{
    return type_in_file(t, main_type, false);
}

/* What most bytes of the directory are, of the types that files can have as their main one. */
static dtype main_type_of(hf_tensors *tensors)
{
    uint64_t n_bytes[DTYPE_COUNT] = {0};
    for (size_t i = 0; i < hf_tensors_count(tensors); i++) {
        const tensor *t = hf_tensors_at(tensors, i);
        if (t->shape.n_dims > 1)
            n_bytes[t->type] += t->n_bytes;
    }
    dtype best = DTYPE_F32;
    if (n_bytes[DTYPE_F16] > n_bytes[best])
        best = DTYPE_F16;
    if (n_bytes[DTYPE_BF16] > n_bytes[best])
        best = DTYPE_BF16;
    /* BF16 holds every value of the two floats of eight bits. */
    if (n_bytes[DTYPE_F8_E4M3] + n_bytes[DTYPE_F8_E5M2] > n_bytes[best])
        best = DTYPE_BF16;
    return best;
}

/* The type that the file is called after: the one of matrices that keep theirs,
 * if they are more. */
static dtype largest_type_of(hf_tensors *tensors, dtype main_type)
{
    uint64_t n_values[DTYPE_COUNT] = {0};
    for (size_t i = 0; i < hf_tensors_count(tensors); i++) {
        const tensor *t = hf_tensors_at(tensors, i);
        if (t->shape.n_dims > 1)
            n_values[type_in_file(t, main_type, false)] += t->n_values;
    }
    dtype best = main_type;
    best = n_values[DTYPE_Q8_0] > n_values[best] ? DTYPE_Q8_0 : best;
    return n_values[DTYPE_Q4_0] > n_values[best] ? DTYPE_Q4_0 : best;
}

/* ---- Values ---------------------------------------------------------------------------------- */

static lace_status check_f16(const job *j, const float *values, int64_t n, lace_error *err)
{
    for (int64_t i = 0; i < n; i++)
        if (fabsf(values[i]) >= 65520.0f && isfinite(values[i]))
            return error_set(err, LACE_E_NUMERIC,
                             "tensor %.*s: the value %g does not fit into f16; bf16 and "
                             "f32 hold it",
                             text_width(j->t->name), j->t->name.data, values[i]);
    return LACE_OK;
}

/* A gguf_produce_fn. */
static lace_status produce(void *user, uint64_t offset, void *out, size_t n_bytes, lace_error *err)
{
    const job *j = user;
    const dtype_info *info = dtype_describe(j->type);
    uint64_t per_block = (uint64_t)info->block_values, size = (uint64_t)info->block_bytes;
    uint64_t first = offset / size * per_block, n = n_bytes / size * per_block;
    if (j->type == j->t->type) {
        hf_tensors_make(j->tensors, j->index, first, n, out);
        return LACE_OK;
    }
    enum { N = 4096 }; /* whole blocks of every type */
    uint8_t blocks[N * sizeof(float)];
    float values[N];
    uint8_t *at = out;
    for (uint64_t i = 0; i < n; i += N) {
        int64_t count = (int64_t)(n - i < N ? n - i : N);
        hf_tensors_make(j->tensors, j->index, first + i, (uint64_t)count, blocks);
        unpack_row(j->t->type, blocks, count, values);
        if (j->type == DTYPE_F16)
            TRY(check_f16(j, values, count, err));
        pack_row(j->type, values, count, at);
        at += row_bytes(j->type, count);
    }
    return LACE_OK;
}

static lace_status add_tensors(hf_tensors *tensors, dtype main_type, bool has_type, job *jobs,
                               gguf_writer *w, lace_error *err)
{
    for (size_t i = 0; i < hf_tensors_count(tensors); i++) {
        const tensor *t = hf_tensors_at(tensors, i);
        if (convert_is_meta(t))
            continue;
        if (!unpack_ref[t->type])
            return error_set(err, LACE_E_TENSOR_TYPE, "tensor %.*s: type %s cannot be converted",
                             text_width(t->name), t->name.data, dtype_describe(t->type)->name);
        jobs[i] = (job){tensors, i, t, type_in_file(t, main_type, has_type)};
        if (jobs[i].type == t->type && t->data)
            TRY(gguf_writer_add_tensor(w, t->name, t->type, &t->shape, t->data, err));
        else
            TRY(gguf_writer_add_tensor_from(w, t->name, jobs[i].type, &t->shape, produce, &jobs[i],
                                            err));
    }
    return LACE_OK;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static lace_status write_file(const char *directory, const char *path, const weights *files,
                              const hf_config *config, hf_tensors *tensors,
                              const convert_options *o, convert_result *out, lace_error *err)
{
    dtype main_type = o->has_type ? o->type : main_type_of(tensors);
    dtype named = o->has_type ? o->type : largest_type_of(tensors, main_type);
    gguf_writer *w = NULL;
    job *jobs = mem_calloc(hf_tensors_count(tensors), sizeof *jobs);
    if (!jobs)
        return error_nomem(err, "the list of tensors");
    lace_status status;
    TRY_GOTO(status, end, gguf_writer_create(&w, err));
    TRY_GOTO(
        status, end,
        convert_add_meta(directory, config, tensors, convert_file_type(tensors, named), w, err));
    if (o->no_vocab)
        gguf_writer_add_text(w, "tokenizer.ggml.model", text_of("none"), NULL);
    else
        TRY_GOTO(status, end, convert_add_vocab(directory, files, config->model.n_vocab, w, err));
    TRY_GOTO(status, end, add_tensors(tensors, main_type, o->has_type, jobs, w, err));
    gguf_writer_set_rules(w, o->rules);
    TRY_GOTO(status, end, gguf_writer_to_file(w, path, o->on_progress, o->progress_user, err));
    if (out) {
        *out = (convert_result){.type = named, .n_tensors = hf_tensors_count(tensors)};
        memcpy(out->architecture, config->model.architecture, sizeof out->architecture);
        for (size_t i = 0; i < hf_tensors_count(tensors); i++)
            out->n_parameters += hf_tensors_at(tensors, i)->n_values;
    }
end:
    gguf_writer_free(w);
    mem_free(jobs);
    return status;
}

lace_status convert_directory(const char *directory, const char *path,
                              const convert_options *options, convert_result *out, lace_error *err)
{
    convert_options o = options ? *options : convert_options_default();
    if (o.has_type && !pack_ref[o.type])
        return error_set(err, LACE_E_ARG, "cannot convert to %s", dtype_describe(o.type)->name);
    weights *files;
    hf_config config;
    hf_tensors *tensors = NULL;
    TRY(weights_open(directory, &files, err));
    lace_status status = LACE_OK;
    if (!weights_config(files))
        status = error_set(err, LACE_E_ARG, "is a file, expected a Hugging Face directory");
    if (status == LACE_OK)
        status = hf_config_read(weights_config(files), &config, err);
    if (status == LACE_OK)
        status = hf_tensors_create(files, &config, HF_AS_GGUF, &tensors, err);
    if (status != LACE_OK)
        error_prefix(err, status, directory);
    else
        status = write_file(directory, path, files, &config, tensors, &o, out, err);
    hf_tensors_free(tensors);
    weights_close(files);
    return status;
}
