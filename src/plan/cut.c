/* A plan for one of several ranks. */
#include "plan/cut.h"

#include "base/mem.h"
#include "plan/build.h"
#include "tensor/sparse.h"

/* ---- Units ----------------------------------------------------------------------------------- */

enum { UNIT_COLUMNS = 32 };

static bool is_norm(op o)
{
    return o == OP_RMS_NORM || o == OP_LAYER_NORM;
}

/* What a step wants of the values that it reads, where nobody behind it wants something else. */
static void add_wishes(const step *s, int64_t *wish)
{
    int64_t n = 0, out = s->out[0].value >= 0 ? wish[s->out[0].value] : 0;
    int n_in = 1;
    if (s->op == OP_ATTEND || s->op == OP_KV_WRITE) {
        n = s->kv.n_total;
        n_in = s->op == OP_ATTEND ? 1 : 2;
    } else if (is_norm(s->op) && s->a.norm.group < s->in[0].width) {
        n = out ? out : s->in[0].width / s->a.norm.group;
    } else if (s->op == OP_PICK) {
        n = out;
    } else if (s->op == OP_GLU) {
        n = out;
        n_in = 2;
    }
    for (int i = 0; i < n_in; i++) {
        int32_t v = s->in[i].value;
        if (v >= 0 && wish[v] == 0 && n > 0 && s->in[i].width % n == 0)
            wish[v] = n;
    }
}

/* Whether every rank gets whole rows of such units, and sparse matrices whole panels. */
static bool can_divide(const weight *w, int64_t n, const rank_shares *shares)
{
    int64_t total = weight_total(w), unit = n > 0 ? divide_up(total, n) : 0;
    return n >= shares->n_ranks && (n - 1) * unit < total && !w->sparsity &&
           !(dtype_is_sparse(w->type) && unit % SPARSE_PANEL != 0);
}

/* A router of few rows is computed by everybody: that takes less time than an exchange. */
static bool is_small(const weight *w)
{
    return 8 * weight_total(w) <= w->n_cols;
}

static int64_t matrix_units(const step *s, const rank_shares *shares, const int64_t *wish)
{
    op_weight w[OP_MAX_WEIGHTS];
    int n_weights = step_weights(s, w);
    if (n_weights == 0 || (s->op != OP_MATMUL && !step_has_experts(s)))
        return 0;
    int64_t wanted = wish[s->out[0].value];
    int64_t tries[] = {wanted,
                       is_small(w[0].w) ? 0 : divide_up(weight_total(w[0].w), UNIT_COLUMNS)};
    for (int i = 0; i < 2; i++) {
        bool can = true;
        for (int k = 0; k < n_weights; k++)
            can = can && can_divide(w[k].w, tries[i], shares);
        if (can)
            return tries[i];
    }
    return 0;
}

lace_status plan_units(const plan *p, const rank_shares *shares, int64_t *units, lace_error *err)
{
    int64_t *wish = mem_calloc((size_t)p->n_values + 1, sizeof *wish);
    if (!wish)
        return error_nomem(err, "a plan");
    for (int32_t i = p->n_steps - 1; i >= 0; i--) {
        add_wishes(&p->steps[i], wish);
        units[i] = matrix_units(&p->steps[i], shares, wish);
    }
    mem_free(wish);
    return LACE_OK;
}

/* ---- Cutting --------------------------------------------------------------------------------- */

typedef struct cutting {
    plan *p;
    ranks *r;
    int64_t *units;  /* [values] into how many units its columns are divided; 0: all are here */
    int32_t *slices; /* [values] this rank's columns, in units of: */
    int64_t *slice_units;
    step s; /* the step that is being taken over */
} cutting;

static int64_t begin_of(const cutting *c, int64_t width, int64_t n_units)
{
    return rank_column(&c->r->shares, width, n_units, c->r->shares.rank);
}

static int64_t end_of(const cutting *c, int64_t width, int64_t n_units)
{
    return rank_column(&c->r->shares, width, n_units, c->r->shares.rank + 1);
}

/* This rank's columns of a value, as an operand: always the same one, so that steps can be fused. */
static operand own(cutting *c, operand o, int64_t n_units)
{
    int64_t begin = begin_of(c, o.width, n_units), end = end_of(c, o.width, n_units);
    if (c->slice_units[o.value] != n_units) {
        c->slices[o.value] = plan_slice(c->p, o.value, begin, end - begin);
        c->slice_units[o.value] = n_units;
    }
    return c->p->status == LACE_OK ? plan_operand(c->p, c->slices[o.value]) : o;
}

