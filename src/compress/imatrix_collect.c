/* Making an importance matrix. */
#include "compress/imatrix_collect.h"

#include <math.h>

#include "base/mem.h"

const lace_token *walk_spread_window(const walk *w, const lace_token *tokens, size_t n_tokens,
                                     int64_t i, int64_t n)
{
    int64_t n_all = (int64_t)n_tokens / w->n_context;
    return tokens + i * n_all / n * w->n_context;
}

/* The entry of a step's matrix; several may be rows of one tensor, and share it. */
static lace_status find_entry(imatrix *m, const walk_matrices *x, int i, imatrix_entry **out,
                              lace_error *err)
{
    text name = x->sources[i]->source->name;
    *out = imatrix_find(m, name);
    return *out ? LACE_OK
                : imatrix_add(m, name, x->width, x->n_experts ? x->n_experts : 1, out, err);
}

static void add_row(imatrix_entry *e, int64_t expert, const float *x)
{
    float *sums = e->sums + expert * e->n_cols;
    for (int64_t i = 0; i < e->n_cols; i++)
        sums[i] += x[i] * x[i];
    e->counts[expert] += 1;
}

static lace_status add_step(imatrix *m, const walk_matrices *x, float *row, int32_t *experts,
                            lace_error *err)
{
    for (int i = 0; i < x->n; i++) {
        imatrix_entry *e;
        bool is_again = false;
        for (int k = 0; k < i; k++)
            is_again = is_again || x->sources[k]->source == x->sources[i]->source;
        if (is_again)
            continue;
        TRY(find_entry(m, x, i, &e, err));
        for (int64_t r = 0; r < x->n_rows * x->n_parts; r++) {
            walk_input_row(x, r, row);
            int n = x->n_experts ? walk_row_experts(x, r, experts) : 1;
            for (int k = 0; k < n; k++)
                add_row(e, x->n_experts ? experts[k] : 0, row);
        }
        for (int64_t c = 0; c < e->n_cols * e->n_experts; c++)
            if (!isfinite(e->sums[c]))
                return error_set(err, LACE_E_NUMERIC, "an input of %.*s is not finite",
                                 text_width(e->name), e->name.data);
    }
    return LACE_OK;
}

static lace_status add_window(walk *w, imatrix *m, float *row, int32_t *experts, lace_error *err)
{
    int32_t at = 0;
    for (int32_t i; (i = walk_next_matrix(w, at)) < walk_end(w); at = i + 1) {
        walk_matrices x;
        walk_run(w, at, i);
        walk_matrices_view(w, i, &x);
        TRY(add_step(m, &x, row, experts, err));
        if (i + 1 < walk_end(w)) /* the logits themselves are not needed */
            walk_run(w, i, i + 1);
    }
    return LACE_OK;
}

static int64_t widest(const walk *w)
{
    int64_t most = 1;
    for (int32_t i = 0; i < w->p->n_values; i++)
        most = w->p->values[i].width > most ? w->p->values[i].width : most;
    return most;
}

lace_status imatrix_collect(walk *w, const lace_token *tokens, size_t n_tokens,
                            const imatrix_options *o, imatrix **out, int64_t *n_windows,
                            lace_error *err)
{
    int64_t n_all = (int64_t)n_tokens / w->n_context;
    int64_t n = o->n_windows > 0 && o->n_windows < n_all ? o->n_windows : n_all;
    *out = NULL;
    float *row = mem_alloc((size_t)widest(w) * sizeof *row);
    int32_t n_used = w->m->config.n_experts_used > 0 ? w->m->config.n_experts_used : 1;
    int32_t *experts = mem_alloc((size_t)n_used * sizeof *experts);
    lace_status status = row && experts ? imatrix_create(out, err) : error_nomem(err, "a row");
    for (int64_t i = 0; i < n && status == LACE_OK; i++) {
        if (o->on_progress && !o->on_progress(o->progress_user, "reading", (double)i / (double)n))
            status = error_set(err, LACE_E_CANCELLED, "cancelled");
        if (status == LACE_OK)
            status = walk_begin(w, walk_spread_window(w, tokens, n_tokens, i, n), err);
        if (status == LACE_OK)
            status = add_window(w, *out, row, experts, err);
    }
    *n_windows = n;
    mem_free_all(row, experts);
    if (status != LACE_OK) {
        imatrix_free(*out);
        *out = NULL;
    }
    return status;
}
