/*
 * Traces: what each step of a session's plan took and moved, added up over evaluations.
 *
 * Worker 0 reads the clock behind every step, after the barrier if there is one, so a step's time
 * includes the wait for the slowest worker. Bytes and products are computed, not counted: they are
 * what the step must do, however well it does it.
 */
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "ops/op_info.h"

struct session_trace {
    plan_trace times;
    uint64_t *bytes; /* [n_steps] */
    uint64_t *macs;  /* [n_steps] */
    uint64_t n_runs;
};

void session_trace_free(session_trace *t)
{
    if (!t)
        return;
    mem_free(t->times.ns);
    mem_free(t->bytes);
    mem_free(t->macs);
    mem_free(t);
}

plan_trace *session_trace_times(session_trace *t)
{
    return t ? &t->times : NULL;
}

void session_trace_add(session_trace *t, const plan *p, const batch *b, bool sees_values)
{
    if (!t)
        return;
    t->n_runs++;
    for (int32_t i = 0; i < p->n_steps; i++) {
        t->bytes[i] += step_bytes(&p->steps[i], b, sees_values);
        t->macs[i] += step_products(&p->steps[i], b);
    }
}

lace_status lace_session_trace(lace_session *s, bool is_on, lace_error *err)
{
    session_trace_free(s->trace);
    s->trace = NULL;
    if (!is_on)
        return LACE_OK;
    session_trace *t = mem_calloc(1, sizeof *t);
    size_t n = (size_t)s->p->n_steps;
    bool ok = t && (t->times.ns = mem_calloc(n, sizeof *t->times.ns)) &&
              (t->bytes = mem_calloc(n, sizeof *t->bytes)) &&
              (t->macs = mem_calloc(n, sizeof *t->macs));
    if (!ok) {
        session_trace_free(t);
        return error_nomem(err, "a trace");
    }
    s->trace = t;
    return LACE_OK;
}

size_t lace_session_trace_rows(const lace_session *s, lace_trace_row *rows, size_t capacity)
{
    const session_trace *t = s->trace;
    if (!t)
        return 0;
    size_t n = (size_t)s->p->n_steps;
    for (size_t i = 0; i < n && i < capacity; i++)
        rows[i] = (lace_trace_row){.operation = op_name(s->p->steps[i].op),
                                   .layer = s->p->steps[i].layer,
                                   .n_calls = t->n_runs,
                                   .ns = t->times.ns[i],
                                   .n_bytes = t->bytes[i],
                                   .n_macs = t->macs[i]};
    return n;
}
