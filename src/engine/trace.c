/*
 * Traces: what each step of a session's program took and moved, added up over evaluations.
 *
 * A traced run waits for every step, so a step's time is its own, the wait for the slowest worker
 * included. Bytes and products are computed, not counted: they are what the step must do, however
 * well it does it. A program may go through different lists for different batches; steps are told
 * apart by their name and layer, in the order in which they came.
 */
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"

struct session_trace {
    lace_trace_row *rows;
    size_t n_rows, capacity;
};

void session_trace_free(session_trace *t)
{
    if (!t)
        return;
    mem_free(t->rows);
    mem_free(t);
}

/* The row of a step, searched from *at on; a new one at the end if it is not there. NULL without
 * memory. */
static lace_trace_row *find_row(session_trace *t, const program_step *s, size_t *at)
{
    for (size_t i = *at; i < t->n_rows; i++)
        if (t->rows[i].layer == s->layer && strcmp(t->rows[i].operation, s->name) == 0) {
            *at = i + 1;
            return &t->rows[i];
        }
    if (t->n_rows == t->capacity) {
        size_t more = t->capacity ? 2 * t->capacity : 256;
        lace_trace_row *grown = mem_realloc(t->rows, more * sizeof *grown);
        if (!grown)
            return NULL;
        t->rows = grown;
        t->capacity = more;
    }
    lace_trace_row *row = &t->rows[t->n_rows++];
    *row = (lace_trace_row){.operation = s->name, .layer = s->layer};
    *at = t->n_rows;
    return row;
}

lace_status session_trace_add(session_trace *t, const program *p, const batch *b, lace_error *err)
{
    size_t at = 0;
    for (int32_t i = 0; t && i < program_n_steps(p); i++) {
        program_step s = program_step_at(p, i, b);
        lace_trace_row *row = find_row(t, &s, &at);
        if (!row)
            return error_nomem(err, "a trace");
        row->n_calls++;
        row->ns += s.ns;
        row->n_bytes += s.n_bytes;
        row->n_macs += s.n_products;
    }
    return LACE_OK;
}

lace_status lace_session_trace(lace_session *s, bool is_on, lace_error *err)
{
    session_trace_free(s->trace);
    s->trace = is_on ? mem_calloc(1, sizeof *s->trace) : NULL;
    return is_on && !s->trace ? error_nomem(err, "a trace") : LACE_OK;
}

size_t lace_session_trace_rows(const lace_session *s, lace_trace_row *rows, size_t capacity)
{
    size_t n = s->trace ? s->trace->n_rows : 0;
    if (n && capacity)
        memcpy(rows, s->trace->rows, (n < capacity ? n : capacity) * sizeof *rows);
    return n;
}
