/* Pruning with feedback: Hessians of all matrices, and the loop over columns. */
#include "compress/prune_feedback.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "compress/imatrix_collect.h"
#include "compress/prune_choose.h"

enum { BLOCK = 128, MAX_NAMES = 3 };

/* A matrix step: its matrices have the same inputs. */
typedef struct input {
    int32_t step;
    text names[MAX_NAMES]; /* of the tensors; the model's */
    int n_names;
    hessian h;
} input;

struct prune_hessians {
    input *inputs;
    size_t n_inputs;
    char *names; /* storage of all names */
};

/* ---- Collecting ------------------------------------------------------------------------------ */

static bool is_wanted(const surgery *s, text name)
{
    char terminated[96];
    snprintf(terminated, sizeof terminated, "%.*s", text_width(name), name.data);
    int32_t rule = surgery_match(s, terminated, false);
    return rule >= 0 && s->rules[rule].method == PRUNE_SPARSEGPT;
}

/* The matrices of a step that are wanted. */
static lace_status note_step(const walk *w, int32_t i, const surgery *s, input *out,
                             lace_error *err)
{
    walk_matrices x;
    walk_matrices_view(w, i, &x);
    *out = (input){.step = i};
    for (int k = 0; k < x.n; k++) {
        text name = x.sources[k]->source->name;
        if (!is_wanted(s, name))
            continue;
        if (x.n_experts)
            return error_set(err, LACE_E_UNSUPPORTED,
                             "%.*s: sparsegpt cannot prune mixtures of experts; use wanda",
                             text_width(name), name.data);
        out->names[out->n_names++] = name;
    }
    if (out->n_names > 0)
        out->h.n = x.width;
    return LACE_OK;
}

static lace_status note_all(const walk *w, const surgery *s, prune_hessians *out, lace_error *err)
{
    size_t n_steps = 0;
    for (int32_t i = 0; (i = walk_next_matrix(w, i)) < walk_end(w); i++)
        n_steps++;
    out->inputs = mem_calloc(n_steps ? n_steps : 1, sizeof *out->inputs);
    if (!out->inputs)
        return error_nomem(err, "Hessians");
    uint64_t n_bytes = 0;
    for (int32_t i = 0; (i = walk_next_matrix(w, i)) < walk_end(w); i++) {
        input *in = &out->inputs[out->n_inputs];
        TRY(note_step(w, i, s, in, err));
        n_bytes += (uint64_t)in->h.n * (uint64_t)in->h.n * sizeof(double);
        out->n_inputs += in->n_names > 0;
    }
    if (n_bytes > PRUNE_MAX_HESSIAN_BYTES)
        return error_set(err, LACE_E_LIMIT,
                         "the Hessians of these matrices take %" PRIu64 " MB, more than %" PRIu64
                         ": prune fewer tensors at a time, or use wanda",
                         n_bytes >> 20, PRUNE_MAX_HESSIAN_BYTES >> 20);
    for (size_t i = 0; i < out->n_inputs; i++)
        TRY(hessian_init(&out->inputs[i].h, out->inputs[i].h.n, w->n_context, false, w->workers,
                         err));
    return LACE_OK;
}

/* Names belong to the model, which is closed before the Hessians are used. */
static lace_status keep_names(prune_hessians *h, lace_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < h->n_inputs; i++)
        for (int k = 0; k < h->inputs[i].n_names; k++)
            n += h->inputs[i].names[k].size;
    char *at = h->names = mem_alloc(n ? n : 1);
    if (!at)
        return error_nomem(err, "Hessians");
    for (size_t i = 0; i < h->n_inputs; i++)
        for (int k = 0; k < h->inputs[i].n_names; k++) {
            text *t = &h->inputs[i].names[k];
            memcpy(at, t->data, t->size);
            t->data = at;
            at += t->size;
        }
    return LACE_OK;
}

static void add_window(walk *w, prune_hessians *h)
{
    int32_t at = 0;
    for (size_t i = 0; i < h->n_inputs; i++) {
        input *in = &h->inputs[i];
        walk_matrices x;
        walk_run(w, at, in->step);
        walk_matrices_view(w, in->step, &x);
        hessian_add(&in->h, (const float *)x.s->in[0].data, NULL, (int64_t)(x.s->in[0].stride / 4),
                    x.n_rows, w->workers);
        at = in->step;
    }
}

