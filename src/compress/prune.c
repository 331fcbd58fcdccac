/* Pruning a model: which rule has which tensor, and what becomes of it. */
#include "compress/prune.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/threads.h"
#include "compress/mix.h"
#include "compress/prune_choose.h"
#include "compress/prune_feedback.h"
#include "compress/prune_parts.h"
#include "compress/source.h"
#include "compress/sparse_encode.h"
#include "formats/gguf_write.h"
#include "tensor/codec/pack.h"
#include "tensor/sparse.h"

/* One tensor of the model. */
typedef struct job {
    const tensor *t;
    size_t index;
    int32_t rule;  /* that takes weights out of it; -1: none */
    shape s;       /* what is left of its shape */
    dtype type;    /* in the file */
    uint8_t *data; /* in that type; NULL: as in the model. Of a sparse one the blob */
    buf blob;
    char name[96];
} job;

typedef struct task {
    const surgery *s;
    const prune_options *options;
    source *model;
    pool *workers;
    prune_parts parts; /* heads and neurons that stay */
    job *jobs;
    size_t n_jobs;
    prune_result *result;
} task;

prune_options prune_options_default(void)
{
    return (prune_options){0};
}

bool prune_needs_inputs(const surgery *s)
{
    for (int32_t i = 0; i < s->n_rules; i++)
        if (s->rules[i].method != PRUNE_MAGNITUDE && s->rules[i].method != PRUNE_SPARSEGPT)
            return true;
    return false;
}

bool prune_needs_hessians(const surgery *s)
{
    for (int32_t i = 0; i < s->n_rules; i++)
        if (s->rules[i].method == PRUNE_SPARSEGPT)
            return true;
    return false;
}

void prune_result_deinit(prune_result *r)
{
    mem_free(r->rows);
    *r = (prune_result){0};
}

static bool is_float(dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16;
}

/* "rule of line 7", or "the rule" of the command line. */
static const char *rule_name(const surgery_rule *r, char out[32])
{
    if (r->line)
        snprintf(out, 32, "the rule of line %d", r->line);
    else
        snprintf(out, 32, "the rule");
    return out;
}

/* ---- Who has what ---------------------------------------------------------------------------- */

/* S4 of which nothing goes is stored as M4R, code for code. */
static bool is_repacked(const surgery_rule *r, const tensor *t)
{
    return t->type == DTYPE_S4 && t->shape.n_dims == 2 && r->store == STORE_M4 &&
           r->sparsity == 0 && !prune_method_is_structured(r->method);
}

/* Layers that predict further tokens only guess, and no text shows what they read: they stay. */
static bool is_predicting(const task *k, const char *name)
{
    int layer;
    return sscanf(name, "blk.%d.", &layer) == 1 && layer >= source_config(k->model)->n_layers;
}

static lace_status plan_job(task *k, job *j, lace_error *err)
{
    const tensor *t = j->t;
    snprintf(j->name, sizeof j->name, "%.*s", text_width(t->name), t->name.data);
    j->s = t->shape;
    j->type = t->type;
    bool is_table = strcmp(j->name, "token_embd.weight") == 0 ||
                    strcmp(j->name, "per_layer_token_embd.weight") == 0;
    bool may = mix_is_matrix(t) && !is_table && !is_predicting(k, j->name);
    j->rule = may ? surgery_match(k->s, j->name, false) : -1;
    if (j->rule < 0)
        return LACE_OK;
    const surgery_rule *r = &k->s->rules[j->rule];
    char rule[32];
    if (!is_float(t->type) && !is_repacked(r, t))
        return error_set(
            err, LACE_E_META,
            "%s removes weights from %s, which is %s: prune the original model (f16, bf16 or f32)",
            rule_name(r, rule), j->name, dtype_describe(t->type)->name);
    if (r->store != STORE_SAME && t->shape.dims[0] % SPARSE_TILE != 0)
        return error_set(
            err, LACE_E_META,
            "%s stores %s as %s, which needs rows of a multiple of %d values; these have %" PRId64,
            rule_name(r, rule), j->name, prune_store_name(r->store), SPARSE_TILE, t->shape.dims[0]);
    prune_row *row = &k->result->rows[j->rule];
    row->n_tensors++;
    row->n_weights += t->n_values;
    row->bytes_before += t->n_bytes;
    return LACE_OK;
}

