/* Trying types on a model that is walked over a text. */
#include "compress/trial.h"

#include <string.h>

#include "base/mem.h"
#include "compress/codec.h"
#include "compress/imatrix_collect.h"
#include "compress/quality.h"
#include "tensor/codec/unpack.h"

/* A tensor that is replaced. */
typedef struct replaced {
    const tensor *t; /* NULL: a free entry */
    dtype type;
    float *values;   /* [n_values] */
    int32_t n_parts; /* matrices of the tensor: one, or experts, or rows that are used apart */
    struct part {
        weight *target;
        weight old, made;
    } * parts;
    bool is_table; /* of embeddings, too */
    int32_t layer; /* the first that computes with it; -1: before all layers */
} replaced;

struct trial {
    walk *w;
    const lace_token *tokens;
    size_t n_tokens;
    int32_t n_windows;
    int64_t n_vocab;
    float *base;      /* [n_windows][n_context, n_vocab] the original's logits */
    uint64_t n_base;  /* bytes */
    uint8_t **states; /* [n_layers] before the first step of each, all windows */
    uint64_t *bytes;  /* [n_layers] of one window */
    int32_t *first;   /* [n_layers] step */
    replaced *list;   /* [n_matrices + 1] */
    size_t n_list;
    int32_t begin; /* a layer from which on things are different anyway */
    /* While a window is judged: */
    const float *base_now;
    double *klds; /* [n_context] of the rows */
    handout pieces;
};

/* ---- Divergence ------------------------------------------------------------------------------ */

static void judge_rows(void *arg, int me, int n_workers)
{
    trial *m = arg;
    uint32_t n = (uint32_t)m->w->n_context, row;
    while (handout_claim(&m->pieces, n, &row)) {
        quality_score s = quality_judge(walk_logits(m->w, (int32_t)row),
                                        m->base_now + (int64_t)row * m->n_vocab, m->n_vocab, 0);
        m->klds[row] = s.kld;
    }
}

static double divergence(trial *m, int32_t i)
{
    double sum = 0;
    m->base_now = m->base + (int64_t)i * m->w->n_context * m->n_vocab;
    m->pieces = (handout){0};
    pool_run(m->w->workers, judge_rows, m);
    for (int32_t k = 0; k < m->w->n_context; k++) /* in this order, whoever judged them */
        sum += m->klds[k];
    return sum / m->w->n_context;
}

static const lace_token *window(const trial *m, int32_t i)
{
    return walk_spread_window(m->w, m->tokens, m->n_tokens, i, m->n_windows);
}

void trial_begin_at(trial *m, int32_t layer)
{
    m->begin = layer;
}

lace_status trial_measure(trial *m, double *kld, lace_error *err)
{
    int32_t layer = m->begin;
    *kld = 0;
    for (size_t i = 0; i < m->n_list; i++)
        if (m->list[i].t && m->list[i].layer < layer)
            layer = m->list[i].layer;
    if (layer == INT32_MAX)
        return LACE_OK;
    for (int32_t i = 0; i < m->n_windows; i++) {
        int32_t at = layer < 0 ? 0 : m->first[layer];
        TRY(walk_begin(m->w, window(m, i), err));
        if (layer >= 0)
            walk_restore(m->w, at, m->states[layer] + (uint64_t)i * m->bytes[layer]);
        walk_run(m->w, at, walk_end(m->w));
        *kld += divergence(m, i) / m->n_windows;
    }
    return LACE_OK;
}

/* ---- The original ---------------------------------------------------------------------------- */

