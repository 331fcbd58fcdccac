/*
 * The gated delta rule. Compiled once per CPU level (level.h).
 *
 * Few tokens of a sequence are taken one after the other: the state S is read twice, the second
 * time from the first cache. Many are taken in chunks, by small matrix products. With the decays
 * d[i] of a chunk's tokens, D[i][j] = d[j + 1] ... d[i] and c[i] = d[0] ... d[i], the rule is
 *
 *     learned[i] = beta[i] (v[i] - c[i] k[i] S - sum over j < i of D[i][j] (k[i] k[j]) learned[j])
 *     out[i] = c[i] q[i] S + sum over j <= i of D[i][j] (q[i] k[j]) learned[j]
 *     S = c[last] S + sum over j of D[last][j] k[j] learned[j]
 *
 * where the first line is solved from the first token to the last (Yang, Wang, Zhang, Shen and Kim,
 * "Parallelizing Linear Transformers with the Delta Rule over Sequence Length", 2024). All factors
 * are at most 1, and nothing is divided.
 */
#include "backend/cpu/level.h"

#include <math.h>
#include <string.h>

#include "base/numbers.h"
#include "base/threads.h"
#include "backend/cpu/ops.h"

/* The columns of one head that a worker has, and the scratch that it computes them in. */
typedef struct head {
    const step *s;
    int32_t h, key;
    int64_t from, n_cols; /* columns */
    float *state;         /* [k_dim] rows of the columns, v_dim apart */
    int64_t k_stride;     /* of k and q */
    int64_t v_stride;     /* of learned */
    float *k, *q;         /* [DELTA_CHUNK, k_stride] of length 1 */
    float *k_columns;     /* [k_stride, DELTA_CHUNK] */
    float *kk,
        *qk;       /* [DELTA_CHUNK, DELTA_CHUNK] k[i] k[j] and q[i] k[j], times what stands above */
    float *decays; /* [DELTA_CHUNK] D[i][j] of the token i being looked at */
    float *learned; /* [DELTA_CHUNK, v_stride] */
} head;

/* ---- Small products -------------------------------------------------------------------------- */

enum { SUM_ROWS = 4, SUM_VECS = VW == 8 ? 2 : 4 }; /* the sums fill the registers */

/* c = keep * c + a b. a: [n_rows, depth], b: [depth, n_cols]. With keep 0, c is not read. */
typedef struct product {
    const float *a, *b;
    float *c;
    int64_t a_stride, b_stride, c_stride;
    int64_t depth;
    float keep;
} product;

/* The first n of a vector. */
ALWAYS_INLINE vf load_some(const float *p, int64_t n)
{
    return n == VW ? v_load(p) : v_load_n(p, n);
}

ALWAYS_INLINE void store_some(float *p, vf x, int64_t n)
{
    if (n == VW)
        v_store(p, x);
    else
        v_store_n(p, x, n);
}

/* clang-format off: loops that are unrolled keep the look of loops */

/* n_rows by n_vecs vectors at row r and column i; `last` values of the last vector. */
ALWAYS_INLINE void sum_tile(int n_rows, int n_vecs, int64_t last, const product *p, int64_t r,
                            int64_t i)
{
    const float *a = p->a + r * p->a_stride, *b = p->b + i;
    float *c = p->c + r * p->c_stride + i;
    vf sums[SUM_ROWS * SUM_VECS];
    UNROLL for (int j = 0; j < n_rows; j++)
    {
        UNROLL for (int v = 0; v < n_vecs; v++) sums[j * n_vecs + v] =
            p->keep != 0 ? v_mul(v_set(p->keep), load_some(c + j * p->c_stride + v * VW,
                                                           v + 1 == n_vecs ? last : VW))
                         : v_set(0);
    }
    for (int64_t k = 0; k < p->depth; k++, b += p->b_stride) {
        vf x[SUM_VECS];
        UNROLL for (int v = 0; v < n_vecs; v++) x[v] =
            load_some(b + v * VW, v + 1 == n_vecs ? last : VW);
        UNROLL for (int j = 0; j < n_rows; j++)
        {
            vf y = v_set(a[j * p->a_stride + k]);
            UNROLL for (int v = 0; v < n_vecs; v++) sums[j * n_vecs + v] =
                v_fma(y, x[v], sums[j * n_vecs + v]);
        }
    }
    UNROLL for (int j = 0; j < n_rows; j++)
    {
        UNROLL for (int v = 0; v < n_vecs; v++) store_some(
            c + j * p->c_stride + v * VW, sums[j * n_vecs + v], v + 1 == n_vecs ? last : VW);
    }
}

