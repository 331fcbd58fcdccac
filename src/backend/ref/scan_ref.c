/*
 * The plain state space. Rows are taken in the order of the batch, each with the state of its own
 * sequence, so sequences may be mixed in any way. Workers share the heads.
 */
#include <math.h>

#include "base/threads.h"
#include "backend/ref/ref.h"

/* One head of one token. state: [n_state, head_dim] */
static void scan_head(const step *s, int64_t t, int64_t head, float *state)
{
    int64_t n = s->a.scan.n_state, dim = s->a.scan.head_dim;
    int64_t group = head / (s->a.scan.n_heads / s->a.scan.n_groups);
    const float *x = operand_row(&s->in[0], t) + head * dim;
    const float *b = operand_row(&s->in[1], t) + group * n;
    const float *c = operand_row(&s->in[2], t) + group * n;
    float *y = operand_row(&s->out[0], t) + head * dim;
    double raw = (double)operand_row(&s->in[3], t)[head] + s->a.scan.dt_bias[head];
    double dt = fmax(raw, 0) + log1p(exp(-fabs(raw)));
    dt = fmin(fmax(dt, s->a.scan.dt_min), s->a.scan.dt_max);
    double decay = exp(dt * s->a.scan.a[head]);
    for (int64_t p = 0; p < dim; p++) {
        double sum = (double)s->a.scan.d[head] * x[p];
        for (int64_t i = 0; i < n; i++) {
            float *at = &state[i * dim + p];
            *at = (float)(decay * *at + dt * b[i] * x[p]);
            sum += (double)c[i] * *at;
        }
        y[p] = (float)sum;
    }
}

void scan_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end, floats = (int64_t)s->a.scan.n_state * s->a.scan.head_dim;
    pool_share(s->a.scan.n_heads, 1, w->index, w->count, &begin, &end);
    for (int64_t t = 0; t < b->n_tokens; t++) {
        float *state = (float *)(s->recurrent.data + s->recurrent.offset +
                                 (uint64_t)b->slots[t] * s->recurrent.slot_bytes);
        for (int64_t head = begin; head < end; head++)
            scan_head(s, t, head, state + head * floats);
    }
}
