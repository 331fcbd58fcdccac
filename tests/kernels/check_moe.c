/* route by every rule, and the experts that it chooses: moe_glu, moe_down. */
#include <math.h>
#include <string.h>

#include "checkkernels.h"

/* ---- route ----------------------------------------------------------------------------------- */

/* The rules that models have; bias and scales are filled in. */
static const struct {
    const char *name;
    int n_experts, n_used;
    bool has_bias, has_scales;
    route_rule rule;
} routers[] = {
    {"softmax", 60, 4, false, false, {0}},
    {"softmax, normed", 128, 8, false, false, {.norms = true}},
    {"softmax, bias, floor", 64, 6, true, false, {.norms = true, .norm_least = 0.3f}},
    {"softmax, best groups",
     24,
     3,
     false,
     false,
     {.n_groups = 6, .n_groups_used = 2, .n_ranking = 1, .factor = 16}},
    {"sigmoid, bias",
     256,
     8,
     true,
     false,
     {.scores = ROUTE_SIGMOID, .norms = true, .norm_more = 1e-20f, .factor = 2.5f}},
    {"sigmoid, groups by two",
     256,
     8,
     true,
     false,
     {.scores = ROUTE_SIGMOID,
      .n_groups = 8,
      .n_groups_used = 4,
      .n_ranking = 2,
      .norms = true,
      .norm_more = 0.5f,
      .factor = 2.5f}},
    {"sigmoid, one", 16, 1, false, false, {.scores = ROUTE_SIGMOID}},
    {"softmax, scales", 40, 4, false, true, {.norms = true}},
    {"mixer", 16, 2, false, false, {.scores = ROUTE_MIXER, .jitter = 0.2f}},
    {"all of them", 7, 7, true, true, {.norms = true}},
};

static double key_of(const route_rule *r, const float *logits, int n, int e)
{
    double sum = 0;
    if (r->scores == ROUTE_SIGMOID)
        return 1 / (1 + exp(-(double)logits[e])) + (r->bias ? r->bias[e] : 0);
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i]);
    return exp((double)logits[e]) / sum + (r->bias ? r->bias[e] : 0);
}

/* What a group is ranked by, computed another way: by sorting. */
static double rank_of(const route_rule *r, const float *logits, int n, int group)
{
    int size = n / r->n_groups;
    double best = -INFINITY;
    for (int i = group * size; i < (group + 1) * size; i++)
        for (int j = group * size; j < (group + 1) * size; j++) {
            double sum = key_of(r, logits, n, i);
            sum += r->n_ranking == 2 ? key_of(r, logits, n, j) : 0;
            best = (i != j || r->n_ranking == 1) && sum > best ? sum : best;
        }
    return best;
}

/* Whether expert e may be chosen: fewer groups than are used stand before its own. */
static bool may_choose(const route_rule *r, const float *logits, int n, int e)
{
    if (r->n_groups <= 1)
        return true;
    int own = e / (n / r->n_groups), before = 0;
    for (int g = 0; g < r->n_groups; g++)
        before += rank_of(r, logits, n, g) > rank_of(r, logits, n, own);
    return before < r->n_groups_used;
}

/* No expert that was left may be better than one that was chosen, and the best come first. */
static void check_order(const route_rule *r, const float *logits, int n, int n_used,
                        const expert_choice *got)
{
    for (int k = 0; k < n_used; k++) {
        double key = key_of(r, logits, n, got[k].expert);
        check_true(may_choose(r, logits, n, got[k].expert), "it is of a group that is used");
        for (int e = 0; e < n; e++) {
            bool is_before = false;
            for (int j = 0; j <= k && !is_before; j++)
                is_before = got[j].expert == e;
            check_true(is_before || !may_choose(r, logits, n, e) ||
                           key_of(r, logits, n, e) <= key + 1e-6,
                       "nobody better is left");
        }
    }
}