static lace_status plan_all(task *k, const char *input, lace_error *err)
{
    TRY(source_open(input, &k->model, err));
    k->n_jobs = source_count(k->model);
    k->jobs = mem_calloc(k->n_jobs, sizeof *k->jobs);
    k->result->rows = mem_calloc((size_t)k->s->n_rules, sizeof *k->result->rows);
    if (!k->jobs || !k->result->rows)
        return error_nomem(err, "the list of tensors");
    for (size_t i = 0; i < k->n_jobs; i++) {
        job *j = &k->jobs[i];
        j->t = source_at(k->model, i);
        j->index = i;
        k->result->bytes_before += j->t->n_bytes;
        TRY(plan_job(k, j, err));
    }
    TRY(prune_parts_plan(&k->parts, k->model, k->s, k->result->rows, err));
    for (int32_t i = 0; i < k->s->n_rules; i++) {
        const surgery_rule *r = &k->s->rules[i];
        char rule[32];
        if (k->result->rows[i].n_tensors == 0)
            return error_set(err, LACE_E_META,
                             "%s (tensors \"%.64s\"%s) matches no tensor that can be pruned; lace "
                             "inspect shows the names",
                             rule_name(r, rule), r->tensors[0], r->n_tensors > 1 ? ", ..." : "");
    }
    return LACE_OK;
}

static void end_task(task *k)
{
    for (size_t i = 0; k->jobs && i < k->n_jobs; i++) {
        mem_free(k->jobs[i].data);
        buf_deinit(&k->jobs[i].blob);
    }
    prune_parts_deinit(&k->parts);
    mem_free(k->jobs);
    pool_free(k->workers);
    source_close(k->model);
}

lace_status prune_plan(const char *input, const surgery *s, prune_result *out, lace_error *err)
{
    *out = (prune_result){0};
    task k = {.s = s, .result = out};
    lace_status status = plan_all(&k, input, err);
    end_task(&k);
    if (status != LACE_OK)
        prune_result_deinit(out);
    return status;
}

/* ---- One tensor ------------------------------------------------------------------------------ */

typedef struct choosing {
    const surgery_rule *rule;
    prune_matrix m; /* all experts one below the other share nothing but the rule */
    int64_t rows_per_expert;
    const float *inputs;  /* [n_experts, n_cols], or NULL */
    const float *columns; /* likewise */
    uint8_t *keeps;
    float *scratch; /* [n_workers, 2 * n_cols] */
} choosing;

static void choose_rows(void *arg, int index, int n_workers)
{
    const choosing *c = arg;
    int64_t begin, end, n_cols = c->m.n_cols;
    pool_share(c->m.n_rows, 1, index, n_workers, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        int64_t expert = row / c->rows_per_expert;
        prune_matrix m = c->m;
        m.inputs = c->inputs ? c->inputs + expert * n_cols : NULL;
        m.columns = c->columns ? c->columns + expert * n_cols : NULL;
        prune_choose_row(c->rule, &m, row, c->keeps + row * n_cols,
                         c->scratch + (int64_t)index * 2 * n_cols);
    }
}

