/*
 * Walking a plan: every worker goes through the same list. The work of a step is cut into pieces,
 * more of them than there are workers, and whoever is free takes the next one; at the end of a
 * phase workers wait until its pieces are done, not until every worker has come by. So a worker
 * that lost its core to another program delays the others by one piece at most.
 */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "backend/cpu/columns.h"
#include "ops/op_info.h"
#include "plan/plan.h"

typedef struct run {
    const plan *p;
    pool *workers;
    const batch *b;
    plan_trace *trace;
    int32_t begin, end; /* steps */
} run;

/* Pieces for each worker, and the smallest piece of a matrix: shorter runs stream no better than
 * this. */
enum { PIECES_PER_WORKER = 4, PIECE_ROWS = 64 };

/*
 * With few tokens memory sets the pace, and long runs are read fastest: every worker first takes
 * one piece of FIRST_SHARES, and the rest goes out share by share, so that all end together.
 */
enum { FEW_TOKENS = 16, SHARES_PER_WORKER = 10, FIRST_SHARES = 8 };

static int64_t at_most(int64_t n, int64_t most)
{
    return n < most ? n : most;
}

/* Whether a step goes out in unequal pieces. */
static bool has_long_pieces(const step *s, const batch *b, int n_workers)
{
    return n_workers > 1 && step_is_matmul(s) && step_rows(s, b) <= FEW_TOKENS &&
           step_columns(s) >= (int64_t)n_workers * SHARES_PER_WORKER * MATMUL_TILE_ROWS;
}

/* Into how many pieces the work of a step is cut; at least 1. */
static int64_t n_pieces(const step *s, const batch *b, int n_workers)
{
    if (n_workers == 1)
        return 1;
    if (step_is_matmul(s) && columns_use(s, b))
        return columns_n_pieces(s);
    if (has_long_pieces(s, b, n_workers))
        return (int64_t)n_workers * (1 + SHARES_PER_WORKER - FIRST_SHARES);
    if (s->op == OP_MATMUL_JOIN && !columns_use(s, b))
        return 1;
    int64_t most = (int64_t)n_workers * PIECES_PER_WORKER, n;
    switch (op_describe(s->op)->pieces) {
    case OP_BY_COLUMNS:
        n = step_columns(s) / PIECE_ROWS;
        break;
    case OP_BY_HEADS:
        n = attend_n_items(s, b);
        break;
    case OP_BY_WORKERS:
        n = n_workers;
        break;
    default:
        n = step_rows(s, b);
        break;
    }
    n = at_most(n, most);
    return n > 0 ? n : 1;
}

/* The steps of one phase: [begin, end), and how many pieces they have together. */
static int64_t phase_pieces(const run *r, int32_t begin, int32_t end, int n_workers)
{
    int64_t n = 0;
    for (int32_t i = begin; i < end; i++)
        n += n_pieces(&r->p->steps[i], r->b, n_workers);
    return n;
}

static void run_piece(const run *r, int32_t begin, int64_t piece, int n_workers, worker *w)
{
    const step *s = &r->p->steps[begin];
    int64_t n = n_pieces(s, r->b, n_workers);
    while (piece >= n) {
        piece -= n;
        n = n_pieces(++s, r->b, n_workers);
    }
    w->index = (int)piece;
    w->count = (int)n;
    w->n_more = 0;
    if (has_long_pieces(s, r->b, n_workers) && !columns_use(s, r->b)) {
        bool is_first = piece < n_workers;
        w->index = is_first ? (int)piece * FIRST_SHARES
                            : (int)(piece + (int64_t)n_workers * (FIRST_SHARES - 1));
        w->n_more = is_first ? FIRST_SHARES - 1 : 0;
        w->count = n_workers * SHARES_PER_WORKER;
    }
    r->p->table->ops[s->op](s, r->b, w);
}

static void walk(void *arg, int index, int count)
{
    const run *r = arg;
    const plan *p = r->p;
    worker w = {.scratch = p->memory + p->value_bytes + (uint64_t)index * p->scratch_bytes,
                .scratch_bytes = p->scratch_bytes,
                .shared = p->shared};
    bool traces = r->trace && index == 0;
    uint64_t before = traces ? clock_ns() : 0;
    for (int32_t begin = r->begin, end; begin < r->end; begin = end) {
        /* A traced step is a phase of its own, so that its time is its own too. */
        for (end = begin + 1; end < r->end && p->steps[end - 1].skips_barrier && !r->trace;)
            end++;
        uint32_t n = (uint32_t)phase_pieces(r, begin, end, count), piece;
        while (handout_claim(&p->handouts[begin], n, &piece)) {
            run_piece(r, begin, piece, count, &w);
            handout_finish(r->workers, &p->handouts[begin], n);
        }
        handout_wait(r->workers, &p->handouts[begin], n);
        if (traces) {
            uint64_t now = clock_ns();
            r->trace->ns[begin] += now - before;
            before = now;
        }
    }
}

void plan_run(const plan *p, pool *workers, const batch *b, plan_trace *trace)
{
    assert(p->memory && pool_size(workers) <= p->limits.n_workers);
    assert(b->n_tokens <= p->limits.max_tokens && b->n_outputs <= p->limits.max_outputs);
    memset(p->handouts, 0, (size_t)p->n_steps * sizeof *p->handouts);
    run r = {p, workers, b, trace, 0, p->n_steps};
    pool_run(workers, walk, &r);
}

void plan_run_steps(const plan *p, pool *workers, const batch *b, int32_t begin, int32_t end)
{
    assert(p->memory && 0 <= begin && begin <= end && end <= p->n_steps);
    memset(p->handouts + begin, 0, (size_t)(end - begin) * sizeof *p->handouts);
    run r = {p, workers, b, NULL, begin, end};
    pool_run(workers, walk, &r);
}

const float *plan_logits(const plan *p, int32_t row)
{
    const plan_value *v = &p->values[p->logits];
    return (const float *)(p->memory + v->offset +
                           (uint64_t)row * act_row_bytes(v->format, v->width));
}
