/* Adapters of a model: their matrices in the order that kernels read, by the weights they change. */
#include "model/adapters.h"

#include <string.h>

#include "base/mem.h"
#include "ops/lora.h"
#include "tensor/codec/pack.h"

/* What is made of an adapter, before it is known to fit. */
typedef struct adding {
    model *m;
    const adapter_file *f;
    weight **targets; /* [n] which weights get which pair */
    lora_pair *pairs; /* [n] */
    size_t n, capacity;
    lace_error *err;
} adding;

/* ---- Layout ---------------------------------------------------------------------------------- */

/* [rank, n_in] with padded rows; of a table [n_in, rank]. */
static const uint8_t *lay_down(adding *d, const adapter_part *p, const float *a)
{
    int64_t n_rows = p->is_table ? p->n_in : p->rank, n = p->is_table ? p->rank : p->n_in;
    int64_t stride = p->is_table ? n : lora_padded(n);
    uint8_t *to = arena_alloc(&d->m->memory, (size_t)n_rows, row_bytes(p->type, stride));
    for (int64_t r = 0; to && r < n_rows; r++)
        pack_row(p->type, a + r * n, n, to + row_bytes(p->type, r * stride));
    return to;
}

/* Panels of columns [first, first + n_out) of what comes out. */
static const uint8_t *lay_up(adding *d, const adapter_part *p, const float *b, int64_t first,
                             int64_t n_out)
{
    lora_pair at = {.rank = p->rank};
    uint8_t *to =
        arena_alloc(&d->m->memory, (size_t)p->rank, row_bytes(p->type, lora_padded(n_out)));
    for (int64_t c = 0; to && c < n_out; c += LORA_PANEL)
        for (int32_t r = 0; r < p->rank; r++) {
            float row[LORA_PANEL] = {0};
            for (int64_t i = 0; i < LORA_PANEL && c + i < n_out; i++)
                row[i] = b[(first + c + i) * p->rank + r];
            pack_row(p->type, row, LORA_PANEL, to + row_bytes(p->type, lora_up_at(&at, r, c)));
        }
    return to;
}

/* ---- Weights --------------------------------------------------------------------------------- */

static lace_status add_pair(adding *d, weight *target, const adapter_part *p, const uint8_t *down,
                            const float *b, int64_t first, int64_t n_out)
{
    const uint8_t *up = down ? lay_up(d, p, b, first, n_out) : NULL;
    if (!up)
        return error_nomem(d->err, "an adapter");
    if (d->n == d->capacity) {
        size_t more = d->capacity ? 2 * d->capacity : 64;
        weight **targets = mem_realloc(d->targets, more * sizeof *targets);
        if (targets)
            d->targets = targets;
        lora_pair *pairs = mem_realloc(d->pairs, more * sizeof *pairs);
        if (pairs)
            d->pairs = pairs;
        if (!targets || !pairs)
            return error_nomem(d->err, "an adapter");
        d->capacity = more;
    }
    d->targets[d->n] = target;
    d->pairs[d->n++] = (lora_pair){.adapter = d->m->n_adapters,
                                   .rank = p->rank,
                                   .factor = p->factor,
                                   .type = p->type,
                                   .down = down,
                                   .up = up};
    return LACE_OK;
}

static lace_status out_of_reach(const adding *d, const adapter_part *p)
{
    return error_set(d->err, LACE_E_UNSUPPORTED,
                     "%s: adapters cannot change this matrix in models of architecture %s", p->name,
                     d->m->config.architecture);
}

/* The weights that are made of a tensor: one, or several of its rows each. */
static lace_status find_weights(adding *d, const adapter_part *p, const uint8_t *down,
                                const float *b)
{
    model *m = d->m;
    bool is_output = strcmp(p->name, "output.weight") == 0, is_found = false;
    if (p->is_table)
        return add_pair(d, &m->table, p, down, b, 0, p->n_out);
    if (is_output && m->output.n_rows > 0)
        return add_pair(d, &m->output, p, down, b, 0, p->n_out);
    for (int32_t i = 0; i < m->n_matrices; i++) {
        const model_matrix *matrix = &m->matrices[i];
        if (!text_is(matrix->source->name, p->name))
            continue;
        if (matrix->source->shape.n_dims > 2 || matrix->rows.is_table)
            return out_of_reach(d, p);
        TRY(add_pair(d, matrix->target, p, down, b, matrix->first_row, matrix->rows.n_rows));
        is_found = true;
    }
    return is_found ? LACE_OK : out_of_reach(d, p);
}

