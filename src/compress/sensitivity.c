/* How much each tensor matters. */
#include "compress/sensitivity.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "compress/codec.h"
#include "compress/imatrix_collect.h"
#include "compress/quality.h"
#include "kernels/ref/unpack.h"

enum { N_WINDOWS = 4 };

typedef struct measuring {
    walk *w;
    const lace_token *tokens;
    size_t n_tokens;
    int32_t n_windows;
    int64_t n_vocab;
    float *base;      /* [n_windows][n_context, n_vocab] the original's logits */
    uint8_t **states; /* [n_layers] before the first step of each, all windows */
    uint64_t *bytes;  /* [n_layers] of one window */
    int32_t *first;   /* [n_layers] step */
    /* While a window is judged: */
    const float *base_now;
    double *sums; /* [workers] */
    handout pieces;
} measuring;

/* ---- Divergence ------------------------------------------------------------------------------ */

static void judge_rows(void *arg, int me, int n_workers)
{
    measuring *m = arg;
    uint32_t n = (uint32_t)m->w->n_context, row;
    while (handout_claim(&m->pieces, n, &row)) {
        quality_score s = quality_judge(plan_logits(m->w->p, (int32_t)row),
                                        m->base_now + (int64_t)row * m->n_vocab, m->n_vocab, 0);
        m->sums[me] += s.kld;
    }
}

static double divergence(measuring *m, int32_t i)
{
    double sum = 0;
    int n_workers = pool_size(m->w->workers);
    m->base_now = m->base + (int64_t)i * m->w->n_context * m->n_vocab;
    memset(m->sums, 0, (size_t)n_workers * sizeof *m->sums);
    m->pieces = (handout){0};
    pool_run(m->w->workers, judge_rows, m);
    for (int k = 0; k < n_workers; k++)
        sum += m->sums[k];
    return sum / m->w->n_context;
}

/* ---- The original ---------------------------------------------------------------------------- */

static const lace_token *window(const measuring *m, int32_t i)
{
    return walk_spread_window(m->w, m->tokens, m->n_tokens, i, m->n_windows);
}

static lace_status run_original(measuring *m, lace_error *err)
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
            memcpy(m->base + ((int64_t)i * w->n_context + row) * m->n_vocab, plan_logits(w->p, row),
                   (size_t)m->n_vocab * sizeof *m->base);
    }
    return LACE_OK;
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

/* The divergence with what the walk now computes with, from a layer on. -1: from the start. */
static lace_status measure_from(measuring *m, int32_t layer, double *out, lace_error *err)
{
    *out = 0;
    for (int32_t i = 0; i < m->n_windows; i++) {
        int32_t at = layer < 0 ? 0 : m->first[layer];
        TRY(walk_begin(m->w, window(m, i), err));
        if (layer >= 0)
            walk_restore(m->w, at, m->states[layer] + (uint64_t)i * m->bytes[layer]);
        walk_run(m->w, at, walk_end(m->w));
        *out += divergence(m, i) / m->n_windows;
    }
    return LACE_OK;
}

/* values[rows, n] as if they had been quantized. */
static lace_status round_trip(const codec *c, float *values, int64_t n_values, uint8_t *blocks,
                              lace_error *err)
{
    TRY(codec_encode(c, values, NULL, n_values, blocks, err));
    unpack_row(c->type, blocks, n_values, values);
    return LACE_OK;
}