lace_status prune_hessians_collect(walk *w, const surgery *s, const lace_token *tokens,
                                   size_t n_tokens, int64_t n_windows, lace_progress_fn on_progress,
                                   void *user, prune_hessians **out, lace_error *err)
{
    int64_t n_all = (int64_t)n_tokens / w->n_context;
    int64_t n = n_windows > 0 && n_windows < n_all ? n_windows : n_all;
    prune_hessians *h = mem_calloc(1, sizeof *h);
    *out = NULL;
    if (!h)
        return error_nomem(err, "Hessians");
    lace_status status = walk_begin(w, tokens, err); /* the plan must know a batch to be viewed */
    if (status == LACE_OK)
        status = note_all(w, s, h, err);
    for (int64_t i = 0; i < n && status == LACE_OK; i++) {
        if (on_progress && !on_progress(user, "reading", (double)i / (double)n))
            status = error_set(err, LACE_E_CANCELLED, "cancelled");
        if (status == LACE_OK)
            status = walk_begin(w, walk_spread_window(w, tokens, n_tokens, i, n), err);
        if (status == LACE_OK)
            add_window(w, h);
    }
    for (size_t i = 0; i < h->n_inputs && status == LACE_OK; i++)
        hessian_finish(&h->inputs[i].h, w->workers);
    if (status == LACE_OK)
        status = keep_names(h, err);
    return GIVE_OR_FREE(status, h, out, prune_hessians_free);
}

void prune_hessians_free(prune_hessians *h)
{
    if (!h)
        return;
    for (size_t i = 0; i < h->n_inputs; i++)
        hessian_deinit(&h->inputs[i].h);
    mem_free_all(h->inputs, h->names, h);
}

const hessian *prune_hessians_find(const prune_hessians *h, text name)
{
    for (size_t i = 0; h && i < h->n_inputs; i++)
        for (int k = 0; k < h->inputs[i].n_names; k++)
            if (text_equals(h->inputs[i].names[k], name))
                return &h->inputs[i].h;
    return NULL;
}

/* ---- Pruning --------------------------------------------------------------------------------- */

typedef struct job {
    const surgery_rule *rule;
    const hessian_factor *f;
    float *rows;
    int64_t n_rows;
    uint8_t *keeps;
    float *scratch;     /* [n_workers, 2 * BLOCK] */
    const float *costs; /* [n] 1 / u_jj^2: what the square of a weight that goes costs */
} job;

static void prune_row(const job *j, int64_t row, float *scratch)
{
    int64_t n = j->f->n;
    float *w = j->rows + row * n;
    uint8_t *keeps = j->keeps + row * n;
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t width = n - at < BLOCK ? n - at : BLOCK;
        prune_matrix block = {.w = w + at, .n_rows = 1, .n_cols = width, .inputs = j->costs + at};
        prune_choose_row(j->rule, &block, 0, keeps + at, scratch);
        for (int64_t i = at; i < at + width; i++) {
            if (keeps[i])
                continue;
            const float *u = j->f->u + i * n;
            float e = w[i] / u[i];
            for (int64_t k = i; k < n; k++)
                w[k] -= e * u[k];
            w[i] = 0;
        }
    }
}

static void prune_rows(void *arg, int index, int n_workers)
{
    const job *j = arg;
    int64_t begin, end;
    pool_share(j->n_rows, 1, index, n_workers, &begin, &end);
    for (int64_t row = begin; row < end; row++)
        prune_row(j, row, j->scratch + (int64_t)index * 2 * BLOCK);
}

lace_status prune_with_feedback(const surgery_rule *rule, const hessian *h, float *rows,
                                int64_t n_rows, uint8_t *keeps, pool *workers, lace_error *err)
{
    const double damping = 0.01; /* of the mean diagonal, as SparseGPT has it */
    hessian_factor f = {0};
    TRY(hessian_factorize(h, false, damping, &f, workers, err));
    job j = {.rule = rule, .f = &f, .rows = rows, .n_rows = n_rows, .keeps = keeps};
    float *costs = mem_alloc((size_t)f.n * sizeof *costs);
    j.scratch = mem_alloc((size_t)pool_size(workers) * 2 * BLOCK * sizeof *j.scratch);
    lace_status status = LACE_OK;
    if (!costs || !j.scratch) {
        status = error_nomem(err, "pruning");
    } else {
        for (int64_t i = 0; i < f.n; i++) {
            float u = f.u[i * f.n + i];
            costs[i] = 1 / (u * u);
        }
        j.costs = costs;
        pool_run(workers, prune_rows, &j);
    }
    mem_free_all(costs, j.scratch);
    hessian_factor_deinit(&f);
    return status;
}