/* clang-format on */

ALWAYS_INLINE void sum_rows(int n_rows, const product *p, int64_t r, int64_t n_cols)
{
    int64_t i = 0;
    for (; i + SUM_VECS * VW <= n_cols; i += SUM_VECS * VW)
        sum_tile(n_rows, SUM_VECS, VW, p, r, i);
    for (; i + VW <= n_cols; i += VW)
        sum_tile(n_rows, 1, VW, p, r, i);
    if (i < n_cols)
        sum_tile(n_rows, 1, n_cols - i, p, r, i);
}

static void multiply(product p, int64_t n_rows, int64_t n_cols)
{
    int64_t r = 0;
    for (; r + SUM_ROWS <= n_rows; r += SUM_ROWS)
        sum_rows(SUM_ROWS, &p, r, n_cols);
    for (; r < n_rows; r++)
        sum_rows(1, &p, r, n_cols);
}

/* y = y * keep + x * by */
static void add_row(float *y, float keep, const float *x, float by, int64_t n)
{
    for (int64_t i = 0; i < n; i += VW) {
        int64_t some = min_i64(n - i, VW);
        store_some(
            y + i,
            v_fma(v_set(by), load_some(x + i, some), v_mul(v_set(keep), load_some(y + i, some))),
            some);
    }
}

static void scale_row(float *y, float by, int64_t n)
{
    for (int64_t i = 0; i < n; i += VW) {
        int64_t some = min_i64(n - i, VW);
        store_some(y + i, v_mul(v_set(by), load_some(y + i, some)), some);
    }
}

/* ---- What a token brings --------------------------------------------------------------------- */

/* y = x, of this length; then zeros up to the stride. */
static void make_length(const float *x, int64_t n, float length, float *y, int64_t stride)
{
    memset(y + n, 0, (size_t)(stride - n) * sizeof(float));
    vd2 squares = vd2_zero();
    for (int64_t i = 0; i < n; i += VW)
        squares = vd2_add_square(squares, load_some(x + i, min_i64(n - i, VW)));
    vf by = v_set((float)((double)length / sqrt(vd2_sum(squares) + (double)DELTA_EPS)));
    for (int64_t i = 0; i < n; i += VW)
        store_some(y + i, v_mul(by, load_some(x + i, min_i64(n - i, VW))), min_i64(n - i, VW));
}

/* q and k of token t, as row i of the scratch. */
static void take_keys(const head *d, int64_t t, int64_t i)
{
    int64_t k_dim = d->s->a.delta.k_dim;
    const float *q = operand_row(&d->s->in[0], t) + d->key * k_dim;
    make_length(q, k_dim, 1.0f / sqrtf((float)k_dim), d->q + i * d->k_stride, d->k_stride);
    make_length(q + d->s->a.delta.n_key_heads * k_dim, k_dim, 1.0f, d->k + i * d->k_stride,
                d->k_stride);
}

static float decay_of(const head *d, int64_t t)
{
    float z = operand_row(&d->s->in[1], t)[d->h] + d->s->a.delta.bias[d->h];
    return expf(d->s->a.delta.rate[d->h] * (z > 30 ? z : log1pf(expf(z))));
}

static float beta_of(const head *d, int64_t t)
{
    return 1.0f / (1.0f + expf(-operand_row(&d->s->in[2], t)[d->h]));
}

