/* Quantizing a model, value by value. */
#include "compress/quantize.h"

#include <assert.h>
#include <float.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/threads.h"
#include "compress/codec.h"
#include "compress/finite.h"
#include "compress/source.h"
#include "tensor/codec/pack.h"

typedef struct task {
    const source *model;
    const quantize_options *options;
    pool *workers;
} task;

/* One tensor to be written. */
typedef struct job {
    const task *task;
    size_t index;
    const tensor *t;
    dtype type;          /* in the file */
    const codec *how;    /* NULL: a plain type, or as it is */
    float *importance;   /* [n_experts, n_cols] means, or NULL */
    const uint8_t *made; /* its blocks, if they are there already */
} job;

quantize_options quantize_options_default(void)
{
    return (quantize_options){0};
}

quantize_made *quantize_made_create(size_t n_most)
{
    quantize_made *m = mem_calloc(1, sizeof *m);
    if (m)
        m->tensors = mem_calloc(n_most, sizeof *m->tensors);
    if (m && m->tensors)
        return m;
    mem_free(m);
    return NULL;
}

void quantize_made_add(quantize_made *m, const tensor *t, dtype type)
{
    struct quantize_made_tensor *to = &m->tensors[m->n++];
    snprintf(to->name, sizeof to->name, "%.*s", (int)t->name.size, t->name.data);
    to->type = type;
}

void quantize_made_free(quantize_made *m)
{
    for (size_t i = 0; m && i < m->n; i++)
        mem_free(m->tensors[i].blocks);
    if (m)
        mem_free(m->tensors);
    mem_free(m);
}

const struct quantize_made_tensor *quantize_made_find(const quantize_made *m, text name)
{
    for (size_t i = 0; m && i < m->n; i++)
        if (text_is(name, m->tensors[i].name))
            return &m->tensors[i];
    return NULL;
}

void quantize_made_take_blocks(quantize_made *to, quantize_made *from)
{
    for (size_t i = 0; i < from->n; i++)
        for (size_t n = 0; n < to->n; n++)
            if (strcmp(to->tensors[n].name, from->tensors[i].name) == 0) {
                to->tensors[n].blocks = from->tensors[i].blocks;
                from->tensors[i].blocks = NULL;
            }
}

/* ---- Values ---------------------------------------------------------------------------------- */

enum { PIECE = 4096 }; /* values that a worker takes at once: whole blocks of every type */

typedef struct chunk {
    const job *j;
    uint64_t first, n; /* values */
    uint8_t *out;
    handout pieces;
    atomic_bool is_out_of_memory;
    _Atomic uint64_t first_bad; /* index of a value that cannot be written; UINT64_MAX: none */
} chunk;

/* Of the numbers a type can hold, the largest; scales are F16 in all but lace's own. */
static float largest_of(dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_BF16 ? FLT_MAX : 65504.0f;
}

/* Notes the first value that is not finite or too large. */
static void check_values(chunk *c, uint64_t first, const float *x, uint64_t n)
{
    float most = largest_of(c->j->type);
    for (uint64_t i = 0; i < n; i++) {
        if (fabsf(x[i]) <= most)
            continue;
        uint64_t seen = atomic_load(&c->first_bad);
        while (first + i < seen && !atomic_compare_exchange_weak(&c->first_bad, &seen, first + i))
            ;
        return;
    }
}

/* Values of one block with the importance of their columns. */
static lace_status encode_blocks(const job *j, uint64_t first, const float *x, uint64_t n,
                                 uint8_t *out)
{
    if (!j->importance)
        return codec_encode(j->how, x, NULL, (int64_t)n, out, NULL);
    uint64_t n_cols = (uint64_t)j->t->shape.dims[0];
    uint64_t per_expert = n_cols * (uint64_t)j->t->shape.dims[1];
    uint64_t step = (uint64_t)j->how->n_values;
    for (uint64_t i = 0; i < n; i += step) {
        uint64_t expert = (first + i) / per_expert, column = (first + i) % n_cols;
        const float *importance = j->importance + expert * n_cols + column;
        TRY(codec_encode(j->how, x + i, importance, (int64_t)step, out, NULL));
        out += row_bytes(j->type, (int64_t)step);
    }
    return LACE_OK;
}

