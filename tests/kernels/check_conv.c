/* conv: the state makes of one batch after the other what a sum over the whole text is. */
#include <math.h>
#include <string.h>

#include "checkkernels.h"

enum { MAX_TOKENS = 21, N_SLOTS = 3 };

/* What comes out for token t: the sum over the tokens of its slot up to it, with zeros before. */
static float whole_sum(const step *s, const operand *in, const int32_t *slots, int t, int64_t c)
{
    int32_t n_taps = s->a.conv.n_taps, k = n_taps - 1;
    double sum = s->a.conv.bias ? s->a.conv.bias[c] : 0;
    for (int from = t; from >= 0 && k >= 0; from--)
        if (slots[from] == slots[t])
            sum += (double)s->a.conv.weight[c * n_taps + k--] * check_row(in, from)[c];
    return (float)(s->a.conv.is_silu ? sum / (1 + exp(-sum)) : sum);
}

static step make_step(int64_t width, int32_t n_taps, bool has_bias, bool is_silu)
{
    step s = {.op = OP_CONV};
    float *taps = check_alloc((uint64_t)width * (uint64_t)n_taps * 4);
    float *bias = check_alloc((uint64_t)width * 4);
    check_fill_f32(taps, width * n_taps, CHECK_NORMAL);
    check_fill_f32(bias, width, CHECK_NORMAL);
    s.a.conv.weight = taps;
    s.a.conv.bias = has_bias ? bias : NULL;
    s.a.conv.n_taps = n_taps;
    s.a.conv.is_silu = is_silu;
    s.recurrent.n_bytes = conv_state_bytes(width, n_taps);
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

static void check_shape_of(kernel_fn fn, int64_t width, int32_t n_taps, int n_workers)
{
    int n_tokens = check_random_int(1, MAX_TOKENS);
    check_shape("%d channels, %d taps, tokens %d workers %d", (int)width, n_taps, n_tokens,
                n_workers);
    int32_t slots[MAX_TOKENS];
    operand in = check_operand(ACT_F32, width, n_tokens);
    operand want = check_operand(ACT_F32, width, n_tokens);
    operand got = check_operand_copy(&want, n_tokens);
    step s = make_step(width, n_taps, n_workers != 2, check_random_int(0, 1));
    for (int t = 0; t < n_tokens; t++) {
        slots[t] =
            t > 0 && check_random_int(0, 2) ? slots[t - 1] : check_random_int(0, N_SLOTS - 1);
        check_fill_f32(check_row(&in, t), width, CHECK_NORMAL);
    }
    for (int t = 0; t < n_tokens; t++)
        for (int64_t c = 0; c < width; c++)
            check_row(&want, t)[c] = whole_sum(&s, &in, slots, t, c);
    for (int t = 0, n; t < n_tokens; t += n) {
        n = check_random_int(1, n_tokens - t);
        batch b = {.n_tokens = n, .slots = slots + t};
        s.in[0] = rows_from(&in, t);
        s.out[0] = rows_from(&got, t);
        check_run(fn, &s, &b, n_workers, 0);
    }
    /* Sums of a few products, in another order: a bit or two of a float, (1.2e-7)^2. */
    check_rows("out", &want, &got, n_tokens, 1e-12);
}

/* Not against the plain version, but against the sum written out: so that one is checked too. */
void check_conv(const kernel_table *ref, const kernel_table *table)
{
    static const int64_t widths[] = {1, 16, 37, 200};
    kernel_fn fn = table->ops[OP_CONV];
    if (!check_begin("conv", NULL, CHECK_FN(fn)))
        return;
    for (int i = 0; i < 4; i++)
        for (int32_t n_taps = 2; n_taps <= 5; n_taps++)
            for (int n = 1; n <= CHECK_MAX_WORKERS; n++)
                check_shape_of(fn, widths[i], n_taps, n);
    check_end();
}
