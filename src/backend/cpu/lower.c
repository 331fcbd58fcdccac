/* Lowering for the CPU. */
#include "backend/cpu/lower.h"

#include "backend/cpu/columns.h"
#include "backend/cpu/latents_cpu.h"
#include "base/mem.h"
#include "base/numbers.h"

/* ---- Forms of activations -------------------------------------------------------------------- */

/* A value in the forms that were made of it so far; -1: not yet. */
typedef struct forms {
    int32_t quantized, rotated, dropped;
    const sparsity_rule *sparsity; /* that `dropped` was made by */
} forms;

static const forms none = {-1, -1, -1, NULL};

typedef struct lowering {
    plan *p;
    forms *of; /* [values before, and two more for each step] */
} lowering;

/* Adds a step that makes a value of x in another form; returns the value, -1 without memory. */
static int32_t make_form(plan *p, op o, int32_t x, act_format format)
{
    const plan_value v = p->values[x];
    int32_t made = plan_add_value(p, format, v.width, v.is_output);
    step *s = plan_append(p, o);
    if (!s || made < 0)
        return -1;
    s->is_output = v.is_output;
    s->row_factor = p->values[made].row_factor = v.row_factor;
    s->in[0] = plan_operand(p, x);
    s->out[0] = plan_operand(p, made);
    return made;
}

/* x in the form that a kernel reads; quantized once, however many matrices want it. */
static int32_t as_format(lowering *l, int32_t x, act_format format)
{
    if (x < 0 || l->p->values[x].format == format)
        return x;
    bool is_rotated = format == ACT_ROTATED_Q8;
    int32_t *made = is_rotated ? &l->of[x].rotated : &l->of[x].quantized;
    if (*made < 0)
        *made = make_form(l->p, is_rotated ? OP_ROTATE_QUANTIZE : OP_QUANTIZE, x, format);
    return *made;
}

/* x in the form that the kernel of a weight reads, without what its sparsity leaves out. */
static int32_t as_input(lowering *l, int32_t x, const weight *w)
{
    act_format format = w->impl->act;
    if (!w->sparsity)
        return as_format(l, x, format);
    /*
     * Quantizing drops small ones on the way; what is to be rotated loses them before, and what is measured
     * too: so its floats can be looked at.
     */
    bool quantizes = format == ACT_Q8 && !w->sparsity->in_batches;
    act_format form = quantizes ? ACT_Q8 : ACT_F32;
    int32_t made = l->of[x].sparsity == w->sparsity ? l->of[x].dropped : -1;
    if (made < 0 || l->p->values[made].format != form) {
        made = make_form(l->p, quantizes ? OP_QUANTIZE : OP_DROP_SMALL, x, form);
        if (made < 0)
            return -1;
        l->p->steps[l->p->n_steps - 1].sparsity = w->sparsity;
        l->of[x].dropped = made;
        l->of[x].sparsity = w->sparsity;
    }
    return as_format(l, made, format);
}

/* A value changes, and with it its slices. */
static void forget_forms(lowering *l, int32_t root)
{
    l->of[root] = none;
    for (int32_t v = 0; v < l->p->n_values; v++)
        if (l->p->values[v].of == root)
            l->of[v] = none;
}

/* Takes a step of the plan over, behind what its input needs. */
static void take_step(lowering *l, const step *from)
{
    op_weight w[OP_MAX_WEIGHTS];
    int n = step_weights(from, w);
    step s = *from;
    l->p->layer = s.layer;
    if (n > 0 && s.op != OP_MATMUL_HEADS) { /* which brings its rows into form itself */
        int32_t x = as_input(l, s.in[0].value, w[0].w);
        if (x < 0)
            return;
        s.in[0] = plan_operand(l->p, x);
    }
    for (int i = 0; i < STEP_MAX_OUT; i++)
        if (s.out[i].value >= 0)
            forget_forms(l, s.out[i].root);
    step *to = plan_append(l->p, s.op);
    if (to)
        *to = s;
}

static void add_forms(plan *p)
{
    lowering l = {.p = p};
    step *steps = p->steps;
    int32_t n_steps = p->n_steps, n_forms = p->n_values + 2 * n_steps;
    p->steps = NULL;
    p->n_steps = p->steps_capacity = 0;
    l.of = mem_alloc((size_t)n_forms * sizeof *l.of + 1);
    if (!l.of)
        p->status = LACE_E_NOMEM;
    for (int32_t v = 0; l.of && v < n_forms; v++)
        l.of[v] = none;
    for (int32_t i = 0; l.of && i < n_steps; i++)
        take_step(&l, &steps[i]);
    p->layer = -1;
    mem_free_all(l.of, steps);
}

/* ---- Fusion ---------------------------------------------------------------------------------- */

/* rms_norm, quantize -> rms_norm_quantize */
static int fuse_norm_quantize(plan *p, step *s, int32_t left)
{
    if (left < 2 || s[0].op != OP_RMS_NORM || s[1].op != OP_QUANTIZE || s[0].a.norm.is_wide ||
        !plan_feeds_only(p, &s[0], &s[1], 0))
        return 0;
    s[0].op = OP_RMS_NORM_QUANTIZE;
    s[0].out[0] = s[1].out[0];
    s[0].sparsity = s[1].sparsity;
    return 1;
}

