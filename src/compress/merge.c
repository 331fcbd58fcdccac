/* Merging a LoRA adapter into a model. */
#include "compress/merge.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "compress/codec.h"
#include "compress/convert.h"
#include "compress/source.h"
#include "formats/gguf_write.h"
#include "model/adapter_file.h"
#include "tensor/codec/pack.h"
#include "tensor/sparse.h"

#define EMBEDDING "token_embd.weight"
#define OUTPUT    "output.weight"

/* A tensor that is written: one of the model, with or without a change. */
typedef struct job {
    const source *s;
    size_t index;
    const tensor *t;
    dtype type;   /* in the file */
    float *left;  /* [rows, rank], or NULL: no change */
    float *right; /* [rank, columns] */
    int32_t rank;
    float factor;
} job;

typedef struct merging {
    source *s;
    adapter_file *f;
    const merge_options *o;
    job *jobs; /* [source_count + 1] */
    size_t n_jobs, n_merged;
    gguf_writer *w;
    lace_error *err;
} merging;

merge_options merge_options_default(void)
{
    return (merge_options){.scale = 1};
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* Values [first, first + n) as floats. */
static void make_values(const job *j, uint64_t first, uint64_t n, float *out)
{
    uint64_t n_cols = (uint64_t)j->t->shape.dims[0];
    source_read(j->s, j->index, first, n, out);
    for (uint64_t at = 0; j->left && at < n;) {
        uint64_t row = (first + at) / n_cols, col = (first + at) % n_cols;
        uint64_t count = n_cols - col < n - at ? n_cols - col : n - at;
        for (int32_t r = 0; r < j->rank; r++) {
            float x = j->factor * j->left[row * (uint64_t)j->rank + (uint64_t)r];
            const float *right = j->right + (uint64_t)r * n_cols + col;
            for (uint64_t i = 0; i < count; i++)
                out[at + i] += x * right[i];
        }
        at += count;
    }
}

static lace_status write_values(const job *j, const float *x, uint64_t n, uint8_t *out,
                                lace_error *err)
{
    const codec *how = codec_find(j->type);
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(x[i]) ||
            (j->type != DTYPE_F32 && j->type != DTYPE_BF16 && fabsf(x[i]) > 65504.0f))
            return error_set(err, LACE_E_NUMERIC,
                             "tensor %.*s: the value %g does not fit into %s; --type gives another",
                             text_width(j->t->name), j->t->name.data, (double)x[i],
                             dtype_describe(j->type)->name);
    if (how)
        return codec_encode(how, x, NULL, (int64_t)n, out, err);
    pack_row(j->type, x, (int64_t)n, out);
    return LACE_OK;
}

/* A gguf_produce_fn. */
static lace_status produce(void *user, uint64_t offset, void *out, size_t n_bytes, lace_error *err)
{
    enum { N = 4096 }; /* whole blocks of every type */
    const job *j = user;
    const dtype_info *info = dtype_describe(j->type);
    uint64_t size = (uint64_t)info->block_bytes, per_block = (uint64_t)info->block_values;
    uint64_t first = offset / size * per_block, n = n_bytes / size * per_block;
    float values[N];
    uint8_t *to = out;
    if (!j->left && j->type == j->t->type) {
        source_copy(j->s, j->index, first, n, out);
        return LACE_OK;
    }
    for (uint64_t i = 0; i < n; i += N) {
        uint64_t count = n - i < N ? n - i : N;
        make_values(j, first + i, count, values);
        TRY(write_values(j, values, count, to, err));
        to += row_bytes(j->type, (int64_t)count);
    }
    return LACE_OK;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static const adapter_part *find_part(const merging *m, text name)
{
    for (size_t i = 0; i < m->f->n_parts; i++)
        if (text_is(name, m->f->parts[i].name))
            return &m->f->parts[i];
    return NULL;
}

/* out[c, r] = from[r, c] */
static void turn(const float *from, int64_t n_rows, int64_t n_cols, float *out)
{
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t c = 0; c < n_cols; c++)
            out[c * n_rows + r] = from[r * n_cols + c];
}

/* Both matrices of a part, so that left * right is what is added to the tensor's rows. */
static lace_status load_part(merging *m, job *j, const adapter_part *p)
{
    size_t n_a = (size_t)(p->rank * p->n_in), n_b = (size_t)(p->rank * p->n_out);
    float *a = mem_alloc(n_a * sizeof *a), *b = mem_alloc(n_b * sizeof *b);
    j->rank = p->rank;
    j->factor = p->factor * m->o->scale;
    j->left = p->is_table ? a : b;
    j->right = p->is_table ? mem_alloc(n_b * sizeof *b) : a;
    lace_status status = a && b && j->right ? adapter_read(m->f, p, a, b, m->err)
                                            : error_nomem(m->err, "the matrices of an adapter");
    if (p->is_table && status == LACE_OK)
        turn(b, p->n_out, p->rank, j->right);
    if (p->is_table)
        mem_free(b);
    m->n_merged++;
    return status;
}

