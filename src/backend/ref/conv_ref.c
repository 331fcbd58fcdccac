/*
 * The plain short convolution. Rows are taken in the order of the batch, each with the state of its
 * own sequence, so sequences may be mixed in any way. Workers share the channels.
 */
#include <math.h>

#include "base/threads.h"
#include "backend/ref/ref.h"

/* Channel c of one token, whose state is then one input further. past: [n_taps - 1, width] */
static float conv_channel(const step *s, int64_t c, float x, float *past)
{
    int64_t width = s->out[0].width, n_past = s->a.conv.n_taps - 1;
    const float *taps = s->a.conv.weight + c * s->a.conv.n_taps;
    double sum = s->a.conv.bias ? s->a.conv.bias[c] : 0;
    for (int64_t k = 0; k < n_past; k++)
        sum += (double)taps[k] * past[k * width + c];
    for (int64_t k = 0; k + 1 < n_past; k++)
        past[k * width + c] = past[(k + 1) * width + c];
    past[(n_past - 1) * width + c] = x;
    sum += (double)taps[n_past] * x;
    return (float)(s->a.conv.is_silu ? sum / (1 + exp(-sum)) : sum);
}

void conv_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end;
    pool_share(s->out[0].width, 16, w->index, w->count, &begin, &end);
    for (int64_t t = 0; t < b->n_tokens; t++) {
        const float *x = operand_row(&s->in[0], t);
        float *y = operand_row(&s->out[0], t);
        float *past = (float *)(s->recurrent.data + s->recurrent.offset +
                                (uint64_t)b->slots[t] * s->recurrent.slot_bytes);
        for (int64_t c = begin; c < end; c++)
            y[c] = conv_channel(s, c, x[c], past);
    }
}