/*
 * collect, quantize -> quantize, collect: ranks give each other bytes, not floats, if only a matrix
 * reads them and no block of 32 is cut. What is in a block is the same on one rank as on all.
 */
static int quantize_before_collect(plan *p, step *s, int32_t left)
{
    enum { ONE_READ_AND_ONE_SLICE = 3 };
    if (left < 2 || s[0].op != OP_COLLECT || s[1].op != OP_QUANTIZE || s[1].sparsity ||
        s[1].in[0].value != s[0].out[0].value || s[0].in[0].format != ACT_F32 ||
        p->values[s[0].out[0].value].n_reads != ONE_READ_AND_ONE_SLICE ||
        divide_up(s[0].out[0].width, s[0].a.collect.n_units) % 32 != 0)
        return 0;
    const plan_value x = p->values[s[0].out[0].value];
    int32_t part = plan_add_value(p, ACT_Q8, s[0].in[0].width, x.is_output);
    if (part < 0)
        return 0;
    p->values[part].row_factor = x.row_factor;
    step collect = s[0];
    s[0] = s[1];
    s[0].in[0] = collect.in[0];
    collect.out[0] = s[0].out[0];
    s[0].out[0] = collect.in[0] = plan_operand(p, part);
    s[1] = collect;
    return 0;
}

/* rms_norm, drop_small -> rms_norm that drops small ones */
static int fuse_norm_drop(plan *p, step *s, int32_t left)
{
    if (left < 2 || s[0].op != OP_RMS_NORM || s[1].op != OP_DROP_SMALL ||
        !plan_feeds_only(p, &s[0], &s[1], 0))
        return 0;
    s[0].out[0] = s[1].out[0];
    s[0].sparsity = s[1].sparsity;
    return 1;
}

/* Values that nobody reads but the step that drops small ones are changed where they are. */
static void drop_in_place(plan *p)
{
    for (int32_t i = 0; i < p->n_steps; i++) {
        step *s = &p->steps[i];
        if (s->op != OP_DROP_SMALL || p->values[s->in[0].value].n_reads != 1 ||
            s->in[0].root != s->in[0].value)
            continue;
        int32_t from = s->out[0].value;
        for (int32_t k = i; k < p->n_steps; k++)
            for (int j = 0; j < STEP_MAX_IN; j++)
                if (p->steps[k].in[j].value == from)
                    p->steps[k].in[j] = s->in[0];
        s->out[0] = s->in[0];
    }
}

/* ---- Joins ----------------------------------------------------------------------------------- */

static bool has_columns(const step *s)
{
    return step_is_matmul(s) && columns_can(s);
}

bool step_uses_sums(const step *s)
{
    return s->op == OP_MATMUL_JOIN || has_columns(s);
}

/* All such steps keep their sums in the same place. */
static bool share_sums(const step *later, const step *earlier)
{
    return step_uses_sums(later) && step_uses_sums(earlier);
}

/*
 * A matrix step whose weights lie in columns leaves sums of parts, and the step behind it makes the
 * products of them. With more than one token it does nothing.
 */
static void add_joins(plan *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_steps; i++)
        n += has_columns(&p->steps[i]);
    if (n == 0)
        return;
    step *steps = mem_alloc((size_t)(p->n_steps + n) * sizeof *steps);
    if (!steps) {
        p->status = LACE_E_NOMEM;
        return;
    }
    n = 0;
    for (int32_t i = 0; i < p->n_steps; i++) {
        const step *s = &p->steps[i];
        steps[n++] = *s;
        if (!has_columns(s))
            continue;
        step *join = &steps[n++];
        *join = *s;
        join->op = OP_MATMUL_JOIN;
        join->a.matmul.joins = s->op;
        for (int k = 0; k < STEP_MAX_IN; k++)
            join->in[k].value = -1;
    }
    mem_free(p->steps);
    p->steps = steps;
    p->n_steps = p->steps_capacity = n;
}

/* The level's own functions that steps call: for gates, and for rows of heads. */
static void set_functions(plan *p, const kernel_table *table)
{
    for (int32_t i = 0; i < p->n_steps; i++) {
        step *s = &p->steps[i];
        if (step_is_matmul(s))
            s->a.matmul.glu_row = table->glu_row;
        else if (s->op == OP_MATMUL_HEADS)
            s->a.heads.form = heads_form(table, s->a.heads.weights->impl->act);
        else if (step_has_weights(s))
            s->a.moe.glu_row = table->glu_row;
    }
}

void cpu_lower(plan *p, const kernel_table *table)
{
    add_forms(p);
    if (p->status != LACE_OK)
        return;
    plan_count_reads(p);
    plan_rewrite(p, quantize_before_collect);
    plan_rewrite(p, fuse_norm_quantize);
    plan_rewrite(p, fuse_norm_drop);
    plan_fuse(p);
    drop_in_place(p);
    set_functions(p, table);
    latents_prepare(p, table);
    add_joins(p);
    if (p->status == LACE_OK)
        plan_place(p, share_sums);
}
