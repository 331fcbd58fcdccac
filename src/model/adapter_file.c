/* LoRA adapters on disk: names, shapes and values, all checked. */
#include "model/adapter_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "ops/lora.h"
#include "tensor/codec/unpack.h"

#define EMBEDDING "token_embd.weight"

/* What names of PEFT begin with. */
#define PEFT_START "base_model.model."

/* While one is opened. */
typedef struct opening {
    adapter_file *f;
    const adapter_base *base;
    peft_config peft;
    digest_stream *digest;
    lace_error *err;
} opening;

/* ---- Parts ----------------------------------------------------------------------------------- */

static bool is_matrix(const tensor *t)
{
    return t->shape.n_dims <= 2 || (t->shape.dims[2] == 1 && t->shape.dims[3] == 1);
}

static lace_status wrong_shape(const opening *o, const tensor *t, const char *expected)
{
    char found[96];
    return error_set(o->err, LACE_E_SHAPE, "%.*s: shape %s, expected %s", text_width(t->name),
                     t->name.data, shape_format(&t->shape, found), expected);
}

static lace_status check_matrix(const opening *o, const tensor *t)
{
    if (!is_matrix(t))
        return error_set(
            o->err, LACE_E_UNSUPPORTED,
            "%.*s: has more than two dimensions; adapters cannot change the experts of "
            "a mixture",
            text_width(t->name), t->name.data);
    if (!unpack_ref[t->type])
        return error_set(o->err, LACE_E_TENSOR_TYPE, "%.*s: lace cannot compute with type %s",
                         text_width(t->name), t->name.data, dtype_describe(t->type)->name);
    return LACE_OK;
}

/* Sizes from the two tensors; whether they fit each other and the model's tensor. */
static lace_status measure(const opening *o, adapter_part *p, bool is_a_turned)
{
    char expected[128];
    const tensor *a = p->a, *b = p->b;
    TRY(check_matrix(o, a));
    TRY(check_matrix(o, b));
    /* dims[0] is the length of a row */
    int64_t rank = b->shape.dims[0];
    if (rank < 1 || rank > LORA_MAX_RANK)
        return error_set(o->err, LACE_E_UNSUPPORTED, "%.*s: the rank is %lld, expected 1 to %d",
                         text_width(b->name), b->name.data, (long long)rank, LORA_MAX_RANK);
    if (a->shape.dims[is_a_turned ? 0 : 1] != rank) {
        snprintf(expected, sizeof expected, "the rank %lld of %.*s", (long long)rank,
                 (int)(b->name.size < 64 ? b->name.size : 64), b->name.data);
        return wrong_shape(o, a, expected);
    }
    p->rank = (int32_t)rank;
    p->is_a_turned = is_a_turned;
    p->n_in = peft_n_columns(&o->f->names, &p->map, a->shape.dims[is_a_turned ? 1 : 0]);
    p->n_out = peft_n_rows(&o->f->names, &p->map, b->shape.dims[1]);
    p->is_table = strcmp(p->name, EMBEDDING) == 0;
    p->type = a->type == b->type &&
                      (a->type == DTYPE_F32 || a->type == DTYPE_F16 || a->type == DTYPE_BF16)
                  ? a->type
                  : DTYPE_F32;
    return LACE_OK;
}

/* The rows and columns that the maps of PEFT's names ask for are there. */
static lace_status check_map(const opening *o, const adapter_part *p)
{
    const peft_base *names = &o->f->names;
    int64_t n_rows = p->b->shape.dims[1], n_columns = p->a->shape.dims[p->is_a_turned ? 1 : 0];
    if (p->map.n_permuted > 0 && p->n_out % (2 * (int64_t)p->map.n_permuted) != 0)
        return wrong_shape(o, p->b, "rows for all heads");
    for (int64_t r = 0; r < p->n_out; r++) {
        int64_t from = peft_row(names, &p->map, p->n_out, r);
        if (from < 0 || from >= n_rows)
            return wrong_shape(o, p->b, "more rows");
    }
    for (int64_t c = 0; c < p->n_in; c++) {
        int64_t from = peft_column(names, &p->map, c);
        if (from < 0 || from >= n_columns)
            return wrong_shape(o, p->a, "more columns");
    }
    return LACE_OK;
}