static lace_status run_original(trial *m, lace_error *err)
{
    walk *w = m->w;
    int32_t n_layers = w->m->config.n_layers;
    for (int32_t i = 0; i < n_layers; i++) {
        m->first[i] = 0;
        while (m->first[i] < walk_end(w) && w->p->steps[m->first[i]].layer != i)
            m->first[i]++;
        m->bytes[i] = walk_state_bytes(w, m->first[i]);
        m->states[i] = mem_alloc((size_t)m->bytes[i] * (size_t)m->n_windows);
        if (!m->states[i])
            return error_nomem(err, "the states of windows");
    }
    for (int32_t i = 0; i < m->n_windows; i++) {
        int32_t at = 0;
        TRY(walk_begin(w, window(m, i), err));
        for (int32_t k = 0; k < n_layers; k++) {
            walk_run(w, at, m->first[k]);
            walk_save(w, m->first[k], m->states[k] + (uint64_t)i * m->bytes[k]);
            at = m->first[k];
        }
        walk_run(w, at, walk_end(w));
        for (int32_t row = 0; row < w->n_context; row++)
            memcpy(m->base + ((int64_t)i * w->n_context + row) * m->n_vocab, walk_logits(w, row),
                   (size_t)m->n_vocab * sizeof *m->base);
    }
    return LACE_OK;
}

lace_status trial_create(walk *w, const lace_token *tokens, size_t n_tokens, int32_t n_windows,
                         trial **out, lace_error *err)
{
    size_t n_layers = (size_t)w->m->config.n_layers;
    int64_t n_all = (int64_t)n_tokens / w->n_context;
    *out = NULL;
    trial *m = mem_calloc(1, sizeof *m);
    if (!m)
        return error_nomem(err, "a measurement");
    m->w = w;
    m->begin = INT32_MAX;
    m->tokens = tokens;
    m->n_tokens = n_tokens;
    m->n_windows = n_all < n_windows ? (int32_t)n_all : n_windows;
    m->n_vocab = w->m->config.n_vocab;
    m->n_base = 4 * (uint64_t)(m->n_windows * w->n_context) * (uint64_t)m->n_vocab;
    m->base = mem_map(m->n_base);
    m->states = mem_calloc(n_layers, sizeof *m->states);
    m->bytes = mem_calloc(n_layers, sizeof *m->bytes);
    m->first = mem_calloc(n_layers, sizeof *m->first);
    m->klds = mem_calloc((size_t)w->n_context, sizeof *m->klds);
    m->n_list = (size_t)w->m->n_matrices + 1;
    m->list = mem_calloc(m->n_list, sizeof *m->list);
    lace_status status = m->base && m->states && m->bytes && m->first && m->klds && m->list
                             ? run_original(m, err)
                             : error_nomem(err, "a measurement");
    return GIVE_OR_FREE(status, m, out, trial_free);
}

/* ---- One tensor ------------------------------------------------------------------------------ */

/* The layer whose steps multiply with the matrix; -1: none does. */
static int32_t layer_of(const walk *w, const weight *target)
{
    for (int32_t i = walk_next_matrix(w, 0); i < walk_end(w); i = walk_next_matrix(w, i + 1)) {
        walk_matrices x;
        walk_matrices_view(w, i, &x);
        for (int k = 0; k < x.n; k++)
            if (x.weights[k] == target)
                return x.s->layer;
    }
    return -1;
}

static void put_back(trial *m, replaced *r)
{
    if (!r->t)
        return;
    for (int32_t i = 0; i < r->n_parts; i++) {
        *r->parts[i].target = r->parts[i].old;
        walk_weight_free(m->w, &r->parts[i].made);
    }
    mem_free(r->parts);
    if (r->is_table) {
        m->w->m->table.data = r->t->data;
        m->w->m->table.type = r->t->type;
    }
    mem_unmap(r->values, r->t->n_values * 4);
    *r = (replaced){0};
}

typedef struct rounding {
    const codec *c;
    float *values;
    int64_t n_cols, n_rows;
    handout pieces;
    _Atomic bool has_failed;
} rounding;

enum { ROWS_AT_ONCE = 16 };