static void encode_pieces(void *arg, int worker, int n_workers)
{
    chunk *c = arg;
    const job *j = c->j;
    uint32_t n_pieces = (uint32_t)((c->n + PIECE - 1) / PIECE), piece;
    while (handout_claim(&c->pieces, n_pieces, &piece)) {
        float x[PIECE];
        uint64_t at = (uint64_t)piece * PIECE, n = c->n - at < PIECE ? c->n - at : PIECE;
        uint8_t *out = c->out + row_bytes(j->type, (int64_t)at);
        source_read(j->task->model, j->index, c->first + at, n, x);
        check_values(c, c->first + at, x, n);
        if (j->type == j->t->type)
            source_copy(j->task->model, j->index, c->first + at, n, out);
        else if (atomic_load(&c->first_bad) != UINT64_MAX)
            continue; /* codecs want finite numbers */
        else if (!j->how)
            pack_row(j->type, x, (int64_t)n, out);
        else if (encode_blocks(j, c->first + at, x, n, out) != LACE_OK)
            atomic_store(&c->is_out_of_memory, true);
    }
}

static lace_status refuse_value(const job *j, uint64_t index, lace_error *err)
{
    float x[CODEC_MAX_VALUES];
    char why[64];
    uint64_t n = (uint64_t)dtype_describe(j->t->type)->block_values;
    source_read(j->task->model, j->index, index / n * n, n, x);
    snprintf(why, sizeof why, ", which %s cannot hold", dtype_describe(j->type)->name);
    return finite_refuse(j->t, index, x[index % n], why, err);
}

/* A gguf_produce_fn. */
static lace_status produce(void *user, uint64_t offset, void *out, size_t n_bytes, lace_error *err)
{
    const job *j = user;
    const dtype_info *info = dtype_describe(j->type);
    uint64_t per_block = (uint64_t)info->block_values, size = (uint64_t)info->block_bytes;
    chunk c = {.j = j,
               .first = offset / size * per_block,
               .n = n_bytes / size * per_block,
               .out = out,
               .first_bad = UINT64_MAX};
    pool_run(j->task->workers, encode_pieces, &c);
    uint64_t bad = atomic_load(&c.first_bad);
    if (bad != UINT64_MAX)
        return refuse_value(j, bad, err);
    return atomic_load(&c.is_out_of_memory) ? error_nomem(err, "a search") : LACE_OK;
}

/* ---- Types ----------------------------------------------------------------------------------- */

static bool is_plain(dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16 || type == DTYPE_F8_E4M3 ||
           type == DTYPE_F8_E5M2;
}

/* The importance of a tensor's columns, for each expert; NULL if it is not known. */
static lace_status find_importance(job *j, const imatrix *from, lace_error *err)
{
    imatrix_entry *e = from ? imatrix_find(from, j->t->name) : NULL;
    if (!e)
        return LACE_OK;
    int64_t n_experts = j->t->shape.n_dims > 2 ? j->t->shape.dims[2] : 1;
    int64_t n_cols = j->t->shape.dims[0];
    if (j->t->shape.n_dims > 3 || !imatrix_fits(e, n_cols, n_experts))
        return error_set(
            err, LACE_E_SHAPE,
            "tensor %.*s: the importance matrix has %lldx%lld values, expected %lldx%lld",
            text_width(j->t->name), j->t->name.data, (long long)e->n_cols, (long long)e->n_experts,
            (long long)n_cols, (long long)n_experts);
    j->importance = mem_alloc((size_t)(n_cols * n_experts) * sizeof *j->importance);
    if (!j->importance)
        return error_nomem(err, "an importance matrix");
    for (int64_t i = 0; i < n_experts; i++)
        imatrix_means(e, i, j->importance + i * n_cols);
    return LACE_OK;
}

static lace_status plan_tensor(job *j, const mix_context *context, lace_error *err)
{
    const quantize_options *o = j->task->options;
    const tensor *t = j->t;
    if (!mix_is_matrix(t)) {
        /* Of a directory these come in the type of its matrices; files have them in F32. */
        j->type = is_plain(t->type) ? DTYPE_F32 : t->type;
        return LACE_OK;
    }
    const struct quantize_made_tensor *made = quantize_made_find(o->made, t->name);
    j->type = made ? made->type : mix_type_of(o->mix, context, t);
    if (made && made->blocks) {
        j->made = made->blocks;
        return LACE_OK;
    }
    if (j->type == t->type)
        return LACE_OK;
    if (!is_plain(t->type) && !o->allow_requantize)
        return error_set(err, LACE_E_ARG,
                         "tensor %.*s is %s already, and quantizing it again loses more than "
                         "quantizing the original; --requantize does it anyway",
                         text_width(t->name), t->name.data, dtype_describe(t->type)->name);
    j->how = codec_find(j->type);
    assert(j->how || pack_ref[j->type]);
    return find_importance(j, o->importance, err);
}