/* The sum of weights without factor and scales: 1, or less by what stands in the divisor. */
static void check_sum(const route_rule *r, const float *logits, int n_used,
                      const expert_choice *got)
{
    double sum = 0, divided = 0;
    for (int k = 0; k < n_used; k++)
        divided += got[k].weight / (r->factor != 0 ? r->factor : 1);
    for (int k = 0; k < n_used && r->scores == ROUTE_SIGMOID; k++)
        sum += 1 / (1 + exp(-(double)logits[got[k].expert]));
    if (r->norms && r->scores == ROUTE_SIGMOID)
        check_true(fabs(divided - sum / (sum + r->norm_more)) < 1e-5, "the sum is divided by more");
    else if (r->norms)
        check_true(divided < 1 + 1e-5 && (r->norm_least > 0 || divided > 1 - 1e-5),
                   "weights sum up");
}

static void check_choices(const operand *want, const operand *got, int64_t n_rows, int n_used)
{
    for (int64_t t = 0; t < n_rows; t++) {
        const expert_choice *a = (const expert_choice *)check_row(want, t);
        const expert_choice *b = (const expert_choice *)check_row(got, t);
        for (int k = 0; k < n_used; k++) {
            /* A GPU's exp is off by 1e-7 of itself, and so is each of a sum. */
            float most = check_is_gpu() ? 1e-5f : 0;
            check_true(a[k].expert == b[k].expert, "the same expert");
            check_true(fabsf(a[k].weight - b[k].weight) <= most * fabsf(a[k].weight),
                       "the same weight");
        }
    }
}

/* SparseMixer by hand: near ones share, others do not. */
static void check_mixer(kernel_fn fn)
{
    check_shape("mixer by hand");
    step s = {.op = OP_ROUTE, .in = {check_operand(ACT_F32, 4, 1)}};
    float *x = check_row(&s.in[0], 0);
    x[0] = 1.0f, x[1] = 0.95f, x[2] = -3.0f, x[3] = 0.5f;
    s.out[0] = check_operand(ACT_F32, 4, 1);
    s.a.moe.n_experts = 4;
    s.a.moe.n_used = 2;
    s.a.moe.rule = (route_rule){.scores = ROUTE_MIXER, .jitter = 0.05f};
    batch b = {.n_tokens = 1};
    check_run(fn, &s, &b, 1, 0);
    const expert_choice *c = (const expert_choice *)check_row(&s.out[0], 0);
    check_true(c[0].expert == 0 && fabsf(c[0].weight - 1 / (1 + expf(-0.05f))) < 1e-6f,
               "the first shares with one that is near");
    check_true(c[1].expert == 1 && c[1].weight == 1, "the second has nobody near");
}

static void check_route(const kernel_table *ref, const kernel_table *table)
{
    kernel_fn fn = table->ops[OP_ROUTE];
    if (!check_begin("route", NULL, CHECK_FN(fn)))
        return;
    for (size_t i = 0; i < sizeof routers / sizeof routers[0]; i++)
        for (int n_workers = 1; n_workers <= CHECK_MAX_WORKERS; n_workers++) {
            int n = routers[i].n_experts, n_used = routers[i].n_used;
            int n_rows = check_random_int(1, 9);
            check_shape("%s, rows %d workers %d", routers[i].name, n_rows, n_workers);
            step s = {.op = OP_ROUTE, .in = {check_operand(ACT_F32, n, n_rows)}};
            float *bias = check_alloc(4 * (uint64_t)n), *scales = check_alloc(4 * (uint64_t)n);
            check_fill_f32(bias, n, CHECK_NORMAL);
            check_fill_f32(scales, n, CHECK_NORMAL);
            s.a.moe.n_experts = n;
            s.a.moe.n_used = n_used;
            s.a.moe.rule = routers[i].rule;
            s.a.moe.rule.bias = routers[i].has_bias ? bias : NULL;
            s.a.moe.rule.scales = routers[i].has_scales ? scales : NULL;
            for (int r = 0; r < n_rows; r++)
                check_fill_f32(check_row(&s.in[0], r), n, CHECK_NORMAL);
            batch b = {.n_tokens = n_rows};
            operand want = check_operand(ACT_F32, 2 * n_used, n_rows);
            operand got = check_operand_copy(&want, n_rows);
            s.out[0] = want;
            check_run(ref->ops[OP_ROUTE], &s, &b, 1, 0);
            s.out[0] = got;
            check_run(fn, &s, &b, n_workers, 0);
            check_choices(&want, &got, n_rows, n_used);
            for (int r = 0; r < n_rows && s.a.moe.rule.scores != ROUTE_MIXER; r++) {
                const float *logits = check_row(&s.in[0], r);
                const expert_choice *c = (const expert_choice *)check_row(&got, r);
                check_order(&s.a.moe.rule, logits, n, n_used, c);
                if (!s.a.moe.rule.scales)
                    check_sum(&s.a.moe.rule, logits, n_used, c);
            }
        }
    check_mixer(fn);
    check_end();
}