/* Rows as if they had been quantized. */
static void round_rows(void *arg, int me, int n_workers)
{
    rounding *r = arg;
    uint32_t n = (uint32_t)((r->n_rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE), piece;
    uint8_t *blocks = mem_alloc((size_t)row_bytes(r->c->type, r->n_cols));
    if (!blocks)
        r->has_failed = true;
    while (handout_claim(&r->pieces, n, &piece)) {
        int64_t row = (int64_t)piece * ROWS_AT_ONCE;
        for (int64_t i = row; blocks && i < row + ROWS_AT_ONCE && i < r->n_rows; i++) {
            if (codec_encode(r->c, r->values + i * r->n_cols, NULL, r->n_cols, blocks, NULL) !=
                LACE_OK)
                r->has_failed = true;
            unpack_row(r->c->type, blocks, r->n_cols, r->values + i * r->n_cols);
        }
    }
    mem_free(blocks);
}

static lace_status read_rounded(trial *m, replaced *r, lace_error *err)
{
    const tensor *t = r->t;
    r->values = mem_map(t->n_values * 4);
    if (!r->values)
        return error_nomem(err, "a tensor");
    unpack_row(t->type, t->data, (int64_t)t->n_values, r->values);
    rounding job = {.c = codec_find(r->type),
                    .values = r->values,
                    .n_cols = t->shape.dims[0],
                    .n_rows = (int64_t)t->n_values / t->shape.dims[0]};
    pool_run(m->w->workers, round_rows, &job);
    return job.has_failed ? error_nomem(err, "a row") : LACE_OK;
}

/* Let the walk multiply with the part of the values that is matrix `mm`. */
static lace_status replace_part(trial *m, replaced *r, const model_matrix *mm, lace_error *err)
{
    int64_t n = r->t->shape.dims[0];
    int64_t skipped = (mm->rows.blocks - r->t->data) / (int64_t)row_bytes(r->t->type, n);
    struct part *p = &r->parts[r->n_parts];
    TRY(walk_weight_make(m->w, r->values + skipped * n, mm->target->n_rows, n, r->t->type, &p->made,
                         err));
    if (r->n_parts == 0) /* all parts are of the same layer */
        r->layer = layer_of(m->w, mm->target);
    p->target = mm->target;
    p->old = *mm->target;
    r->n_parts++;
    *mm->target = p->made;
    return LACE_OK;
}

static lace_status replace(trial *m, replaced *r, const tensor *t, dtype type, lace_error *err)
{
    const model *of = m->w->m;
    int32_t n_parts = 0;
    *r = (replaced){.t = t, .type = type, .layer = -1};
    TRY(read_rounded(m, r, err));
    for (int32_t i = 0; i < of->n_matrices; i++)
        n_parts += of->matrices[i].source == t;
    r->parts = mem_calloc((size_t)n_parts, sizeof *r->parts);
    if (!r->parts)
        return error_nomem(err, "a tensor");
    for (int32_t i = 0; i < of->n_matrices; i++)
        if (of->matrices[i].source == t)
            TRY(replace_part(m, r, &of->matrices[i], err));
    if (of->embedding == t) {
        r->is_table = true;
        m->w->m->table.data = (const uint8_t *)r->values;
        m->w->m->table.type = DTYPE_F32;
        r->layer = -1;
    }
    return LACE_OK;
}

lace_status trial_set(trial *m, const tensor *which, dtype type, lace_error *err)
{
    replaced *r = NULL;
    for (size_t i = 0; i < m->n_list; i++)
        if (m->list[i].t == which)
            r = &m->list[i];
    if (r && r->type == type)
        return LACE_OK;
    if (r)
        put_back(m, r);
    if (type == which->type)
        return LACE_OK;
    for (size_t i = 0; i < m->n_list && !r; i++)
        if (!m->list[i].t)
            r = &m->list[i];
    lace_status status = replace(m, r, which, type, err);
    if (status != LACE_OK)
        put_back(m, r);
    return status;
}

lace_status trial_measure_alone(trial *m, const tensor *which, dtype type, double *kld,
                                lace_error *err)
{
    TRY(trial_set(m, which, type, err));
    TRY(trial_measure(m, kld, err));
    return trial_set(m, which, which->type, err);
}

void trial_free(trial *m)
{
    if (!m)
        return;
    for (size_t i = 0; m->list && i < m->n_list; i++)
        put_back(m, &m->list[i]);
    for (int32_t i = 0; m->states && i < m->w->m->config.n_layers; i++)
        mem_free(m->states[i]);
    mem_unmap(m->base, m->n_base);
    mem_free_all(m->list, m->states, m->bytes, m->first, m->klds, m);
}
