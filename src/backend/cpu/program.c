/*
 * Programs of the CPU. Every worker goes through the same list. The work of a step is cut into pieces,
 * more of them than there are workers, and whoever is free takes the next one; at the end of a
 * phase workers wait until its pieces are done, not until every worker has come by. So a worker
 * that lost its core to another program delays the others by one piece at most.
 */
#include <assert.h>
#include <string.h>

#include "backend/cpu/columns.h"
#include "backend/cpu/cpu_device.h"
#include "backend/cpu/lower.h"
#include "backend/cpu/ops.h"
#include "base/clock.h"
#include "base/file_guard.h"
#include "base/mem.h"
#include "base/numbers.h"

typedef struct cpu_program {
    program base;
    const kernel_table *table;
    plan *p; /* lowered */
    pool *workers;
    int32_t n_workers;
    uint64_t scratch_bytes; /* of each worker */
    uint64_t shared_bytes;  /* of all workers together */
    uint64_t sums_bytes;    /* of products with columns, until they are joined */
    uint8_t *memory;        /* values, scratch of each worker, shared, sums, handouts */
    bool has_room;          /* that is somebody else's */
    uint8_t *shared;        /* [shared_bytes] */
    handout *handouts;      /* [n_steps] one for each phase of a run */
    step_cost *costs;       /* [n_steps] of the last traced run, or NULL */
} cpu_program;

typedef struct run {
    const cpu_program *cp;
    const batch *b;
    step_cost *costs;   /* [n_steps] where what each took goes; NULL: nobody asks */
    int32_t begin, end; /* steps */
} run;

/* ---- Pieces ---------------------------------------------------------------------------------- */

/* Pieces for each worker, and the smallest piece of a matrix: shorter runs stream no better than
 * this. */
enum { PIECES_PER_WORKER = 4, PIECE_ROWS = 64 };

/*
 * With few tokens memory sets the pace, and long runs are read fastest: every worker first takes
 * one piece of FIRST_SHARES, and the rest goes out share by share, so that all end together.
 */
enum { SHARES_PER_WORKER = 10, FIRST_SHARES = 8 };

/* Whether a step goes out in unequal pieces. */
static bool has_long_pieces(const step *s, const batch *b, int n_workers)
{
    return n_workers > 1 && step_is_matmul(s) && step_rows(s, b) <= MATMUL_FEW_TOKENS &&
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
    if ((s->op == OP_LORA_DOWN || s->op == OP_LORA_UP) && !b->adapter_scales)
        return 1;
    if (step_has_experts(s) && b->n_tokens <= MATMUL_FEW_TOKENS)
        return moe_n_pieces(s, b, n_workers);
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
    case OP_ALONE:
        return 1;
    default:
        n = step_rows(s, b);
        break;
    }
    n = min_i64(n, most);
    return n > 0 ? n : 1;
}

/* The steps of one phase: [begin, end), and how many pieces they have together. */
static int64_t phase_pieces(const run *r, int32_t begin, int32_t end, int n_workers)
{
    int64_t n = 0;
    for (int32_t i = begin; i < end; i++)
        n += n_pieces(&r->cp->p->steps[i], r->b, n_workers);
    return n;
}

static void run_piece(const run *r, int32_t begin, int64_t piece, int n_workers, worker *w)
{
    const step *s = &r->cp->p->steps[begin];
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
    r->cp->table->ops[s->op](s, r->b, w);
}