/* Bytes that the largest part of any rank takes. */
static uint64_t largest_part(const cutting *c, const step *s)
{
    const rank_shares *h = &c->r->shares;
    const plan_limits *l = &c->p->limits;
    int64_t most = 0, rows = (s->is_output ? l->max_outputs : l->max_tokens) * s->row_factor;
    for (int32_t k = 0; k < h->n_ranks; k++)
        most = max_i64(most, rank_column(h, s->out[0].width, s->a.collect.n_units, k + 1) -
                                 rank_column(h, s->out[0].width, s->a.collect.n_units, k));
    return 4 * (uint64_t)rows * (uint64_t)most;
}

/* All columns of a value, on this rank too. */
static void collect(cutting *c, int32_t root, bool at_first)
{
    int64_t n = c->units[root];
    if (n == 0 || c->p->status != LACE_OK)
        return;
    operand whole = plan_operand(c->p, root), mine = own(c, whole, n);
    step *s = plan_append(c->p, OP_COLLECT);
    if (!s)
        return;
    s->is_output = c->p->values[root].is_output;
    s->row_factor = c->p->values[root].row_factor;
    s->in[0] = mine;
    s->out[0] = plan_operand(c->p, root);
    s->a.collect.ranks = c->r;
    s->a.collect.n_units = n;
    s->a.collect.at_first = at_first;
    uint64_t bytes = largest_part(c, s);
    c->p->exchange_bytes = bytes > c->p->exchange_bytes ? bytes : c->p->exchange_bytes;
    c->units[root] = 0;
}

/* The units of an operand; one that is a slice of a divided value is made whole. */
static int64_t units_of(cutting *c, const operand *o)
{
    if (o->value < 0)
        return 0;
    if (o->value != o->root)
        collect(c, o->root, false);
    return c->units[o->root];
}

/* All that the step reads, and what it changes, is here. */
static void make_whole(cutting *c)
{
    for (int i = 0; i < STEP_MAX_IN; i++)
        if (c->s.in[i].value >= 0)
            collect(c, c->s.in[i].root, false);
    for (int i = 0; i < STEP_MAX_OUT; i++)
        if (c->s.out[i].value >= 0)
            collect(c, c->s.out[i].root, false);
}

/* The step makes, or changes, this rank's columns of what comes out. */
static void cut_output(cutting *c, int64_t n_units)
{
    c->units[c->s.out[0].root] = n_units;
    c->s.out[0] = own(c, c->s.out[0], n_units);
}

/* An operand that is divided in the same way, or whole, is cut; another is made whole first. */
static void cut_input(cutting *c, int i, int64_t n_units)
{
    operand *o = &c->s.in[i];
    if (units_of(c, o) != n_units)
        collect(c, o->root, false);
    *o = own(c, *o, n_units);
}

static const float *behind(const float *vector, int64_t n)
{
    return vector ? vector + n : NULL;
}

/* Matrices of which this rank has some rows. */
static bool cut_matrices(cutting *c)
{
    step *s = &c->s;
    op_weight w[OP_MAX_WEIGHTS];
    if (step_weights(s, w) == 0 || w[0].w->n_units == 0)
        return false;
    int64_t n = w[0].w->n_units, begin = begin_of(c, weight_total(w[0].w), n);
    bool adds = s->op == OP_MOE_DOWN && !s->a.moe.makes;
    for (int i = 0; i < STEP_MAX_IN; i++)
        if (s->in[i].value >= 0)
            collect(c, s->in[i].root, false);
    if (adds && units_of(c, &s->out[0]) != n)
        collect(c, s->out[0].root, false);
    if (s->op == OP_MATMUL) {
        s->a.matmul.biases[0] = behind(s->a.matmul.biases[0], begin);
    } else {
        s->a.moe.gate_bias = behind(s->a.moe.gate_bias, begin);
        s->a.moe.up_bias = behind(s->a.moe.up_bias, begin);
        s->a.moe.down_bias = behind(s->a.moe.down_bias, begin);
    }
    cut_output(c, n);
    return true;
}

/* act(gate) * up of columns that both have. */
static bool cut_glu(cutting *c)
{
    step *s = &c->s;
    int64_t gate = units_of(c, &s->in[0]), up = units_of(c, &s->in[1]);
    int64_t n = up ? up : gate, width = s->out[0].width;
    if (n == 0 || (s->in[1].value >= 0 && s->in[0].width != width) || (gate && up && gate != up))
        return false;
    cut_input(c, 0, n);
    if (s->in[1].value >= 0)
        cut_input(c, 1, n);
    cut_output(c, n);
    return true;
}