/* The mean squares of the tensor's inputs, [n_experts, n_cols left], or *out NULL. */
static lace_status read_inputs(const task *k, const job *j, float **out, lace_error *err)
{
    imatrix_entry *e =
        k->options->importance ? imatrix_find(k->options->importance, j->t->name) : NULL;
    int64_t n_cols = j->t->shape.dims[0],
            n_experts = j->t->shape.n_dims > 2 ? j->t->shape.dims[2] : 1;
    *out = NULL;
    prune_method method = k->s->rules[j->rule].method;
    if (!e)
        return method == PRUNE_MAGNITUDE || method == PRUNE_SPARSEGPT
                   ? LACE_OK
                   : error_set(err, LACE_E_META,
                               "the importance matrix has no entry for %s, which %s needs", j->name,
                               prune_method_name(method));
    if (!imatrix_fits(e, n_cols, n_experts))
        return error_set(err, LACE_E_SHAPE, "%s: the importance matrix is of another model",
                         j->name);
    *out = mem_alloc((size_t)(n_cols * n_experts) * sizeof **out);
    if (!*out)
        return error_nomem(err, "an importance matrix");
    for (int64_t i = 0; i < n_experts; i++)
        imatrix_means(e, i, *out + i * n_cols);
    prune_parts_cut_columns(&k->parts, j->index, n_experts, *out);
    return LACE_OK;
}

/* What is left of the tensor as floats: parts that went are not there. */
static lace_status read_values(const task *k, job *j, float **out, lace_error *err)
{
    *out = mem_alloc((size_t)j->t->n_values * sizeof **out);
    if (!*out)
        return error_nomem(err, j->name);
    source_read(k->model, j->index, 0, j->t->n_values, *out);
    for (uint64_t i = 0; i < j->t->n_values; i++)
        if (!isfinite((*out)[i]))
            return error_set(err, LACE_E_NUMERIC,
                             "tensor %s: weight %" PRIu64 " is %g, expected a number", j->name, i,
                             (double)(*out)[i]);
    prune_parts_cut(&k->parts, j->index, *out, &j->s);
    return LACE_OK;
}

static int64_t count_rows(const shape *s)
{
    int64_t n = 1;
    for (int i = 1; i < s->n_dims; i++)
        n *= s->dims[i];
    return n;
}

/* The weights that stay are changed, to make good what goes. */
static lace_status choose_with_feedback(const task *k, const job *j, float *w, uint8_t *keeps,
                                        lace_error *err)
{
    const hessian *h = prune_hessians_find(k->options->hessians, j->t->name);
    if (!h)
        return error_set(err, LACE_E_META, "no inputs of %s were collected, which sparsegpt needs",
                         j->name);
    if (h->n != j->s.dims[0] || j->s.n_dims > 2)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "%s: sparsegpt and a rule that removes heads or neurons cannot change a "
                         "tensor in one run; use two runs",
                         j->name);
    return prune_with_feedback(&k->s->rules[j->rule], h, w, count_rows(&j->s), keeps, k->workers,
                               err);
}

static lace_status choose(const task *k, const job *j, float *w, const float *inputs,
                          uint8_t *keeps, lace_error *err)
{
    if (k->s->rules[j->rule].method == PRUNE_SPARSEGPT)
        return choose_with_feedback(k, j, w, keeps, err);
    int64_t n_cols = j->s.dims[0], n_rows = count_rows(&j->s);
    int64_t n_experts = j->s.n_dims > 2 ? j->s.dims[2] : 1;
    choosing c = {.rule = &k->s->rules[j->rule],
                  .m = {.w = w, .n_rows = n_rows, .n_cols = n_cols},
                  .rows_per_expert = n_rows / n_experts,
                  .inputs = inputs,
                  .keeps = keeps};
    float *columns = mem_alloc((size_t)(n_experts * n_cols) * sizeof *columns);
    c.scratch = mem_alloc((size_t)(2 * n_cols * pool_size(k->workers)) * sizeof *c.scratch);
    lace_status status = LACE_OK;
    if (!columns || !c.scratch)
        status = error_nomem(err, j->name);
    for (int64_t e = 0; status == LACE_OK && e < n_experts; e++) {
        prune_matrix m = {
            .w = w + e * c.rows_per_expert * n_cols, .n_rows = c.rows_per_expert, .n_cols = n_cols};
        prune_column_sums(&m, columns + e * n_cols);
    }
    c.columns = columns;
    if (status == LACE_OK)
        pool_run(k->workers, choose_rows, &c);
    mem_free_all(columns, c.scratch);
    return status;
}

