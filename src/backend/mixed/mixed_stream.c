/*
 * Weights of the host that are brought to a card for the steps of large batches. The card then reads
 * them at the speed of the link, whatever the number of tokens, where the host would multiply with
 * them once for each token.
 */
#include <string.h>

#include "backend/mixed/mixed_device.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "tensor/sparse.h"

lace_status stream_note(mixed_device *d, const weight *w, const weight_rows *rows, lace_error *err)
{
    if (d->n_host == d->host_capacity) {
        int32_t more = d->host_capacity ? 2 * d->host_capacity : 256;
        host_rows *grown = mem_realloc(d->host, (size_t)more * sizeof *grown);
        if (!grown)
            return error_nomem(err, "a device");
        d->host = grown;
        d->host_capacity = more;
    }
    d->host[d->n_host++] = (host_rows){w, *rows};
    return LACE_OK;
}

/* The last that was noted of it: it may have been placed more than once. */
static const host_rows *find(const mixed_device *d, const weight *w)
{
    for (int32_t i = d->n_host - 1; i >= 0; i--)
        if (d->host[i].w == w)
            return &d->host[i];
    return NULL;
}

/* Experts are placed one behind the other. */
static bool has_rows(const mixed_device *d, const weight *w, int32_t n)
{
    const host_rows *first = find(d, w);
    if (!first || dtype_is_sparse(first->rows.type) || first + n > d->host + d->n_host)
        return false;
    for (int32_t i = 0; i < n; i++)
        if (first[i].w != &w[i] || first[i].rows.type != first->rows.type)
            return false;
    return true;
}

bool stream_can(const mixed_device *d, const step *s)
{
    op_weight w[OP_MAX_WEIGHTS];
    int n = step_weights(s, w);
    bool is_known = s->op == OP_MATMUL || s->op == OP_MOE_GLU || s->op == OP_MOE_DOWN;
    for (int i = 0; i < n && is_known; i++)
        is_known = w[i].w->device == 0 && !w[i].w->lora && !w[i].w->sparsity &&
                   has_rows(d, w[i].w, w[i].n_experts);
    return d->streamer > 0 && n > 0 && is_known;
}

/* ---- Twins ----------------------------------------------------------------------------------- */

static lace_status make_twin(const mixed_device *d, const weight **at, int32_t n,
                             stream_twins *twins, lace_error *err)
{
    device *to = d->parts[d->streamer];
    const host_rows *from = find(d, *at);
    if (twins->n_lists == twins->capacity) {
        int32_t more = twins->capacity ? 2 * twins->capacity : 64;
        weight **grown = mem_realloc(twins->lists, (size_t)more * sizeof *grown);
        if (!grown)
            return error_nomem(err, "a plan");
        twins->lists = grown;
        twins->capacity = more;
    }
    /* The rows lie behind the weights. */
    weight *list = mem_calloc((size_t)n, sizeof *list + sizeof(weight_rows));
    if (!list)
        return error_nomem(err, "a plan");
    twins->lists[twins->n_lists++] = list;
    weight_rows *rows = (weight_rows *)(void *)(list + n);
    for (int32_t i = 0; i < n; i++) {
        rows[i] = from[i].rows;
        rows[i].kept =
            device_kept_as(to, rows[i].type, rows[i].blocks, rows[i].n_rows, rows[i].n_cols);
        TRY(to->backend->place_streamed(to, &rows[i], &list[i], err));
        list[i].device = d->streamer;
        twins->n_bytes += rows[i].n_bytes;
    }
    *at = list;
    return LACE_OK;
}

lace_status stream_step(const mixed_device *d, step *s, stream_twins *twins, lace_error *err)
{
    if (s->op == OP_MATMUL) {
        const weight *w = s->a.matmul.weights[0];
        twins->n_products += (uint64_t)w->n_rows * (uint64_t)w->n_cols;
        return make_twin(d, &s->a.matmul.weights[0], 1, twins, err);
    }
    const weight **of[] = {&s->a.moe.gate, &s->a.moe.up, &s->a.moe.down};
    bool is_glu = s->op == OP_MOE_GLU;
    for (int i = 0; i < 3; i++) {
        bool is_used = *of[i] && is_glu == (i < 2);
        if (!is_used)
            continue;
        twins->n_products +=
            (uint64_t)(*of[i])->n_rows * (uint64_t)(*of[i])->n_cols * (uint64_t)s->a.moe.n_used;
        TRY(make_twin(d, of[i], s->a.moe.n_experts, twins, err));
    }
    return LACE_OK;
}

void stream_twins_free(stream_twins *t)
{
    for (int32_t i = 0; i < t->n_lists; i++)
        mem_free(t->lists[i]);
    mem_free(t->lists);
    *t = (stream_twins){0};
}

/* ---- Whether it is worth it ------------------------------------------------------------------ */

lace_status stream_time_link(queue *q, double *bytes_s, lace_error *err)
{
    enum { N = 16 << 20, RUNS = 3 };
    uint8_t *there = NULL, *here = NULL;
    double best = 0;
    *bytes_s = 0;
    if (!queue_shares_memory(q))
        return LACE_OK;
    TRY(queue_take_shared(q, N, &here, err));
    lace_status status = queue_take(q, N, &there, err);
    for (int i = 0; i < RUNS && status == LACE_OK; i++) {
        uint64_t begin = clock_ns();
        status = queue_write(q, there, here, N, err);
        double took = 1e-9 * (double)(clock_ns() - begin);
        best = best == 0 || took < best ? took : best;
    }
    queue_give_back(q, there, N);
    queue_give_back_shared(q, here);
    *bytes_s = best > 0 ? N / best : 0;
    return status;
}

int32_t stream_worth(const stream_twins *t, double link_bytes_s, int32_t n_workers)
{
    enum { MOST = 1 << 14 };
    /* What a core multiplies with batches, about: int8 products of AVX-512 VNNI. */
    const double core_products_s = 100e9, usual_link_bytes_s = 12e9;
    double link = link_bytes_s > 0 ? link_bytes_s : usual_link_bytes_s;
    double bring_s = (double)t->n_bytes / link;
    double each_s = (double)t->n_products / (core_products_s * n_workers);
    /* A power of two, so that a link that is timed a little otherwise changes no text. */
    int32_t n = STREAM_LEAST;
    while (n < MOST && n * each_s < 0.75 * bring_s)
        n *= 2;
    return n;
}