static lace_status check_base(const opening *o, const adapter_part *p)
{
    char wanted[96], found[96];
    const shape *s = o->base->find(o->base->user, p->name);
    if (!s && strcmp(p->name, "output.weight") == 0) /* tied */
        s = o->base->find(o->base->user, EMBEDDING);
    if (!s)
        return error_set(o->err, LACE_E_META,
                         "%.*s: the model has no tensor %s; is the adapter for another model?",
                         text_width(p->a->name), p->a->name.data, p->name);
    int64_t n_in = s->dims[p->is_table ? 1 : 0], n_out = s->dims[p->is_table ? 0 : 1];
    if (s->n_dims > 2)
        return error_set(
            o->err, LACE_E_UNSUPPORTED,
            "%s: has more than two dimensions; adapters cannot change the experts of a "
            "mixture",
            p->name);
    if (n_in == p->n_in && n_out == p->n_out)
        return LACE_OK;
    shape has = {2, {p->n_in, p->n_out, 1, 1}}, wants = {2, {n_in, n_out, 1, 1}};
    return error_set(o->err, LACE_E_SHAPE,
                     "%.*s: the adapter is for a matrix of %s, the model's %s has %s; is it for "
                     "another model?",
                     text_width(p->a->name), p->a->name.data, shape_format(&has, found), p->name,
                     shape_format(&wants, wanted));
}

static bool digest_part(const opening *o, const adapter_part *p)
{
    digest_stream *d = o->digest;
    return digest_stream_add(d, p->name, sizeof p->name) &&
           digest_stream_add(d, &p->rank, sizeof p->rank) &&
           digest_stream_add(d, &p->factor, sizeof p->factor) &&
           digest_stream_add(d, &p->a->type, sizeof p->a->type) &&
           digest_stream_add(d, &p->b->type, sizeof p->b->type) &&
           digest_stream_add(d, p->a->data, p->a->n_bytes) &&
           digest_stream_add(d, p->b->data, p->b->n_bytes);
}

