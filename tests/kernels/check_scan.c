/* scan: the state makes of one batch after the other what a sum over the whole text is. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "checkkernels.h"

enum { MAX_TOKENS = 200, N_SLOTS = 3 };

typedef struct scan_shape {
    int32_t n_heads, head_dim, n_groups, n_state;
} scan_shape;

/* The operands of a whole text. */
typedef struct text {
    int n;
    int32_t slots[MAX_TOKENS];
    operand in[4], want, got;
} text;

static double time_step(const step *s, const operand *dt, int t, int head)
{
    double raw = log1p(exp((double)check_row(dt, t)[head] + s->a.scan.dt_bias[head]));
    return fmin(fmax(raw, s->a.scan.dt_min), s->a.scan.dt_max);
}

/*
 * What comes out for token t: the sum over the tokens of its slot up to it, each with what b and c
 * have in common and what is left of it after the steps in between.
 */
static void whole_sums(const step *s, const text *x, int t, int head)
{
    int dim = s->a.scan.head_dim, n = s->a.scan.n_state;
    int group = head / (s->a.scan.n_heads / s->a.scan.n_groups);
    double out[256] = {0}, left = 1;
    for (int from = t; from >= 0; from--) {
        if (x->slots[from] != x->slots[t])
            continue;
        double dt = time_step(s, &x->in[3], from, head), common = 0;
        for (int i = 0; i < n; i++)
            common += (double)check_row(&x->in[1], from)[group * n + i] *
                      check_row(&x->in[2], t)[group * n + i];
        for (int p = 0; p < dim; p++)
            out[p] += left * common * dt * check_row(&x->in[0], from)[head * dim + p];
        left *= exp(dt * s->a.scan.a[head]);
    }
    for (int p = 0; p < dim; p++)
        check_row(&x->want, t)[head * dim + p] =
            (float)(out[p] + (double)s->a.scan.d[head] * check_row(&x->in[0], t)[head * dim + p]);
}

static step make_step(const scan_shape *of)
{
    step s = {.op = OP_SCAN};
    int32_t n = of->n_heads;
    float *a = check_alloc(4 * (uint64_t)n), *d = check_alloc(4 * (uint64_t)n);
    float *bias = check_alloc(4 * (uint64_t)n);
    check_fill_f32(d, n, CHECK_NORMAL);
    check_fill_f32(bias, n, CHECK_NORMAL);
    for (int h = 0; h < n; h++)
        a[h] = -check_random_f32(0.01f, 2);
    s.a.scan.a = a;
    s.a.scan.d = d;
    s.a.scan.dt_bias = bias;
    s.a.scan.dt_min = 0.05f;
    s.a.scan.dt_max = 1.5f;
    s.a.scan.n_heads = n;
    s.a.scan.head_dim = of->head_dim;
    s.a.scan.n_groups = of->n_groups;
    s.a.scan.n_state = of->n_state;
    s.recurrent.n_bytes = scan_state_bytes(n, of->head_dim, of->n_state);
    s.recurrent.offset = 64;
    s.recurrent.slot_bytes = (64 + s.recurrent.n_bytes + 63) & ~(uint64_t)63;
    s.recurrent.data = check_alloc(N_SLOTS * s.recurrent.slot_bytes);
    memset(s.recurrent.data, 0, N_SLOTS * s.recurrent.slot_bytes);
    return s;
}

/* Tokens of a slot come alone, or many together. */
static text make_text(const scan_shape *of)
{
    text x = {.n = check_random_int(1, MAX_TOKENS)};
    int64_t width = of->n_heads * of->head_dim, states = of->n_groups * of->n_state;
    int64_t widths[] = {width, states, states, of->n_heads};
    for (int i = 0; i < 4; i++) {
        x.in[i] = check_operand(ACT_F32, widths[i], x.n);
        for (int t = 0; t < x.n; t++)
            check_fill_f32(check_row(&x.in[i], t), widths[i], CHECK_NORMAL);
    }
    int together = check_random_int(0, 1) ? 9 : 150;
    for (int t = 0; t < x.n; t++)
        x.slots[t] = t && check_random_int(0, together) ? x.slots[t - 1] : check_random_int(0, 2);
    x.want = check_operand(ACT_F32, width, x.n);
    x.got = check_operand_copy(&x.want, x.n);
    return x;
}

/* An operand's rows from this one on. */
static operand rows_from(const operand *o, int from)
{
    operand rows = *o;
    rows.data += (uint64_t)from * o->stride;
    return rows;
}

static void check_shape_of(kernel_fn fn, const scan_shape *of, int n_workers)
{
    check_shape("%d heads of %d, %d groups, states %d, workers %d", of->n_heads, of->head_dim,
                of->n_groups, of->n_state, n_workers);
    step s = make_step(of);
    text x = make_text(of);
    for (int t = 0; t < x.n; t++)
        for (int head = 0; head < of->n_heads; head++)
            whole_sums(&s, &x, t, head);
    for (int t = 0, n; t < x.n; t += n) {
        n = check_random_int(1, x.n - t);
        batch b = {.n_tokens = n, .slots = x.slots + t};
        for (int i = 0; i < 4; i++)
            s.in[i] = rows_from(&x.in[i], t);
        s.out[0] = rows_from(&x.got, t);
        check_run(fn, &s, &b, n_workers, 0);
    }
    /* Sums of tens of products, in another order and with rounding after every token. */
    check_rows("out", &x.want, &x.got, x.n, check_is_gpu() ? 1e-10 : 1e-11);
}

static void bench(kernel_fn fn, int n_tokens)
{
    static const scan_shape of = {48, 64, 1, 128};
    int32_t slots[512] = {0};
    char what[64];
    check_shape("bench");
    step s = make_step(&of);
    int64_t widths[] = {48 * 64, 128, 128, 48};
    for (int i = 0; i < 4; i++) {
        s.in[i] = check_operand(ACT_F32, widths[i], n_tokens);
        for (int t = 0; t < n_tokens; t++)
            check_fill_f32(check_row(&s.in[i], t), widths[i], CHECK_NORMAL);
    }
    s.out[0] = check_operand(ACT_F32, widths[0], n_tokens);
    batch b = {.n_tokens = n_tokens, .slots = slots};
    snprintf(what, sizeof what, "48 heads of 64, states 128, tokens %d", n_tokens);
    check_bench_step(what, fn, &s, &b, 0,
                     (check_rate){.n_bytes = 2.0 * (double)s.recurrent.n_bytes,
                                  .n_macs = 3.0 * 48 * 64 * 128 * n_tokens});
}

/* Not against the plain version, but against the sum written out: so that one is checked too. */
void check_scan(const kernel_table *ref, const kernel_table *table)
{
    static const scan_shape shapes[] = {{1, 1, 1, 1},   {3, 16, 1, 16},  {4, 8, 2, 5},
                                        {2, 37, 2, 7},  {5, 64, 1, 6},   {6, 24, 3, 32},
                                        {2, 100, 1, 9}, {2, 64, 1, 128}, {2, 40, 2, 200}};
    kernel_fn fn = table->ops[OP_SCAN];
    if (!check_begin("scan", NULL, CHECK_FN(fn)))
        return;
    if (check_is_bench()) {
        bench(fn, 1);
        bench(fn, 512);
    } else {
        for (int i = 0; i < 9; i++)
            for (int n = 1; n <= CHECK_MAX_WORKERS; n++)
                check_shape_of(fn, &shapes[i], n);
    }
    check_end();
}
