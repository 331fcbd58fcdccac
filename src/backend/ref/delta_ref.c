/*
 * The plain gated delta rule. Rows are taken in the order of the batch, each with the state of its
 * own sequence, so sequences may be mixed in any way. Workers share the columns of all heads.
 */
#include <math.h>

#include "base/numbers.h"
#include "base/threads.h"
#include "backend/ref/ref.h"

/* What makes the length of x 1. */
static double unit(const float *x, int64_t n)
{
    double sum = DELTA_EPS;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return 1 / sqrt(sum);
}

/* Columns [begin, end) of head h of token t. */
static void delta_columns(const step *s, const batch *b, int64_t t, int32_t h, int64_t begin,
                          int64_t end)
{
    int64_t k_dim = s->a.delta.k_dim, v_dim = s->a.delta.v_dim;
    int32_t n_keys = s->a.delta.n_key_heads, each = s->a.delta.n_heads / n_keys;
    int32_t key = s->a.delta.is_tiled ? h % n_keys : h / each;
    const float *row = operand_row(&s->in[0], t);
    const float *q = row + key * k_dim, *k = row + (n_keys + key) * k_dim;
    const float *v = row + 2 * n_keys * k_dim + h * v_dim;
    float *out = operand_row(&s->out[0], t) + h * v_dim;
    float *state = (float *)(s->recurrent.data + s->recurrent.offset +
                             (uint64_t)b->slots[t] * s->recurrent.slot_bytes) +
                   h * k_dim * v_dim;
    double z = (double)operand_row(&s->in[1], t)[h] + s->a.delta.bias[h];
    double decay = exp(s->a.delta.rate[h] * (z > 30 ? z : log1p(exp(z))));
    double beta = 1 / (1 + exp(-(double)operand_row(&s->in[2], t)[h]));
    double q_unit = unit(q, k_dim) / sqrt((double)k_dim), k_unit = unit(k, k_dim);
    for (int64_t c = begin; c < end; c++) {
        double seen = 0, sum = 0;
        for (int64_t i = 0; i < k_dim; i++)
            seen += k_unit * k[i] * decay * state[i * v_dim + c];
        double learned = beta * (v[c] - seen);
        for (int64_t i = 0; i < k_dim; i++) {
            double x = decay * state[i * v_dim + c] + k_unit * k[i] * learned;
            state[i * v_dim + c] = (float)x;
            sum += q_unit * q[i] * x;
        }
        out[c] = (float)sum;
    }
}

void delta_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end, v_dim = s->a.delta.v_dim;
    pool_share(s->out[0].width, 16, w->index, w->count, &begin, &end);
    for (int64_t t = 0; t < b->n_tokens; t++)
        for (int64_t at = begin; at < end; at = (at / v_dim + 1) * v_dim) {
            int64_t h = at / v_dim, last = min_i64(end, (h + 1) * v_dim);
            delta_columns(s, b, t, (int32_t)h, at - h * v_dim, last - h * v_dim);
        }
}