/* x += y of the columns of y. */
static bool cut_add(cutting *c)
{
    step *s = &c->s;
    int64_t n = units_of(c, &s->in[0]);
    if (n == 0 || s->out[0].value != s->out[0].root)
        return false;
    if (units_of(c, &s->out[0]) != n)
        collect(c, s->out[0].root, false);
    cut_input(c, 0, n);
    cut_output(c, n);
    return true;
}

/* A step that changes columns where they are, each by itself or within `group` of them. */
static bool cut_in_place(cutting *c, int64_t group)
{
    step *s = &c->s;
    int64_t n = units_of(c, &s->out[0]);
    if (n == 0 || s->out[0].width % n != 0 || s->out[0].width / n % group != 0)
        return false;
    if (s->in[0].value >= 0)
        collect(c, s->in[0].root, false);
    cut_output(c, n);
    if (s->op == OP_ROPE)
        s->a.rope.n_heads = (int32_t)(s->out[0].width / s->a.rope.head_dim);
    return true;
}

/* A step that makes columns of as many units, of `group` columns of its input each. */
static bool cut_groups(cutting *c, int64_t group)
{
    step *s = &c->s;
    int64_t n = units_of(c, &s->in[0]), width = s->in[0].width;
    if (n == 0 || group == width || width % n != 0 || width / n % group != 0)
        return false;
    if (is_norm(s->op) && s->a.norm.is_wide) {
        s->a.norm.weight = behind(s->a.norm.weight, begin_of(c, width, n));
        s->a.norm.bias = behind(s->a.norm.bias, begin_of(c, width, n));
    }
    cut_input(c, 0, n);
    cut_output(c, n);
    return true;
}

/*
 * Heads that share keys stay together: kernels take their rows at a time, and which ones they take
 * decides the order of sums. So where there are fewer key heads than ranks, everybody has all.
 */
static bool cut_heads(cutting *c)
{
    step *s = &c->s;
    int64_t n = s->kv.n_total;
    if (n == 0)
        return false;
    cut_input(c, 0, n);
    if (s->op == OP_KV_WRITE) {
        cut_input(c, 1, n);
        return true;
    }
    int64_t heads = s->a.attend.n_heads, begin = begin_of(c, heads, n);
    s->a.attend.sinks = behind(s->a.attend.sinks, begin);
    s->a.attend.n_heads = (int32_t)(end_of(c, heads, n) - begin);
    cut_output(c, n);
    return true;
}

static bool cut_step(cutting *c)
{
    switch (c->s.op) {
    case OP_MATMUL:
    case OP_MOE_GLU:
    case OP_MOE_DOWN:
        return cut_matrices(c);
    case OP_GLU:
        return cut_glu(c);
    case OP_ADD:
        return cut_add(c);
    case OP_XIELU:
    case OP_TEMPERATURE:
    case OP_SOFTCAP:
        return cut_in_place(c, 1);
    case OP_ROPE:
        return cut_in_place(c, c->s.a.rope.head_dim);
    case OP_RMS_NORM:
    case OP_LAYER_NORM:
        return cut_groups(c, c->s.a.norm.group);
    case OP_PICK:
        return cut_groups(c, c->s.a.pick.stride);
    case OP_KV_WRITE:
    case OP_ATTEND:
        return cut_heads(c);
    default:
        return false;
    }
}

void plan_cut(plan *p, ranks *r)
{
    cutting c = {.p = p, .r = r};
    step *steps = p->steps;
    int32_t n_steps = p->n_steps;
    size_t n_values = (size_t)p->n_values + 1;
    if (!(c.units = mem_calloc(n_values, sizeof *c.units)) ||
        !(c.slices = mem_calloc(n_values, sizeof *c.slices)) ||
        !(c.slice_units = mem_calloc(n_values, sizeof *c.slice_units))) {
        p->status = LACE_E_NOMEM;
        mem_free_all(c.units, c.slices);
        return;
    }
    p->steps = NULL;
    p->n_steps = p->steps_capacity = 0;
    for (int32_t i = 0; i < n_steps && p->status == LACE_OK; i++) {
        c.s = steps[i];
        p->layer = c.s.layer;
        if (!cut_step(&c))
            make_whole(&c);
        step *to = plan_append(p, c.s.op);
        if (to)
            *to = c.s;
    }
    p->layer = -1;
    if (p->hidden >= 0)
        collect(&c, p->hidden, false);
    if (p->logits >= 0)
        collect(&c, p->logits, true);
    mem_free_all(c.units, c.slices, c.slice_units, steps);
}
