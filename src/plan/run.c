/* Walking a plan: every worker goes through the same list and meets the others at barriers. */
#include <assert.h>

#include "base/clock.h"
#include "plan/plan.h"

typedef struct run {
    const plan *p;
    pool *workers;
    const batch *b;
    plan_trace *trace;
} run;

static void walk(void *arg, int index, int count)
{
    const run *r = arg;
    const plan *p = r->p;
    worker w = {.index = index,
                .count = count,
                .scratch = p->memory + p->value_bytes + (uint64_t)index * p->scratch_bytes,
                .scratch_bytes = p->scratch_bytes};
    bool traces = r->trace && index == 0;
    uint64_t before = traces ? clock_ns() : 0;
    for (int32_t i = 0; i < p->n_steps; i++) {
        const step *s = &p->steps[i];
        p->table->ops[s->op](s, r->b, &w);
        if (!s->skips_barrier)
            pool_barrier(r->workers);
        if (traces) {
            uint64_t now = clock_ns();
            r->trace->ns[i] += now - before;
            before = now;
        }
    }
}

void plan_run(const plan *p, pool *workers, const batch *b, plan_trace *trace)
{
    assert(p->memory && pool_size(workers) <= p->limits.n_workers);
    assert(b->n_tokens <= p->limits.max_tokens && b->n_outputs <= p->limits.max_outputs);
    run r = {p, workers, b, trace};
    pool_run(workers, walk, &r);
}

const float *plan_logits(const plan *p, int32_t row)
{
    const plan_value *v = &p->values[p->logits];
    return (const float *)(p->memory + v->offset + (uint64_t)row * act_row_bytes(v->format, v->width));
}