/* All parts of a tensor are replaced, the table of embeddings too, and put back. */
static lace_status measure_tensor(measuring *m, const tensor *t, const codec *c, double *out,
                                  lace_error *err)
{
    walk *w = m->w;
    const matmul_impl *impl = w->m->kernels.exact[DTYPE_F32];
    int64_t n = t->shape.dims[0], n_values = (int64_t)t->n_values;
    weight old[3];
    weight *targets[3];
    uint8_t *packed[3] = {0};
    uint64_t packed_bytes[3] = {0};
    int n_parts = 0;
    int32_t layer = INT32_MAX;
    step *embed = NULL;
    float *values = mem_map((uint64_t)n_values * 4);
    uint8_t *blocks = mem_map(row_bytes(c->type, n_values));
    lace_status status = values && blocks ? LACE_OK : error_nomem(err, "a tensor");
    if (status == LACE_OK) {
        unpack_row(t->type, t->data, n_values, values);
        status = round_trip(c, values, n_values, blocks, err);
    }
    for (int32_t i = 0; i < w->m->n_matrices && status == LACE_OK && n_parts < 3; i++) {
        const model_matrix *mm = &w->m->matrices[i];
        if (mm->source != t)
            continue;
        int64_t skipped = (mm->blocks - t->data) / (int64_t)row_bytes(t->type, n);
        const uint8_t *rows = (const uint8_t *)(values + skipped * n);
        weight *target = mm->target;
        targets[n_parts] = target;
        old[n_parts] = *target;
        weight replaced = {
            .type = DTYPE_F32, .n_rows = target->n_rows, .n_cols = n, .data = rows, .impl = impl};
        if (impl->packed_bytes) {
            packed_bytes[n_parts] = impl->packed_bytes(DTYPE_F32, target->n_rows, n);
            packed[n_parts] = mem_map(packed_bytes[n_parts]);
            if (packed[n_parts])
                impl->pack(DTYPE_F32, rows, target->n_rows, n, 0, target->n_rows, packed[n_parts]);
            else
                status = error_nomem(err, "a tensor");
            replaced.data = packed[n_parts];
        }
        int32_t of = layer_of(w, target);
        layer = of < layer ? of : layer;
        n_parts++;
        if (status == LACE_OK)
            *target = replaced;
    }
    if (w->m->embedding == t && status == LACE_OK)
        for (int32_t i = 0; i < walk_end(w); i++)
            if (w->p->steps[i].op == OP_EMBED)
                embed = &w->p->steps[i];
    if (embed) {
        layer = -1;
        embed->a.embed.table = (const uint8_t *)values;
        embed->a.embed.type = DTYPE_F32;
    }
    if (status == LACE_OK)
        status = measure_from(m, layer == INT32_MAX ? -1 : layer, out, err);
    if (embed) {
        embed->a.embed.table = t->data;
        embed->a.embed.type = t->type;
    }
    for (int i = 0; i < n_parts; i++) {
        *targets[i] = old[i];
        mem_unmap(packed[i], packed_bytes[i]);
    }
    mem_unmap(values, (uint64_t)n_values * 4);
    mem_unmap(blocks, row_bytes(c->type, n_values));
    return status;
}

lace_status sensitivity_measure(walk *w, const lace_token *tokens, size_t n_tokens, dtype type,
                                const quantize_made *list, double *kls,
                                bool (*report)(void *user, double done), void *user,
                                lace_error *err)
{
    int32_t n_layers = w->m->config.n_layers;
    int64_t n_all = (int64_t)n_tokens / w->n_context;
    measuring m = {.w = w,
                   .tokens = tokens,
                   .n_tokens = n_tokens,
                   .n_windows = n_all < N_WINDOWS ? (int32_t)n_all : N_WINDOWS,
                   .n_vocab = w->m->config.n_vocab};
    uint64_t base_bytes = 4 * (uint64_t)(m.n_windows * w->n_context) * (uint64_t)m.n_vocab;
    m.base = mem_map(base_bytes);
    m.states = mem_calloc((size_t)n_layers, sizeof *m.states);
    m.bytes = mem_calloc((size_t)n_layers, sizeof *m.bytes);
    m.first = mem_calloc((size_t)n_layers, sizeof *m.first);
    m.sums = mem_calloc((size_t)pool_size(w->workers), sizeof *m.sums);
    lace_status status = m.base && m.states && m.bytes && m.first && m.sums
                             ? run_original(&m, err)
                             : error_nomem(err, "a measurement");
    for (size_t i = 0; i < list->n && status == LACE_OK; i++) {
        const tensor *t = weights_find(w->m->files, list->tensors[i].name);
        const codec *c = codec_find(type);
        if (t->shape.dims[0] % c->n_values != 0)
            continue;
        if (!report(user, (double)i / (double)list->n))
            status = error_set(err, LACE_E_CANCELLED, "cancelled");
        else
            status = measure_tensor(&m, t, c, &kls[i], err);
    }
    for (int32_t i = 0; m.states && i < n_layers; i++)
        mem_free(m.states[i]);
    mem_unmap(m.base, base_bytes);
    mem_free(m.states);
    mem_free(m.bytes);
    mem_free(m.first);
    mem_free(m.sums);
    return status;
}