static const float *values_of(const head *d, int64_t t)
{
    int64_t keys = 2 * (int64_t)d->s->a.delta.n_key_heads * d->s->a.delta.k_dim;
    return operand_row(&d->s->in[0], t) + keys + (int64_t)d->h * d->s->a.delta.v_dim + d->from;
}

static float *out_of(const head *d, int64_t t)
{
    return operand_row(&d->s->out[0], t) + (int64_t)d->h * d->s->a.delta.v_dim + d->from;
}

/* ---- One token ------------------------------------------------------------------------------- */

/* clang-format off */

/* n_vecs vectors of columns from i on; `last` values of the last one. */
ALWAYS_INLINE void step_columns_of(int n_vecs, int64_t last, const head *d, int64_t t, float decay, float beta,
                                   int64_t i)
{
    int64_t k_dim = d->s->a.delta.k_dim, v_dim = d->s->a.delta.v_dim;
    const float *v = values_of(d, t) + i;
    float *out = out_of(d, t) + i, *state = d->state + i;
    vf learned[SUM_VECS], sums[SUM_VECS], by = v_set(decay);
    UNROLL for (int j = 0; j < n_vecs; j++) learned[j] = sums[j] = v_set(0);
    for (int64_t k = 0; k < k_dim; k++) {
        vf x = v_set(d->k[k]);
        UNROLL for (int j = 0; j < n_vecs; j++)
            learned[j] = v_fma(x, load_some(state + k * v_dim + j * VW, j + 1 == n_vecs ? last : VW), learned[j]);
    }
    UNROLL for (int j = 0; j < n_vecs; j++)
        learned[j] = v_mul(v_set(beta), v_sub(load_some(v + j * VW, j + 1 == n_vecs ? last : VW), v_mul(by, learned[j])));
    for (int64_t k = 0; k < k_dim; k++) {
        vf x = v_set(d->k[k]), y = v_set(d->q[k]);
        UNROLL for (int j = 0; j < n_vecs; j++) {
            int64_t n = j + 1 == n_vecs ? last : VW;
            float *at = state + k * v_dim + j * VW;
            vf s = v_fma(x, learned[j], v_mul(by, load_some(at, n)));
            sums[j] = v_fma(y, s, sums[j]);
            store_some(at, s, n);
        }
    }
    UNROLL for (int j = 0; j < n_vecs; j++)
        store_some(out + j * VW, sums[j], j + 1 == n_vecs ? last : VW);
}

/* clang-format on */

static void take_one(const head *d, int64_t t)
{
    take_keys(d, t, 0);
    float decay = decay_of(d, t), beta = beta_of(d, t);
    int64_t i = 0;
    for (; i + SUM_VECS * VW <= d->n_cols; i += SUM_VECS * VW)
        step_columns_of(SUM_VECS, VW, d, t, decay, beta, i);
    for (; i + VW <= d->n_cols; i += VW)
        step_columns_of(1, VW, d, t, decay, beta, i);
    if (i < d->n_cols)
        step_columns_of(1, d->n_cols - i, d, t, decay, beta, i);
}

/* ---- A chunk --------------------------------------------------------------------------------- */

/* k of n tokens as columns; those of tokens up to a whole vector are 0. */
static void transpose_keys(const head *d, int64_t n)
{
    for (int64_t i = n; i % VW; i++)
        memset(d->k + i * d->k_stride, 0, (size_t)d->k_stride * sizeof(float));
    for (int64_t i = 0; i < n; i += VW)
        for (int64_t k = 0; k < d->k_stride; k += VW) {
            vf x[VW];
            for (int j = 0; j < VW; j++)
                x[j] = v_load(d->k + (i + j) * d->k_stride + k);
            v_transpose(x);
            for (int j = 0; j < VW; j++)
                v_store(d->k_columns + (k + j) * DELTA_CHUNK + i, x[j]);
        }
}

/*
 * D[i] of the chunk's token i from that of the token before it. What is too small to count is 0, before it
 * becomes so small that processors are slow with it.
 */