static lace_status add_part(adding *d, const adapter_part *p)
{
    float *a = mem_alloc((size_t)(p->rank * p->n_in) * sizeof *a);
    float *b = mem_alloc((size_t)(p->rank * p->n_out) * sizeof *b);
    lace_status status =
        a && b ? adapter_read(d->f, p, a, b, d->err) : error_nomem(d->err, "an adapter");
    if (status == LACE_OK)
        status = find_weights(d, p, lay_down(d, p, a), b);
    mem_free_all(a, b);
    return status;
}

/* ---- Sites ----------------------------------------------------------------------------------- */

/* A weight's site with one pair more; NULL without memory. */
static lora_site *grown_site(model *m, const weight *w, lora_pair pair)
{
    const lora_site *old = w->lora;
    int32_t n = old ? old->n_pairs : 0;
    lora_site *site = arena_alloc(&m->memory, 1, sizeof *site);
    lora_pair *pairs = arena_alloc(&m->memory, (size_t)n + 1, sizeof *pairs);
    if (!site || !pairs)
        return NULL;
    if (n > 0)
        memcpy(pairs, old->pairs, (size_t)n * sizeof *pairs);
    *site = (lora_site){.n_in = w->n_cols, .n_out = w->n_rows, .n_low = old ? old->n_low : 0};
    if (w == &m->table) {
        site->is_table = true;
        site->n_in = w->n_rows;
        site->n_out = w->n_cols;
    }
    pair.first = site->n_low;
    pairs[n] = pair;
    site->pairs = pairs;
    site->n_pairs = n + 1;
    site->n_low += pair.rank;
    return site;
}

/* All pairs become known at once, so that a failure leaves none. */
static lace_status join_sites(adding *d)
{
    lora_site **sites = mem_calloc(d->n + 1, sizeof(lora_site *));
    bool ok = sites != NULL;
    for (size_t i = 0; ok && i < d->n; i++)
        ok = (sites[i] = grown_site(d->m, d->targets[i], d->pairs[i])) != NULL;
    for (size_t i = 0; ok && i < d->n; i++)
        d->targets[i]->lora = sites[i];
    mem_free(sites);
    return ok ? LACE_OK : error_nomem(d->err, "an adapter");
}

static lace_status remember(model *m, const adapter_file *f, lace_error *err)
{
    model_adapter *grown =
        mem_realloc(m->adapters, (size_t)(m->n_adapters + 1) * sizeof *m->adapters);
    char *path = mem_strdup(weights_name(f->files));
    if (grown)
        m->adapters = grown;
    if (!grown || !path) {
        mem_free(path);
        return error_nomem(err, "an adapter");
    }
    model_adapter *a = &m->adapters[m->n_adapters];
    *a = (model_adapter){.path = path,
                         .rank = f->rank,
                         .alpha = f->alpha,
                         .n_parts = f->n_parts,
                         .n_bytes = f->n_bytes,
                         .digest = f->digest};
    memcpy(a->name, f->name, sizeof a->name);
    return LACE_OK;
}

/* ---- Adding ---------------------------------------------------------------------------------- */

static const shape *find_shape(const void *user, const char *name)
{
    const model *m = user;
    const tensor *t = weights_find(m->files, name);
    return t ? &t->shape : NULL;
}

static lace_status add_file(model *m, const adapter_file *f, lace_error *err)
{
    adding d = {.m = m, .f = f, .err = err};
    lace_status status = LACE_OK;
    for (size_t i = 0; status == LACE_OK && i < f->n_parts; i++)
        status = add_part(&d, &f->parts[i]);
    if (status == LACE_OK)
        status = remember(m, f, err);
    if (status == LACE_OK) {
        status = join_sites(&d);
        if (status != LACE_OK)
            mem_free(m->adapters[m->n_adapters].path);
    }
    if (status == LACE_OK)
        m->n_adapters++;
    mem_free_all(d.targets, d.pairs);
    return status;
}

lace_status model_add_adapter_files(model *m, weights *files, lace_error *err)
{
    adapter_base base = {.names = {.config = &m->config,
                                   .layout = weights_gguf(m->files) ? HF_AS_GGUF : HF_FOR_RUNNING},
                         .find = find_shape,
                         .user = m};
    adapter_file *f;
    if (m->n_adapters == MODEL_MAX_ADAPTERS) {
        weights_close(files);
        return error_set(err, LACE_E_LIMIT, "more than %d adapters", MODEL_MAX_ADAPTERS);
    }
    TRY(adapter_open_files(files, &base, &f, err));
    lace_status status = add_file(m, f, err);
    adapter_close(f);
    return status;
}

lace_status model_add_adapter(model *m, const char *path, lace_error *err)
{
    weights *files;
    TRY(weights_open_adapter(path, &files, err));
    return model_add_adapter_files(m, files, err);
}