static lace_status add_part(opening *o, adapter_part *p, bool is_a_turned, double factor)
{
    adapter_file *f = o->f;
    TRY(measure(o, p, is_a_turned));
    TRY(check_map(o, p));
    TRY(check_base(o, p));
    for (size_t i = 0; i < f->n_parts; i++)
        if (strcmp(f->parts[i].name, p->name) == 0)
            return error_set(o->err, LACE_E_DUP, "%.*s: there are other matrices for %s",
                             text_width(p->a->name), p->a->name.data, p->name);
    p->factor = (float)factor;
    if (!digest_part(o, p))
        return error_nomem(o->err, "an adapter");
    f->rank = p->rank > f->rank ? p->rank : f->rank;
    f->n_bytes += (uint64_t)p->rank * row_bytes(p->type, p->n_in + p->n_out);
    f->parts[f->n_parts++] = *p;
    return LACE_OK;
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

static bool split_end(text name, const char *end, char *stem, size_t size)
{
    size_t n = strlen(end);
    if (name.size <= n || memcmp(name.data + name.size - n, end, n) != 0 || name.size - n >= size)
        return false;
    memcpy(stem, name.data, name.size - n);
    stem[name.size - n] = 0;
    return true;
}

/* The other half of a tensor, by the stem of its name. */
static lace_status find_half(const opening *o, const tensor *t, const char *stem, const char *end,
                             const tensor **out)
{
    char name[320];
    snprintf(name, sizeof name, "%s%s", stem, end);
    *out = weights_find(o->f->files, name);
    if (*out)
        return LACE_OK;
    return error_set(o->err, LACE_E_META, "%.*s: its other half, %.200s, is missing",
                     text_width(t->name), t->name.data, name);
}

static lace_status add_gguf_tensor(opening *o, const tensor *t)
{
    adapter_part p = {0};
    const tensor *other;
    if (split_end(t->name, ".lora_b", p.name, sizeof p.name))
        return find_half(o, t, p.name, ".lora_a", &other);
    if (!split_end(t->name, ".lora_a", p.name, sizeof p.name))
        return error_set(o->err, LACE_E_UNSUPPORTED, "%.*s: is no matrix of a LoRA adapter",
                         text_width(t->name), t->name.data);
    p.a = t;
    TRY(find_half(o, t, p.name, ".lora_b", &p.b));
    TRY(peft_map_gguf(&o->f->names, p.name, &p.map, o->err));
    int64_t rank = p.b->shape.dims[0];
    double alpha = o->f->alpha;
    return add_part(o, &p, strcmp(p.name, EMBEDDING) == 0, alpha != 0 ? alpha / (double)rank : 1);
}

/* llama.cpp writes all of these. */
static lace_status read_gguf_head(opening *o, const gguf *g)
{
    text kind = {"", 0}, type = {"", 0}, name = {"", 0};
    char architecture[64];
    TRY(gguf_get_text(g, "general.type", &kind, NULL, o->err));
    TRY(gguf_get_text(g, "adapter.type", &type, NULL, o->err));
    TRY(gguf_get_text(g, "general.name", &name, NULL, o->err));
    if (!text_is(kind, "adapter"))
        return error_set(o->err, LACE_E_META,
                         "general.type is \"%.*s\", expected \"adapter\": is it a model?",
                         text_width(kind), kind.data);
    if (!text_is(type, "lora"))
        return error_set(o->err, LACE_E_UNSUPPORTED, "adapter.type is \"%.*s\", expected \"lora\"",
                         text_width(type), type.data);
    TRY(config_architecture(g, architecture, o->err));
    if (strcmp(architecture, o->base->names.config->architecture) != 0)
        return error_set(o->err, LACE_E_META,
                         "is for models of architecture %s, and this one is %s", architecture,
                         o->base->names.config->architecture);
    if (gguf_find(g, "adapter.alora.invocation_tokens"))
        return error_set(o->err, LACE_E_UNSUPPORTED,
                         "adapter.alora.invocation_tokens is set, which lace does not support");
    TRY(gguf_get_float(g, "adapter.lora.alpha", -1e6, 1e6, &o->f->alpha, NULL, o->err));
    snprintf(o->f->name, sizeof o->f->name, "%.*s", (int)(name.size < 127 ? name.size : 127),
             name.data);
    return LACE_OK;
}

static lace_status read_gguf(opening *o)
{
    weights *files = o->f->files;
    TRY(read_gguf_head(o, weights_gguf(files)));
    for (size_t i = 0; i < weights_count(files); i++)
        TRY(add_gguf_tensor(o, weights_at(files, i)));
    return LACE_OK;
}

/* ---- PEFT ------------------------------------------------------------------------------------ */

/* How PEFT ends the names of the halves, with and without the name of an adapter. */
static const struct {
    const char *a, *b;
    bool is_embedding;
} halves[] = {
    {".lora_A.weight", ".lora_B.weight", false},
    {".lora_A.default.weight", ".lora_B.default.weight", false},
    {".lora_embedding_A", ".lora_embedding_B", true},
    {".lora_embedding_A.default", ".lora_embedding_B.default", true},
};

static lace_status add_module(opening *o, const char *module, const tensor *a, const tensor *b,
                              bool is_embedding)
{
    peft_target targets[PEFT_MOST_TARGETS];
    int n = 0;
    size_t skip = strncmp(module, PEFT_START, strlen(PEFT_START)) == 0 ? strlen(PEFT_START) : 0;
    module += skip;
    TRY(peft_find(&o->f->names, module, targets, &n, o->err));
    for (int i = 0; i < n; i++) {
        adapter_part p = {.a = a, .b = b, .map = targets[i].map};
        memcpy(p.name, targets[i].name, sizeof p.name);
        if ((strcmp(p.name, EMBEDDING) == 0) != is_embedding)
            return error_set(o->err, LACE_E_META, "%.*s: does not fit %s", text_width(a->name),
                             a->name.data, p.name);
        int64_t rank = b->shape.dims[0];
        TRY(add_part(o, &p, false, peft_factor(&o->peft, module, rank < 1 ? 1 : (int32_t)rank)));
    }
    return LACE_OK;
}

static lace_status add_peft_tensor(opening *o, const tensor *t)
{
    char stem[288];
    const tensor *other;
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        if (split_end(t->name, halves[i].b, stem, sizeof stem))
            return find_half(o, t, stem, halves[i].a, &other);
        if (!split_end(t->name, halves[i].a, stem, sizeof stem))
            continue;
        TRY(find_half(o, t, stem, halves[i].b, &other));
        return add_module(o, stem, t, other, halves[i].is_embedding);
    }
    return error_set(o->err, LACE_E_UNSUPPORTED, "%.*s: is no matrix of a LoRA adapter",
                     text_width(t->name), t->name.data);
}

/* The last part of a path. */
static void name_by_path(adapter_file *f)
{
    const char *path = weights_name(f->files);
    size_t end = strlen(path), begin;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/';)
        begin--;
    snprintf(f->name, sizeof f->name, "%.*s", (int)(end - begin < 127 ? end - begin : 127),
             path + begin);
}