static void walk(void *arg, int index, int count)
{
    const run *r = arg;
    const cpu_program *cp = r->cp;
    worker w = {.scratch = cp->memory + cp->p->value_bytes + (uint64_t)index * cp->scratch_bytes,
                .scratch_bytes = cp->scratch_bytes,
                .shared = cp->shared};
    bool traces = r->costs && index == 0;
    uint64_t before = traces ? clock_ns() : 0;
    for (int32_t begin = r->begin, end; begin < r->end; begin = end) {
        /* A traced step is a phase of its own, so that its time is its own too. */
        for (end = begin + 1; end < r->end && cp->p->steps[end - 1].skips_barrier && !r->costs;)
            end++;
        uint32_t n = (uint32_t)phase_pieces(r, begin, end, count), piece;
        while (handout_claim(&cp->handouts[begin], n, &piece)) {
            run_piece(r, begin, piece, count, &w);
            handout_finish(cp->workers, &cp->handouts[begin], n);
        }
        handout_wait(cp->workers, &cp->handouts[begin], n);
        if (traces) {
            uint64_t now = clock_ns();
            r->costs[begin].ns = now - before;
            before = now;
        }
    }
}

/* ---- Running --------------------------------------------------------------------------------- */

static void run_range(const cpu_program *cp, const batch *b, step_cost *costs, int32_t begin,
                      int32_t end)
{
    const plan_limits *l = &cp->p->limits;
    assert(cp->memory && 0 <= begin && begin <= end && end <= cp->p->n_steps);
    assert(b->n_tokens <= l->max_tokens && b->n_outputs <= l->max_outputs);
    memset(cp->handouts + begin, 0, (size_t)(end - begin) * sizeof *cp->handouts);
    run r = {cp, b, costs, begin, end};
    pool_run(cp->workers, walk, &r);
}

void cpu_program_run_steps(program *p, const batch *b, int32_t begin, int32_t end)
{
    run_range((cpu_program *)p, b, NULL, begin, end);
}

/* Memory of choices is used again by later steps, so a step of experts is looked at before it runs. */
static void run_traced(const cpu_program *cp, const batch *b)
{
    const step *steps = cp->p->steps;
    for (int32_t begin = 0, end; begin < cp->p->n_steps; begin = end) {
        cp->costs[begin].n_bytes = step_bytes(&steps[begin], b, true);
        for (end = begin + 1; end < cp->p->n_steps && !step_has_experts(&steps[end]); end++)
            cp->costs[end].n_bytes = step_bytes(&steps[end], b, true);
        run_range(cp, b, cp->costs, begin, end);
    }
}

lace_status cpu_program_run(program *p, const batch *b, const choice_rule *rules, bool is_traced,
                            lace_error *err)
{
    cpu_program *cp = (cpu_program *)p;
    if (is_traced && !cp->costs &&
        !(cp->costs = mem_calloc((size_t)cp->p->n_steps, sizeof *cp->costs)))
        return error_nomem(err, "a trace");
    if (is_traced)
        run_traced(cp, b);
    else
        run_range(cp, b, NULL, 0, cp->p->n_steps);
    return file_guard_check(err);
}

static const float *value_row(const cpu_program *cp, int32_t value, int32_t row)
{
    const plan_value *v = &cp->p->values[value];
    return (const float *)(cp->memory + v->offset +
                           (uint64_t)row * act_row_bytes(v->format, v->width));
}

const float *cpu_program_logits(const program *p, int32_t row)
{
    const cpu_program *cp = (const cpu_program *)p;
    return value_row(cp, cp->p->logits, row);
}

const float *cpu_program_hidden(const program *p, int32_t row)
{
    const cpu_program *cp = (const cpu_program *)p;
    return value_row(cp, cp->p->hidden, row);
}

int32_t cpu_program_n_steps(const program *p)
{
    return ((const cpu_program *)p)->p->n_steps;
}

program_step cpu_program_step_at(const program *p, int32_t i, const batch *b)
{
    const cpu_program *cp = (const cpu_program *)p;
    const step *s = &cp->p->steps[i];
    return (program_step){.name = op_name(s->op),
                          .layer = s->layer,
                          .n_bytes = cp->costs ? cp->costs[i].n_bytes : 0,
                          .n_products = step_products(s, b),
                          .ns = cp->costs ? cp->costs[i].ns : 0};
}