/* Floats to the tensor's own type. */
static lace_status keep_type(job *j, const float *w, lace_error *err)
{
    int64_t n_cols = j->s.dims[0], n_rows = count_rows(&j->s);
    j->data = mem_alloc((size_t)((uint64_t)n_rows * row_bytes(j->type, n_cols)));
    if (!j->data)
        return error_nomem(err, j->name);
    for (int64_t r = 0; r < n_rows; r++)
        pack_row(j->type, w + r * n_cols, n_cols,
                 j->data + (uint64_t)r * row_bytes(j->type, n_cols));
    return LACE_OK;
}

static lace_status store_sparse(const task *k, job *j, const float *w, const float *inputs,
                                const uint8_t *keeps, lace_error *err)
{
    static const sparse_kind kinds[STORE_N] = {
        [STORE_M4] = SPARSE_M4,
        [STORE_M8] = SPARSE_M8,
        [STORE_N24] = SPARSE_N24,
        [STORE_CSR] = SPARSE_CSR,
    };
    sparse_matrix m = {.w = w,
                       .n_rows = count_rows(&j->s),
                       .n_cols = j->s.dims[0],
                       .keeps = keeps,
                       .inputs = j->s.n_dims > 2 ? NULL : inputs};
    buf_init(&j->blob, SIZE_MAX / 2);
    return sparse_encode(kinds[k->s->rules[j->rule].store], &m, k->workers, &j->blob, err);
}

static lace_status repack(const task *k, job *j, lace_error *err)
{
    buf_init(&j->blob, SIZE_MAX / 2);
    TRY(sparse_encode_s4(j->t->data, j->s.dims[1], j->s.dims[0], &j->blob, err));
    k->result->rows[j->rule].bytes_after += j->blob.size;
    return LACE_OK;
}

/* Take weights out of one tensor. */
static lace_status prune_one(const task *k, job *j, lace_error *err)
{
    const surgery_rule *r = &k->s->rules[j->rule];
    if (is_repacked(r, j->t))
        return repack(k, j, err);
    float *w = NULL, *inputs = NULL;
    uint8_t *keeps = NULL;
    lace_status status = read_values(k, j, &w, err);
    int64_t n = j->s.dims[0] * count_rows(&j->s);
    if (status == LACE_OK)
        status = read_inputs(k, j, &inputs, err);
    if (status == LACE_OK) {
        keeps = mem_alloc((size_t)n);
        status = keeps ? choose(k, j, w, inputs, keeps, err) : error_nomem(err, j->name);
    }
    prune_row *row = &k->result->rows[j->rule];
    if (status == LACE_OK)
        for (int64_t i = 0; i < n; i++) {
            row->n_gone += !keeps[i];
            w[i] = keeps[i] ? w[i] : 0;
        }
    if (status == LACE_OK)
        status = r->store == STORE_SAME ? keep_type(j, w, err)
                                        : store_sparse(k, j, w, inputs, keeps, err);
    row->bytes_after += r->store == STORE_SAME
                            ? (uint64_t)count_rows(&j->s) * row_bytes(j->type, j->s.dims[0])
                            : j->blob.size;
    mem_free_all(w, inputs, keeps);
    return status;
}

/* A tensor from which only parts go. */
static lace_status cut_one(const task *k, job *j, lace_error *err)
{
    float *w = NULL;
    lace_status status = LACE_OK;
    if (!is_float(j->t->type))
        return error_set(err, LACE_E_META,
                         "heads or neurons are removed from %s, which is %s: prune the original "
                         "model (f16, bf16 or f32)",
                         j->name, dtype_describe(j->t->type)->name);
    status = read_values(k, j, &w, err);
    if (status == LACE_OK)
        status = keep_type(j, w, err);
    mem_free(w);
    return status;
}