static lace_status read_peft(opening *o)
{
    weights *files = o->f->files;
    TRY(peft_config_read(weights_config(files), &o->peft, o->err));
    o->f->alpha = o->peft.alpha;
    for (size_t i = 0; i < weights_count(files); i++)
        TRY(add_peft_tensor(o, weights_at(files, i)));
    return LACE_OK;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static lace_status read_all(opening *o)
{
    adapter_file *f = o->f;
    size_t n = weights_count(f->files);
    f->parts = mem_calloc(n * PEFT_MOST_TARGETS + 1, sizeof *f->parts);
    o->digest = digest_stream_create();
    if (!f->parts || !o->digest)
        return error_nomem(o->err, "an adapter");
    TRY(weights_gguf(f->files) ? read_gguf(o) : read_peft(o));
    if (f->n_parts == 0)
        return error_set(o->err, LACE_E_META, "has no tensors");
    if (!f->name[0])
        name_by_path(f);
    return digest_stream_peek(o->digest, NULL, 0, &f->digest) ? LACE_OK
                                                              : error_nomem(o->err, "an adapter");
}

lace_status adapter_open_files(weights *files, const adapter_base *base, adapter_file **out,
                               lace_error *err)
{
    *out = NULL;
    adapter_file *f = mem_calloc(1, sizeof *f);
    if (!f) {
        weights_close(files);
        return error_nomem(err, "an adapter");
    }
    f->files = files;
    f->names = base->names;
    opening o = {.f = f, .base = base, .err = err};
    lace_status status = read_all(&o);
    digest_stream_free(o.digest);
    if (status != LACE_OK)
        error_prefix(err, status, weights_name(files));
    return GIVE_OR_FREE(status, f, out, adapter_close);
}

lace_status adapter_open(const char *path, const adapter_base *base, adapter_file **out,
                         lace_error *err)
{
    weights *files;
    *out = NULL;
    TRY(weights_open_adapter(path, &files, err));
    return adapter_open_files(files, base, out, err);
}

void adapter_close(adapter_file *f)
{
    if (!f)
        return;
    weights_close(f->files);
    mem_free_all(f->parts, f);
}

bool adapter_is(const weights *files)
{
    const gguf *g = weights_gguf(files);
    text kind = {"", 0};
    if (!g)
        return json_get(weights_config(files), "peft_type") != NULL;
    return gguf_get_text(g, "general.type", &kind, NULL, NULL) == LACE_OK &&
           text_is(kind, "adapter");
}

/* ---- Values ---------------------------------------------------------------------------------- */

static lace_status read_rows(const tensor *t, float *out, lace_error *err)
{
    unpack_row(t->type, t->data, (int64_t)t->n_values, out);
    for (uint64_t i = 0; i < t->n_values; i++)
        if (!isfinite(out[i]))
            return error_set(err, LACE_E_NUMERIC, "%.*s: has a value that is not finite",
                             text_width(t->name), t->name.data);
    return LACE_OK;
}

/* out[r, c] = from[c, r] */
static void turn(const float *from, int64_t n_rows, int64_t n_columns, float *out)
{
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t c = 0; c < n_columns; c++)
            out[r * n_columns + c] = from[c * n_rows + r];
}

static void take_columns(const adapter_file *f, const adapter_part *p, const float *from,
                         float *out)
{
    int64_t n_source = p->a->shape.dims[0];
    for (int64_t r = 0; r < p->rank; r++)
        for (int64_t c = 0; c < p->n_in; c++)
            out[r * p->n_in + c] = from[r * n_source + peft_column(&f->names, &p->map, c)];
}

static void take_rows(const adapter_file *f, const adapter_part *p, const float *from, float *out)
{
    for (int64_t row = 0; row < p->n_out; row++) {
        const float *source = from + peft_row(&f->names, &p->map, p->n_out, row) * p->rank;
        double factor = peft_row_factor(&f->names, &p->map, row);
        for (int32_t r = 0; r < p->rank; r++)
            out[row * p->rank + r] = (float)(source[r] * factor);
    }
}

lace_status adapter_read(const adapter_file *f, const adapter_part *p, float *a, float *b,
                         lace_error *err)
{
    uint64_t most = p->a->n_values > p->b->n_values ? p->a->n_values : p->b->n_values;
    float *source = mem_alloc(most * sizeof *source);
    lace_status status =
        source ? read_rows(p->a, source, err) : error_nomem(err, "the matrices of an adapter");
    if (status == LACE_OK) {
        if (!p->is_table)
            take_columns(f, p, source, a);
        else if (p->is_a_turned) /* rows are those of the table */
            memcpy(a, source, p->a->n_values * sizeof *a);
        else
            turn(source, p->n_in, p->rank, a);
        status = read_rows(p->b, source, err);
    }
    if (status == LACE_OK)
        take_rows(f, p, source, b);
    mem_free(source);
    return status == LACE_OK ? status : error_prefix(err, status, weights_name(f->files));
}