/* ---- Experts --------------------------------------------------------------------------------- */

enum { EXPERTS = 5, USED = 2, N_IN = 64, N_OUT = 48 };

/* EXPERTS matrices of f32 that lie one after the other. */
static weight *random_experts(const kernel_table *table, int n_rows, int n_cols)
{
    weight *w = check_alloc(EXPERTS * sizeof *w);
    float *data = check_alloc(4 * (uint64_t)(EXPERTS * n_rows * n_cols));
    check_fill_f32(data, EXPERTS * n_rows * n_cols, CHECK_NORMAL);
    for (int e = 0; e < EXPERTS; e++)
        w[e] = (weight){.type = DTYPE_F32,
                        .n_rows = n_rows,
                        .n_cols = n_cols,
                        .n_bytes = 4 * (uint64_t)(n_rows * n_cols),
                        .data = (const uint8_t *)(data + e * n_rows * n_cols),
                        .impl = table->in_place[DTYPE_F32]};
    return w;
}

static float *random_rows(operand *o, int n_rows)
{
    for (int r = 0; r < n_rows; r++)
        check_fill_f32(check_row(o, r), o->width, CHECK_NORMAL);
    return check_row(o, 0);
}

static double dot(const weight *w, int row, const float *x)
{
    const float *at = (const float *)(const void *)w->data + (int64_t)row * w->n_cols;
    double sum = 0;
    for (int64_t i = 0; i < w->n_cols; i++)
        sum += (double)at[i] * x[i];
    return sum;
}

/* What comes out of one row of one choice, by the words of step.h. */
static double plain_glu(const step *s, const expert_choice *c, const float *x, int row)
{
    double by = s->a.moe.weighs_inputs ? c->weight : 1;
    double up =
        by * dot(&s->a.moe.up[c->expert], row, x) + s->a.moe.up_bias[c->expert * N_OUT + row];
    float one = 1, out, u = (float)up, g = u;
    if (s->a.moe.gate)
        g = (float)(by * dot(&s->a.moe.gate[c->expert], row, x) +
                    s->a.moe.gate_bias[c->expert * N_OUT + row]);
    s->a.moe.glu_row(s->a.moe.glu, &g, s->a.moe.gate ? &u : &one, 1, &out);
    return out;
}

static void choose_randomly(const operand *o, int n_tokens)
{
    for (int t = 0; t < n_tokens; t++) {
        expert_choice *c = (expert_choice *)check_row(o, t);
        c[0] = (expert_choice){check_random_int(0, EXPERTS - 1), check_random_f32(0.1f, 2)};
        c[1] = (expert_choice){(c[0].expert + check_random_int(1, EXPERTS - 1)) % EXPERTS, 0.5f};
    }
}