static void decay_further(const head *d, int64_t i, float decay)
{
    vf by = v_set(decay), least = v_set(0x1p-100f);
    for (int64_t j = 0; j < i; j += VW) {
        vf x = v_mul(by, v_load(d->decays + j));
        v_store(d->decays + j, v_select_less(x, least, v_set(0), x));
    }
    d->decays[i] = 1.0f;
}

/* Row i of k k and q k gets its factors; q k is 0 behind i, where sums of four rows read it. */
static void weigh_row(const head *d, int64_t i, float beta)
{
    float *kk = d->kk + i * DELTA_CHUNK, *qk = d->qk + i * DELTA_CHUNK;
    vf by = v_set(-beta);
    for (int64_t j = 0; j <= i; j += VW) {
        vf x = v_load(d->decays + j);
        v_store(kk + j, v_mul(by, v_mul(x, v_load(kk + j))));
        v_store(qk + j, v_mul(x, v_load(qk + j)));
    }
    for (int64_t j = i + 1; j % SUM_ROWS; j++)
        qk[j] = 0;
}

/* From k S, with what each token brings, to what is learned of it. */
static void learn(const head *d, int64_t n)
{
    for (int64_t at = 0; at < n; at += SUM_ROWS) {
        int64_t rows = min_i64(SUM_ROWS, n - at);
        multiply((product){.a = d->kk + at * DELTA_CHUNK,
                           .b = d->learned,
                           .c = d->learned + at * d->v_stride,
                           .a_stride = DELTA_CHUNK,
                           .b_stride = d->v_stride,
                           .c_stride = d->v_stride,
                           .depth = at,
                           .keep = 1},
                 rows, d->n_cols);
        for (int64_t i = at + 1; i < at + rows; i++)
            for (int64_t j = at; j < i; j++)
                add_row(d->learned + i * d->v_stride, 1, d->learned + j * d->v_stride,
                        d->kk[i * DELTA_CHUNK + j], d->n_cols);
    }
}

/* out += q k learned, four rows at a time: what lies behind a row's own token is 0. */
static void look_up(const head *d, int64_t t, int64_t n)
{
    int64_t out_stride = (int64_t)(d->s->out[0].stride / sizeof(float));
    for (int64_t at = 0; at < n; at += SUM_ROWS) {
        int64_t rows = min_i64(SUM_ROWS, n - at);
        multiply((product){.a = d->qk + at * DELTA_CHUNK,
                           .b = d->learned,
                           .c = out_of(d, t + at),
                           .a_stride = DELTA_CHUNK,
                           .b_stride = d->v_stride,
                           .c_stride = out_stride,
                           .depth = at + rows,
                           .keep = 1},
                 rows, d->n_cols);
    }
}

/* S = keep * S + k learned, where each token's k counts as much as is left of it at the end. */
static void remember(const head *d, int64_t n, float keep)
{
    int64_t k_dim = d->s->a.delta.k_dim;
    for (int64_t k = 0; k < k_dim; k++)
        for (int64_t j = 0; j < n; j += VW) {
            float *at = d->k_columns + k * DELTA_CHUNK + j;
            v_store(at, v_mul(v_load(at), v_load(d->decays + j)));
        }
    multiply((product){.a = d->k_columns,
                       .b = d->learned,
                       .c = d->state,
                       .a_stride = DELTA_CHUNK,
                       .b_stride = d->v_stride,
                       .c_stride = d->s->a.delta.v_dim,
                       .depth = n,
                       .keep = keep},
             k_dim, d->n_cols);
}