/* ---- Life ------------------------------------------------------------------------------------ */

enum { PAGE_BYTES = 4096 };

static void add_up(cpu_program *cp)
{
    const plan *p = cp->p;
    cp->base.same_tokens = INT32_MAX;
    for (int32_t i = 0; i < p->n_steps; i++) {
        const step *s = &p->steps[i];
        int32_t same = step_same_tokens(s);
        cp->base.same_tokens = same < cp->base.same_tokens ? same : cp->base.same_tokens;
        int64_t rows = s->is_output ? p->limits.max_outputs : p->limits.max_tokens;
        uint64_t scratch = step_scratch_bytes(s, rows, p->limits.n_context);
        uint64_t shared = step_shared_bytes(s, p->limits.n_context);
        uint64_t sums = step_uses_sums(s) ? columns_sums_bytes(s) : 0;
        cp->scratch_bytes = scratch > cp->scratch_bytes ? scratch : cp->scratch_bytes;
        cp->shared_bytes = shared > cp->shared_bytes ? shared : cp->shared_bytes;
        cp->sums_bytes = sums > cp->sums_bytes ? sums : cp->sums_bytes;
    }
    cp->scratch_bytes = round_up(cp->scratch_bytes, PAGE_BYTES);
    cp->shared_bytes = round_up(cp->shared_bytes, PAGE_BYTES);
    cp->sums_bytes = round_up(cp->sums_bytes, PAGE_BYTES);
    cp->base.n_bytes = p->value_bytes + (uint64_t)cp->n_workers * cp->scratch_bytes +
                       cp->shared_bytes + cp->sums_bytes + (uint64_t)p->n_steps * sizeof(handout);
    cp->base.room_bytes = cp->base.n_bytes;
}

lace_status cpu_program_compile(device *d, const plan *p, const program_options *o, program **out,
                                lace_error *err)
{
    *out = NULL;
    cpu_program *cp = mem_calloc(1, sizeof *cp);
    if (!cp)
        return error_nomem(err, "a program");
    cp->base.backend = d->backend;
    cp->table = cpu_device_kernels(d);
    cp->n_workers = p->limits.n_workers;
    lace_status status = plan_copy(p, &cp->p, err);
    if (status == LACE_OK) {
        cpu_lower(cp->p, cp->table);
        status = plan_check(cp->p, err);
    }
    if (status != LACE_OK) {
        cpu_program_free(&cp->base);
        return status;
    }
    add_up(cp);
    cp->base.lowered = cp->p;
    *out = &cp->base;
    return LACE_OK;
}

lace_status cpu_program_prepare(program *p, const program_memory *m, lace_error *err)
{
    cpu_program *cp = (cpu_program *)p;
    assert(pool_size(m->workers) <= cp->n_workers);
    cp->workers = m->workers;
    cp->has_room = m->room != NULL;
    cp->memory = m->room ? m->room : mem_map(p->n_bytes);
    if (!cp->memory)
        return error_nomem(err, "the plan's values and scratch");
    cp->shared = cp->memory + cp->p->value_bytes + (uint64_t)cp->n_workers * cp->scratch_bytes;
    cp->handouts = (handout *)(cp->shared + cp->shared_bytes + cp->sums_bytes);
    plan_memory where = program_plan_memory(m, cp->memory);
    plan_locate(cp->p, &where);
    for (int32_t i = 0; i < cp->p->n_steps; i++)
        if (step_uses_sums(&cp->p->steps[i]))
            cp->p->steps[i].a.matmul.sums = (float *)(cp->shared + cp->shared_bytes);
    cp->base.values = cp->memory;
    return LACE_OK;
}

void cpu_program_free(program *p)
{
    cpu_program *cp = (cpu_program *)p;
    if (!cp->has_room)
        mem_unmap(cp->memory, p->n_bytes);
    mem_free(cp->costs);
    plan_free(cp->p);
    mem_free(cp);
}