static void check_glu_experts(const kernel_table *table, int n_tokens, int n_workers, bool has_gate,
                              bool weighs, glu_kind kind)
{
    check_shape("glu: tokens %d workers %d%s%s kind %d", n_tokens, n_workers,
                has_gate ? "" : " no gate", weighs ? " weighed" : "", (int)kind);
    step s = {.op = OP_MOE_GLU, .in = {check_operand(ACT_F32, N_IN, n_tokens)}};
    s.in[1] = check_operand(ACT_F32, 2 * USED, n_tokens);
    random_rows(&s.in[0], n_tokens);
    choose_randomly(&s.in[1], n_tokens);
    float *bias = check_alloc(4 * 2 * EXPERTS * N_OUT);
    check_fill_f32(bias, 2 * EXPERTS * N_OUT, CHECK_NORMAL);
    s.a.moe.n_experts = EXPERTS;
    s.a.moe.n_used = USED;
    s.a.moe.gate = has_gate ? random_experts(table, N_OUT, N_IN) : NULL;
    s.a.moe.gate_bias = has_gate ? bias + EXPERTS * N_OUT : NULL;
    s.a.moe.up = random_experts(table, N_OUT, N_IN);
    s.a.moe.up_bias = bias;
    s.a.moe.weighs_inputs = weighs;
    s.a.moe.glu = kind;
    s.a.moe.glu_row = table->glu_row;
    s.out[0] = check_operand(ACT_F32, N_OUT, n_tokens * USED);
    operand want = check_operand_copy(&s.out[0], n_tokens * USED);
    batch b = {.n_tokens = n_tokens};
    check_run(table->ops[OP_MOE_GLU], &s, &b, n_workers, 0);
    for (int i = 0; i < n_tokens * USED; i++)
        for (int row = 0; row < N_OUT; row++)
            check_row(&want, i)[row] = (float)plain_glu(
                &s, (const expert_choice *)check_row(&s.in[1], i / USED) + i % USED,
                check_row(&s.in[0], i / USED), row);
    /* Sums of 64 products in f32: 1e-7 of the largest, squared; the square of a ReLU doubles it. */
    check_rows("out", &want, &s.out[0], n_tokens * USED, 1e-12);
}

/* makes: what was there before does not count. */
static void check_down_experts(const kernel_table *table, int n_tokens, int n_workers, bool weighs,
                               bool makes)
{
    check_shape("down: tokens %d workers %d%s%s", n_tokens, n_workers, weighs ? " weighed" : "",
                makes ? " made" : "");
    step s = {.op = OP_MOE_DOWN, .in = {check_operand(ACT_F32, N_IN, n_tokens * USED)}};
    s.in[1] = check_operand(ACT_F32, 2 * USED, n_tokens);
    random_rows(&s.in[0], n_tokens * USED);
    choose_randomly(&s.in[1], n_tokens);
    s.a.moe.n_experts = EXPERTS;
    s.a.moe.n_used = USED;
    s.a.moe.down = random_experts(table, N_OUT, N_IN);
    s.a.moe.weighs_inputs = weighs;
    s.a.moe.makes = makes;
    s.a.moe.scale = 0.7f;
    s.out[0] = check_operand(ACT_F32, N_OUT, n_tokens);
    random_rows(&s.out[0], n_tokens);
    operand want = check_operand_copy(&s.out[0], n_tokens);
    batch b = {.n_tokens = n_tokens};
    check_run(table->ops[OP_MOE_DOWN], &s, &b, n_workers, 0);
    for (int t = 0; makes && t < n_tokens; t++)
        memset(check_row(&want, t), 0, N_OUT * sizeof(float));
    for (int i = 0; i < n_tokens * USED; i++) {
        const expert_choice *c = (const expert_choice *)check_row(&s.in[1], i / USED) + i % USED;
        for (int row = 0; row < N_OUT; row++)
            check_row(&want, i / USED)[row] +=
                (float)(0.7 * (weighs ? 1 : c->weight) *
                        dot(&s.a.moe.down[c->expert], row, check_row(&s.in[0], i)));
    }
    check_rows("out", &want, &s.out[0], n_tokens, 1e-12);
}

static void check_experts(const kernel_table *table)
{
    if (!check_begin("moe", NULL, CHECK_FN(table->glu_row)))
        return;
    for (int n_tokens = 1; n_tokens < 12; n_tokens += 5)
        for (int n = 1; n <= CHECK_MAX_WORKERS; n++)
            for (int weighs = 0; weighs < 2; weighs++) {
                check_glu_experts(table, n_tokens, n, true, weighs, GLU_SILU);
                check_glu_experts(table, n_tokens, n, false, weighs, GLU_RELU2);
                check_glu_experts(table, n_tokens, n, false, weighs, GLU_GELU);
                check_down_experts(table, n_tokens, n, weighs, false);
                check_down_experts(table, n_tokens, n, weighs, true);
            }
    check_end();
}

void check_moe(const kernel_table *ref, const kernel_table *table)
{
    check_route(ref, table);
    if (!check_is_gpu())
        check_experts(table);
}