/* n tokens of one sequence, from t on. */
static void take_chunk(const head *d, int64_t t, int64_t n)
{
    int64_t k_dim = d->s->a.delta.k_dim;
    for (int64_t i = 0; i < n; i++)
        take_keys(d, t + i, i);
    transpose_keys(d, n);
    product keys = {.a = d->k,
                    .b = d->k_columns,
                    .c = d->kk,
                    .a_stride = d->k_stride,
                    .b_stride = DELTA_CHUNK,
                    .c_stride = DELTA_CHUNK,
                    .depth = k_dim};
    multiply(keys, n, (int64_t)round_up((uint64_t)n, VW));
    keys.a = d->q;
    keys.c = d->qk;
    multiply(keys, n, (int64_t)round_up((uint64_t)n, VW));
    product old = {.a = d->k,
                   .b = d->state,
                   .c = d->learned,
                   .a_stride = d->k_stride,
                   .b_stride = d->s->a.delta.v_dim,
                   .c_stride = d->v_stride,
                   .depth = k_dim};
    multiply(old, n, d->n_cols);
    old.a = d->q;
    old.c = out_of(d, t);
    old.c_stride = (int64_t)(d->s->out[0].stride / sizeof(float));
    multiply(old, n, d->n_cols);

    float all = 1; /* c[i] */
    memset(d->decays, 0, DELTA_CHUNK * sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        float decay = decay_of(d, t + i), beta = beta_of(d, t + i);
        all = all * decay < 0x1p-100f ? 0 : all * decay;
        decay_further(d, i, decay);
        weigh_row(d, i, beta);
        add_row(d->learned + i * d->v_stride, -beta * all, values_of(d, t + i), beta, d->n_cols);
        scale_row(out_of(d, t + i), all, d->n_cols);
    }
    learn(d, n);
    look_up(d, t, n);
    remember(d, n, all);
}

/* ---- All of them ----------------------------------------------------------------------------- */

static void take_head(head *d, const batch *b)
{
    const recurrent_layer *r = &d->s->recurrent;
    int64_t each = (int64_t)d->s->a.delta.k_dim * d->s->a.delta.v_dim, n;
    for (int64_t t = 0; t < b->n_tokens; t += n) {
        d->state = (float *)(r->data + r->offset + (uint64_t)b->slots[t] * r->slot_bytes) +
                   d->h * each + d->from;
        for (n = 1; n < DELTA_CHUNK && t + n < b->n_tokens && b->slots[t + n] == b->slots[t]; n++)
            ;
        if (n >= DELTA_FEW)
            take_chunk(d, t, n);
        else
            for (int64_t i = 0; i < n; i++)
                take_one(d, t + i);
    }
}

static float *take_scratch(float **next, int64_t n)
{
    float *at = *next;
    *next += n;
    return at;
}

static void delta(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end, v_dim = s->a.delta.v_dim;
    head d = {.s = s,
              .k_stride = delta_padded(s->a.delta.k_dim),
              .v_stride = delta_padded(s->a.delta.v_dim)};
    float *scratch = (float *)w->scratch;
    d.k = take_scratch(&scratch, DELTA_CHUNK * d.k_stride);
    d.q = take_scratch(&scratch, DELTA_CHUNK * d.k_stride);
    d.k_columns = take_scratch(&scratch, DELTA_CHUNK * d.k_stride);
    d.kk = take_scratch(&scratch, DELTA_CHUNK * DELTA_CHUNK);
    d.qk = take_scratch(&scratch, DELTA_CHUNK * DELTA_CHUNK);
    d.decays = take_scratch(&scratch, DELTA_CHUNK);
    d.learned = take_scratch(&scratch, DELTA_CHUNK * d.v_stride);
    pool_share(s->out[0].width, 64, w->index, w->count, &begin, &end);
    for (int64_t at = begin, last; at < end; at = last) {
        d.h = (int32_t)(at / v_dim);
        d.key = s->a.delta.is_tiled ? d.h % s->a.delta.n_key_heads
                                    : d.h / (s->a.delta.n_heads / s->a.delta.n_key_heads);
        d.from = at - d.h * v_dim;
        last = min_i64(end, (d.h + 1) * v_dim);
        d.n_cols = last - at;
        take_head(&d, b);
    }
}

void FN(delta_use)(kernel_table *table)
{
    table->ops[OP_DELTA] = delta;
}
