/*
 * Where workers wait for each other, and where values live.
 *
 * Steps between two barriers form a phase: workers may be in any of its steps at the same time. A
 * value is alive from the phase that first writes it to the phase that last touches it; values that
 * are never alive in the same phase may share memory.
 */
#include "plan/plan.h"

static bool uses_state(const step *s)
{
    return op_describe(s->op)->state != OP_NO_STATE;
}

/* True if the later step must not begin before the earlier one has ended on all workers. */
static bool depends(const step *later, const step *earlier)
{
    for (int i = 0; i < STEP_MAX_OUT; i++) {
        int32_t made = earlier->out[i].root, makes = later->out[i].root;
        if (made >= 0 && (step_reads(later, made) || step_writes(later, made)))
            return true;
        if (makes >= 0 && step_reads(earlier, makes))
            return true;
    }
    return uses_state(later) && uses_state(earlier);
}

static bool may_be_computed_later(const step *s)
{
    return s->op == OP_RMS_NORM || s->op == OP_LAYER_NORM || s->op == OP_GLU || s->op == OP_PICK;
}

/* Sets skips_barrier and, in each value, the phases of its life. */
static void find_phases(plan *p, bool (*also)(const step *, const step *))
{
    for (int32_t v = 0; v < p->n_values; v++) {
        p->values[v].first = INT32_MAX;
        p->values[v].last = -1;
    }
    int32_t phase = 0, phase_begin = 0;
    for (int32_t i = 0; i < p->n_steps; i++) {
        step *s = &p->steps[i];
        bool waits = false;
        for (int32_t j = phase_begin; j < i && !waits; j++)
            waits = depends(s, &p->steps[j]) || (also && also(s, &p->steps[j]));
        if (waits) {
            phase++;
            phase_begin = i;
        }
        if (i > 0)
            p->steps[i - 1].skips_barrier = !waits;
        for (int j = 0; j < STEP_MAX_IN + STEP_MAX_OUT; j++) {
            int32_t v = j < STEP_MAX_IN ? s->in[j].root : s->out[j - STEP_MAX_IN].root;
            if (v < 0)
                continue;
            int32_t last = phase;
            if (j < STEP_MAX_IN && may_be_computed_later(s))
                last += p->kept_phases;
            if (phase < p->values[v].first)
                p->values[v].first = phase;
            if (last > p->values[v].last)
                p->values[v].last = last;
        }
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        if (p->values[v].enters)
            p->values[v].first = 0;
        if (p->values[v].leaves)
            p->values[v].last = INT32_MAX;
    }
    const int32_t given[] = {p->logits, p->hidden};
    for (int i = 0; i < 2; i++)
        if (given[i] >= 0)
            p->values[plan_operand(p, given[i]).root].last = INT32_MAX;
}

static bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* The lowest offset that is free during the whole life of value v, among those already placed. */
static uint64_t find_place(const plan *p, int32_t v)
{
    const plan_value *x = &p->values[v];
    uint64_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int32_t i = 0; i < v; i++) {
            const plan_value *y = &p->values[i];
            if (y->last >= x->first && x->last >= y->first && y->n_bytes &&
                overlap(at, x->n_bytes, y->offset, y->n_bytes)) {
                at = y->offset + y->n_bytes;
                moved = true;
            }
        }
    }
    return at;
}

void plan_place_values(plan *p)
{
    p->value_bytes = 0;
    for (int32_t v = 0; v < p->n_values; v++) {
        plan_value *x = &p->values[v];
        int64_t rows = x->is_output ? p->limits.max_outputs : p->limits.max_tokens;
        rows *= x->row_factor;
        bool lies_elsewhere = x->last < 0 || (plan_crosses(x) && !p->has_copies);
        x->n_bytes = lies_elsewhere ? 0 : (uint64_t)rows * act_row_bytes(x->format, x->width);
        x->offset = x->n_bytes ? find_place(p, v) : 0;
        if (x->offset + x->n_bytes > p->value_bytes)
            p->value_bytes = x->offset + x->n_bytes;
    }
}

void plan_place(plan *p, bool (*also)(const step *later, const step *earlier))
{
    find_phases(p, also);
    plan_place_values(p);
}

static void locate(const plan *p, operand *o, const plan_memory *m)
{
    if (o->value < 0)
        return;
    const plan_value *root = &p->values[o->root];
    bool is_between = plan_crosses(root) && !p->has_copies;
    o->data = (is_between ? m->border + root->border : m->values + root->offset) +
              4 * (uint64_t)p->values[o->value].column;
}

void plan_locate(plan *p, const plan_memory *m)
{
    for (int32_t i = 0; i < p->n_steps; i++) {
        step *s = &p->steps[i];
        for (int j = 0; j < STEP_MAX_IN; j++)
            locate(p, &s->in[j], m);
        for (int j = 0; j < STEP_MAX_OUT; j++)
            locate(p, &s->out[j], m);
        if (op_describe(s->op)->state == OP_PAGES)
            s->kv.data = m->pages[s->kv.group];
        if (op_describe(s->op)->state == OP_RECURRENT)
            s->recurrent.data = m->slots[s->recurrent.device];
    }
}
