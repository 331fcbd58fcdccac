/*
 * The short convolution. Compiled once per CPU level (level.h).
 *
 * Workers share the channels, and lay their taps out anew: a row for each tap. Tokens of a sequence
 * that lie together read each other's rows; only the first ones read the state, and the last ones
 * leave their rows there.
 */
#include "backend/cpu/level.h"

#include <string.h>

#include "base/threads.h"
#include "backend/cpu/ops.h"

/* What stands k inputs behind the first of the state; a run's tokens follow the state. */
static const float *input_at(const step *s, const float *past, int64_t run, int64_t k)
{
    int64_t n_past = s->a.conv.n_taps - 1;
    return k < n_past ? past + k * s->out[0].width : operand_row(&s->in[0], run + k - n_past);
}

/* n channels of one token. taps: [n_taps, n]; x: [n_taps], each to the first channel. */
ALWAYS_INLINE vf sum_taps(const float *const *x, const float *taps, int64_t n, int n_taps, vf sum,
                          int64_t c)
{
    for (int k = 0; k < n_taps; k++)
        sum = v_fma(v_load(taps + k * n + c), v_load(x[k] + c), sum);
    return sum;
}

ALWAYS_INLINE vf sum_taps_of_some(const float *const *x, const float *taps, int64_t n, int n_taps,
                                  vf sum, int64_t c)
{
    for (int k = 0; k < n_taps; k++)
        sum = v_fma(v_load_n(taps + k * n + c, n - c), v_load_n(x[k] + c, n - c), sum);
    return sum;
}

static inline vf finish(vf sum, bool is_silu)
{
    return is_silu ? v_mul(sum, v_sigmoid(sum)) : sum;
}

ALWAYS_INLINE void conv_row(const float *const *x, const float *taps, const float *bias, int64_t n,
                            int n_taps, bool is_silu, float *y)
{
    int64_t c = 0;
    for (; c + VW <= n; c += VW)
        v_store(y + c, finish(sum_taps(x, taps, n, n_taps, bias ? v_load(bias + c) : v_set(0), c),
                              is_silu));
    if (c < n)
        v_store_n(y + c,
                  finish(sum_taps_of_some(x, taps, n, n_taps,
                                          bias ? v_load_n(bias + c, n - c) : v_set(0), c),
                         is_silu),
                  n - c);
}

/* Tokens [run, end) of one sequence, n channels from `begin` on. */
static void conv_run(const step *s, int64_t run, int64_t end, float *past, const float *taps,
                     int64_t begin, int64_t n)
{
    int n_taps = s->a.conv.n_taps;
    const float *bias = s->a.conv.bias ? s->a.conv.bias + begin : NULL;
    for (int64_t t = run; t < end; t++) {
        const float *x[CONV_MAX_TAPS];
        float *y = operand_row(&s->out[0], t) + begin;
        for (int k = 0; k < n_taps; k++)
            x[k] = input_at(s, past, run, t - run + k) + begin;
        if (n_taps == 4)
            conv_row(x, taps, bias, n, 4, s->a.conv.is_silu, y);
        else
            conv_row(x, taps, bias, n, n_taps, s->a.conv.is_silu, y);
    }
    for (int k = 0; k < n_taps - 1; k++)
        memmove(past + k * s->out[0].width + begin, input_at(s, past, run, end - run + k) + begin,
                (size_t)n * sizeof(float));
}

/* Taps of n channels, a row for each tap. */
ALWAYS_INLINE void lay_taps(const float *from, int64_t n, const int n_taps, float *taps)
{
    for (int64_t c = 0; c < n; c++)
        for (int k = 0; k < n_taps; k++)
            taps[k * n + c] = from[c * n_taps + k];
}

static void conv(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end;
    int n_taps = s->a.conv.n_taps;
    if (n_taps > CONV_MAX_TAPS) {
        conv_ref(s, b, w);
        return;
    }
    pool_share(s->out[0].width, 64, w->index, w->count, &begin, &end);
    float *taps = (float *)w->scratch;
    int64_t n = end - begin;
    if (n_taps == 4)
        lay_taps(s->a.conv.weight + begin * 4, n, 4, taps);
    else
        lay_taps(s->a.conv.weight + begin * n_taps, n, n_taps, taps);
    for (int64_t run = 0, last; run < b->n_tokens && n > 0; run = last) {
        for (last = run + 1; last < b->n_tokens && b->slots[last] == b->slots[run]; last++)
            ;
        float *past = (float *)(s->recurrent.data + s->recurrent.offset +
                                (uint64_t)b->slots[run] * s->recurrent.slot_bytes);
        conv_run(s, run, last, past, taps, begin, n);
    }
}

void FN(conv_use)(kernel_table *table)
{
    table->ops[OP_CONV] = conv;
}
