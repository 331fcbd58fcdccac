/* delta: the state makes of one batch after the other what the rule makes of the whole text. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "checkkernels.h"

enum { MAX_TOKENS = 150, N_SLOTS = 3, MAX_DIM = 128 };

typedef struct heads {
    int32_t n_heads, n_key_heads, k_dim, v_dim;
    bool is_tiled;
} heads;

static double unit(const float *x, int n)
{
    double sum = 1e-6;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return 1 / sqrt(sum);
}

/* One head of all tokens of a slot, in double from the first to the last. */
static void whole_text(const step *s, const int32_t *slots, int n_tokens, int32_t slot, int32_t h,
                       const operand *out)
{
    static double state[MAX_DIM][MAX_DIM];
    int32_t k_dim = s->a.delta.k_dim, v_dim = s->a.delta.v_dim, n_keys = s->a.delta.n_key_heads;
    int32_t key = s->a.delta.is_tiled ? h % n_keys : h * n_keys / s->a.delta.n_heads;
    memset(state, 0, sizeof state);
    for (int t = 0; t < n_tokens; t++) {
        if (slots[t] != slot)
            continue;
        const float *q = check_row(&s->in[0], t) + key * k_dim, *k = q + n_keys * k_dim;
        const float *v = check_row(&s->in[0], t) + 2 * n_keys * k_dim + h * v_dim;
        double a = check_row(&s->in[1], t)[h], b = check_row(&s->in[2], t)[h];
        double decay = exp(s->a.delta.rate[h] * log(1 + exp(a + s->a.delta.bias[h])));
        double of_q = unit(q, k_dim) / sqrt(k_dim), of_k = unit(k, k_dim);
        for (int c = 0; c < v_dim; c++) {
            double seen = 0, sum = 0;
            for (int i = 0; i < k_dim; i++)
                seen += of_k * k[i] * (state[i][c] *= decay);
            for (int i = 0; i < k_dim; i++) {
                state[i][c] += of_k * k[i] * (v[c] - seen) / (1 + exp(-b));
                sum += of_q * q[i] * state[i][c];
            }
            check_row(out, t)[h * v_dim + c] = (float)sum;
        }
    }
}

static step make_step(const heads *d, int n_tokens)
{
    step s = {.op = OP_DELTA,
              .in = {check_operand(ACT_F32, 2 * d->n_key_heads * d->k_dim + d->n_heads * d->v_dim,
                                   n_tokens),
                     check_operand(ACT_F32, d->n_heads, n_tokens),
                     check_operand(ACT_F32, d->n_heads, n_tokens)}};
    for (int i = 0; i < 3; i++)
        for (int t = 0; t < n_tokens; t++)
            check_fill_f32(check_row(&s.in[i], t), s.in[i].width, CHECK_NORMAL);
    float *rate = check_alloc((uint64_t)d->n_heads * 4),
          *bias = check_alloc((uint64_t)d->n_heads * 4);
    for (int h = 0; h < d->n_heads; h++) {
        rate[h] = -check_random_f32(0.01f, h % 3 == 2 ? 12.0f : 1.0f); /* some forget at once */
        bias[h] = check_random_f32(-3.0f, 1.0f);
    }
    s.a.delta.rate = rate;
    s.a.delta.bias = bias;
    s.a.delta.n_heads = d->n_heads;
    s.a.delta.n_key_heads = d->n_key_heads;
    s.a.delta.k_dim = d->k_dim;
    s.a.delta.v_dim = d->v_dim;
    s.a.delta.is_tiled = d->is_tiled;
    s.recurrent.n_bytes = delta_state_bytes(d->n_heads, d->k_dim, d->v_dim);
    s.recurrent.offset = 64;
    s.recurrent.slot_bytes = (64 + s.recurrent.n_bytes + 63) & ~(uint64_t)63;
    s.recurrent.data = check_alloc(N_SLOTS * s.recurrent.slot_bytes);
    memset(s.recurrent.data, 0, N_SLOTS * s.recurrent.slot_bytes);
    return s;
}