/* ---- The file -------------------------------------------------------------------------------- */

/* A gguf_produce_fn for tensors that stay as they are. */
typedef struct copying {
    const source *model;
    const job *j;
} copying;

static lace_status produce(void *user, uint64_t offset, void *out, size_t n_bytes, lace_error *err)
{
    const copying *c = user;
    const dtype_info *info = dtype_describe(c->j->type);
    uint64_t per_block = (uint64_t)info->block_values, size = (uint64_t)info->block_bytes;
    source_copy(c->model, c->j->index, offset / size * per_block, n_bytes / size * per_block, out);
    return LACE_OK;
}

static lace_status add_tensor(const task *k, job *j, copying *c, gguf_writer *w, lace_error *err)
{
    if (j->blob.size > 0) {
        char name[sizeof j->name + sizeof SPARSE_SUFFIX];
        snprintf(name, sizeof name, "%s%s", j->name, SPARSE_SUFFIX);
        shape s = {1, {(int64_t)j->blob.size}};
        k->result->bytes_after += j->blob.size;
        return gguf_writer_add_tensor(w, text_of(name), DTYPE_I8, &s, j->blob.data, err);
    }
    k->result->bytes_after += (uint64_t)count_rows(&j->s) * row_bytes(j->type, j->s.dims[0]);
    if (j->data)
        return gguf_writer_add_tensor(w, j->t->name, j->type, &j->s, j->data, err);
    *c = (copying){k->model, j};
    return gguf_writer_add_tensor_from(w, j->t->name, j->type, &j->s, produce, c, err);
}

static lace_status write_file(const task *k, buf *out, lace_error *err)
{
    gguf_writer *w = NULL;
    copying *copies = mem_calloc(k->n_jobs, sizeof *copies);
    if (!copies)
        return error_nomem(err, "the list of tensors");
    lace_status status;
    TRY_GOTO(status, end, gguf_writer_create(&w, err));
    TRY_GOTO(status, end, prune_parts_add_meta(&k->parts, k->model, w, err));
    for (size_t i = 0; i < k->n_jobs; i++)
        TRY_GOTO(status, end, add_tensor(k, &k->jobs[i], &copies[i], w, err));
    status = gguf_writer_to_buf(w, out, err);
end:
    gguf_writer_free(w);
    mem_free(copies);
    return status;
}

static lace_status prune_all(task *k, const char *input, buf *out, lace_error *err)
{
    const prune_options *o = k->options;
    TRY(plan_all(k, input, err));
    TRY(pool_create(o->n_threads ? o->n_threads : cpu_count(), &k->workers, err));
    TRY(prune_parts_choose(&k->parts, k->model, k->s, o->importance, k->result->rows, err));
    for (size_t i = 0; i < k->n_jobs; i++) {
        job *j = &k->jobs[i];
        if (o->on_progress &&
            !o->on_progress(o->progress_user, "pruning", (double)i / (double)k->n_jobs))
            return error_set(err, LACE_E_CANCELLED, "pruning was cancelled");
        if (j->rule >= 0)
            TRY(prune_one(k, j, err));
        else if (prune_parts_has(&k->parts, i))
            TRY(cut_one(k, j, err));
    }
    return write_file(k, out, err);
}

lace_status prune_model(const char *input, const surgery *s, const prune_options *options, buf *out,
                        prune_result *result, lace_error *err)
{
    *result = (prune_result){0};
    task k = {.s = s, .options = options, .result = result};
    lace_status status = prune_all(&k, input, out, err);
    end_task(&k);
    if (status != LACE_OK)
        prune_result_deinit(result);
    return status;
}