static lace_status choose_type(const merging *m, job *j)
{
    const tensor *t = j->t;
    j->type = source_is_directory(m->s) ? convert_type_in_file(t, t->type) : t->type;
    if (!j->left)
        return LACE_OK;
    if (m->o->has_type)
        j->type = m->o->type;
    const dtype_info *info = dtype_describe(j->type);
    if (dtype_is_sparse(j->type) || !(codec_find(j->type) || pack_ref[j->type]))
        return error_set(m->err, LACE_E_UNSUPPORTED,
                         "tensor %.*s is of type %s, which merged weights cannot be written as; "
                         "--type f16 writes another",
                         text_width(t->name), t->name.data, info->name);
    if (t->shape.dims[0] % info->block_values != 0)
        return error_set(m->err, LACE_E_UNSUPPORTED,
                         "tensor %.*s: rows of %lld values do not fit into blocks of %s",
                         text_width(t->name), t->name.data, (long long)t->shape.dims[0],
                         info->name);
    return LACE_OK;
}

/* The tensor with this index, under a name of its own, changed by a part or not. */
static lace_status add_tensor(merging *m, size_t index, const char *name, const adapter_part *part)
{
    job *j = &m->jobs[m->n_jobs++];
    *j = (job){.s = m->s, .index = index, .t = source_at(m->s, index)};
    if (part)
        TRY(load_part(m, j, part));
    TRY(choose_type(m, j));
    return gguf_writer_add_tensor_from(m->w, name ? text_of(name) : j->t->name, j->type,
                                       &j->t->shape, produce, j, m->err);
}

static size_t find_tensor(const source *s, const char *name)
{
    for (size_t i = 0; i < source_count(s); i++)
        if (text_is(source_at(s, i)->name, name))
            return i;
    return SIZE_MAX;
}

/*
 * Where the output matrix is the embedding again, an adapter changes one of the two: the file gets
 * both.
 */
static lace_status add_untied(merging *m)
{
    const adapter_part *output = find_part(m, text_of(OUTPUT));
    if (find_tensor(m->s, OUTPUT) != SIZE_MAX || !(output || find_part(m, text_of(EMBEDDING))))
        return LACE_OK;
    return add_tensor(m, find_tensor(m->s, EMBEDDING), OUTPUT, output);
}

static lace_status add_tensors(merging *m)
{
    m->jobs = mem_calloc(source_count(m->s) + 1, sizeof *m->jobs);
    if (!m->jobs)
        return error_nomem(m->err, "the list of tensors");
    for (size_t i = 0; i < source_count(m->s); i++) {
        const tensor *t = source_at(m->s, i);
        if (!source_is_meta(m->s, i))
            TRY(add_tensor(m, i, NULL, find_part(m, t->name)));
    }
    return add_untied(m);
}

/* ---- The whole ------------------------------------------------------------------------------- */

static const shape *find_shape(const void *user, const char *name)
{
    size_t i = find_tensor(user, name);
    return i == SIZE_MAX ? NULL : &source_at(user, i)->shape;
}

static lace_status write_file(merging *m, const char *adapter, const char *path, lace_error *err)
{
    adapter_base base = {.names = {.config = source_config(m->s), .layout = HF_AS_GGUF},
                         .find = find_shape,
                         .user = m->s};
    TRY(adapter_open(adapter, &base, &m->f, err));
    TRY(gguf_writer_create(&m->w, err));
    TRY(source_add_meta_but(m->s, NULL, 0, m->w, err));
    TRY(add_tensors(m));
    gguf_writer_set_rules(m->w, m->o->rules);
    return gguf_writer_to_file(m->w, path, m->o->on_progress, m->o->progress_user, err);
}

lace_status merge_adapter(const char *model, const char *adapter, const char *path,
                          const merge_options *options, merge_result *out, lace_error *err)
{
    merge_options usual = merge_options_default();
    merging m = {.o = options ? options : &usual, .err = err};
    TRY(source_open(model, &m.s, err));
    lace_status status = write_file(&m, adapter, path, err);
    if (out && status == LACE_OK)
        *out = (merge_result){m.n_jobs, m.n_merged, m.f->rank};
    for (size_t i = 0; i < m.n_jobs; i++)
        mem_free_all(m.jobs[i].left, m.jobs[i].right);
    gguf_writer_free(m.w);
    adapter_close(m.f);
    source_close(m.s);
    mem_free(m.jobs);
    return status;
}