/* An operand's rows from this one on. */
static operand rows_from(const operand *o, int from)
{
    operand rows = *o;
    rows.data += (uint64_t)from * o->stride;
    return rows;
}

static void check_shape_of(kernel_fn fn, const heads *d, int n_workers)
{
    int n_tokens = check_random_int(1, MAX_TOKENS), longest = check_random_int(1, MAX_TOKENS);
    check_shape("%d heads of %d, keys %d of %d, %s, tokens %d workers %d", d->n_heads, d->v_dim,
                d->n_key_heads, d->k_dim, d->is_tiled ? "tiled" : "grouped", n_tokens, n_workers);
    int32_t slots[MAX_TOKENS];
    step s = make_step(d, n_tokens);
    operand want = check_operand(ACT_F32, (int64_t)d->n_heads * d->v_dim, n_tokens);
    operand got = check_operand_copy(&want, n_tokens);
    for (int t = 0; t < n_tokens; t++) /* tokens of a sequence lie together, mostly */
        slots[t] =
            t > 0 && check_random_int(0, 30) ? slots[t - 1] : check_random_int(0, N_SLOTS - 1);
    for (int32_t h = 0; h < d->n_heads; h++)
        for (int32_t slot = 0; slot < N_SLOTS; slot++)
            whole_text(&s, slots, n_tokens, slot, h, &want);
    for (int t = 0, n; t < n_tokens; t += n) {
        n = check_random_int(1, n_tokens - t < longest ? n_tokens - t : longest);
        batch b = {.n_tokens = n, .slots = slots + t};
        step part = s;
        for (int i = 0; i < 3; i++)
            part.in[i] = rows_from(&s.in[i], t);
        part.out[0] = rows_from(&got, t);
        check_run(fn, &part, &b, n_workers, 0);
    }
    /* Sums of up to 128 products, and a state that is rounded with every token: (1e-6)^2. */
    check_rows("out", &want, &got, n_tokens, 1e-12);
}

static void bench(kernel_fn fn)
{
    static const int n_tokens[] = {1, 512};
    heads d = {.n_heads = 32, .n_key_heads = 16, .k_dim = 128, .v_dim = 128};
    for (int i = 0; i < 2; i++) {
        int32_t slots[512] = {0};
        char what[64];
        snprintf(what, sizeof what, "32 heads of 128, %d tokens", n_tokens[i]);
        check_shape("%s", what);
        step s = make_step(&d, n_tokens[i]);
        s.out[0] = check_operand(ACT_F32, 32 * 128, n_tokens[i]);
        batch b = {.n_tokens = n_tokens[i], .slots = slots};
        double state = (double)s.recurrent.n_bytes;
        check_bench_step(what, fn, &s, &b, 0,
                         (check_rate){.n_bytes = i ? 0 : 2 * state,
                                      .n_macs = 3.0 * 32 * 128 * 128 * n_tokens[i]});
    }
}

/* Not against the plain version, but against the rule in double: so that one is checked too. */
void check_delta(const kernel_table *ref, const kernel_table *table)
{
    static const heads shapes[] = {{2, 1, 16, 16, false},  {4, 2, 12, 12, false},
                                   {6, 3, 12, 20, true},   {3, 3, 1, 5, false},
                                   {2, 2, 128, 128, true}, {4, 2, 33, 96, true}};
    kernel_fn fn = table->ops[OP_DELTA];
    if (!check_begin("delta", NULL, CHECK_FN(fn)))
        return;
    if (check_is_bench())
        bench(fn);
    for (int i = 0; i < 6 && !check_is_bench(); i++)
        for (int n = 1; n <= CHECK_MAX_WORKERS; n++)
            for (int again = 0; again < (check_is_quick() ? 1 : 4); again++)
                check_shape_of(fn, &shapes[i], n);
    check_end();
}