/* ---- The whole ------------------------------------------------------------------------------- */

static void add_importance_meta(const quantize_options *o, gguf_writer *w)
{
    if (!o->importance)
        return;
    if (o->importance_path)
        gguf_writer_add_text(w, "quantize.imatrix.file", text_of(o->importance_path), NULL);
    gguf_writer_add_int(w, "quantize.imatrix.entries_count", GGUF_U32,
                        (int64_t)imatrix_count(o->importance), NULL);
}

static bool has_own_types(const quantize_options *o)
{
    for (size_t i = 0; o->made && i < o->made->n; i++)
        if (dtype_describe(o->made->tensors[i].type)->number >= DTYPE_OWN)
            return true;
    return dtype_describe(o->mix->type)->number >= DTYPE_OWN;
}

static lace_status write_model(const task *k, job *jobs, const char *path, buf *made,
                               quantize_result *out, lace_error *err)
{
    gguf_writer *w;
    mix_context context = source_mix_context(k->model, k->options->importance != NULL);
    TRY(gguf_writer_create(&w, err));
    lace_status status;
    TRY_GOTO(status, end, source_add_meta(k->model, k->options->mix->file_type, w, err));
    add_importance_meta(k->options, w);
    if (has_own_types(k->options))
        gguf_writer_add_int(w, "lace.format.version", GGUF_U32, DTYPE_OWN_VERSION, NULL);
    for (size_t i = 0; i < source_count(k->model); i++) {
        job *j = &jobs[i];
        *j = (job){.task = k, .index = i, .t = source_at(k->model, i)};
        TRY_GOTO(status, end, plan_tensor(j, &context, err));
        status = j->made
                     ? gguf_writer_add_tensor(w, j->t->name, j->type, &j->t->shape, j->made, err)
                     : gguf_writer_add_tensor_from(w, j->t->name, j->type, &j->t->shape, produce, j,
                                                   err);
        if (status != LACE_OK)
            goto end;
        out->n_parameters += j->t->n_values;
        out->bytes_before += j->t->n_bytes;
        out->bytes_after += row_bytes(j->type, (int64_t)j->t->n_values);
        out->n_quantized += j->how || j->made;
        out->n_without_importance += j->how != NULL && k->options->importance && !j->importance;
    }
    gguf_writer_set_rules(w, k->options->rules);
    status = made ? gguf_writer_to_buf(w, made, err)
                  : gguf_writer_to_file(w, path, k->options->on_progress, k->options->progress_user,
                                        err);
end:
    gguf_writer_free(w);
    return status;
}

static lace_status quantize_into(const char *input, const char *path, buf *made,
                                 const quantize_options *options, quantize_result *out,
                                 lace_error *err)
{
    source *model = NULL;
    quantize_result result = {0};
    task k = {.options = options};
    job *jobs = NULL;
    TRY(source_open(input, &model, err));
    k.model = model;
    result.n_tensors = source_count(model);
    lace_status status = LACE_OK;
    jobs = mem_calloc(result.n_tensors, sizeof *jobs);
    if (!jobs)
        status = error_nomem(err, "the list of tensors");
    if (status == LACE_OK)
        status =
            pool_create(options->n_threads ? options->n_threads : cpu_count(), &k.workers, err);
    if (status == LACE_OK)
        status = write_model(&k, jobs, path, made, &result, err);
    for (size_t i = 0; jobs && i < result.n_tensors; i++)
        mem_free(jobs[i].importance);
    pool_free(k.workers);
    mem_free(jobs);
    source_close(model);
    if (out)
        *out = result;
    return status;
}

lace_status quantize_model(const char *input, const char *path, const quantize_options *options,
                           quantize_result *out, lace_error *err)
{
    return quantize_into(input, path, NULL, options, out, err);
}

lace_status quantize_to_buf(const char *input, buf *made, const quantize_options *options,
                            quantize_result *out, lace_error *err)
{
    return quantize_into(input, NULL, made, options, out, err);
}
