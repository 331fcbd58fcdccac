/*
 * Operations on rows: norm, quantize, add, glu. Compiled once per CPU level (level.h).
 *
 * rms_norm, quantize and their fusion give the same bits as the plain versions: the sum of squares is
 * double in both (its order moves it by 1e-16 of itself, which the rounding to float swallows), and
 * everything after it is rounded in the same places.
 */
#include "backend/cpu/level.h"

#include <math.h>

#include "base/threads.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/rotate_vec.h"

/*
 * What one worker does of [n_rows, width]: whole rows if there are plenty, else its columns of
 * every row, so that one token keeps all workers busy.
 */
typedef struct part {
    int64_t row_begin, row_end, col_begin, col_end;
} part;

static part share_rows(int64_t n_rows, int64_t width, const worker *w)
{
    part p = {.col_end = width};
    pool_share(n_rows, 1, w->index, w->count, &p.row_begin, &p.row_end);
    return p;
}

static part share_part(int64_t n_rows, int64_t width, int64_t grain, const worker *w)
{
    if (n_rows >= 4 * w->count)
        return share_rows(n_rows, width, w);
    part p = {.row_end = n_rows};
    pool_share(width, grain, w->index, w->count, &p.col_begin, &p.col_end);
    return p;
}

/* ---- Norm ------------------------------------------------------------------------------------ */

static float norm_scale(const float *x, int64_t n, float eps)
{
    vd2 a = vd2_zero(), b = vd2_zero();
    int64_t i = 0;
    for (; i + 2 * VW <= n; i += 2 * VW) {
        a = vd2_add_square(a, v_load(x + i));
        b = vd2_add_square(b, v_load(x + i + VW));
    }
    for (; i < n; i += VW)
        a = vd2_add_square(a, n - i < VW ? v_load_n(x + i, n - i) : v_load(x + i));
    return (float)(1.0 / sqrt((vd2_sum(a) + vd2_sum(b)) / (double)n + (double)eps));
}

/* x without what is smaller than `least`; all of it, if that is 0. */
static inline vf drop_small(vf x, vf least)
{
    return v_select_less(v_abs(x), least, v_set(0), x);
}

static void scale_row(const float *x, const float *by, float scale, float least, int64_t n,
                      float *y)
{
    vf scales = v_set(scale), l = v_set(least);
    int64_t i = 0;
    for (; i + VW <= n; i += VW)
        v_store(y + i, drop_small(v_mul(v_mul(v_load(x + i), scales), v_load(by + i)), l));
    if (i < n)
        v_store_n(
            y + i,
            drop_small(v_mul(v_mul(v_load_n(x + i, n - i), scales), v_load_n(by + i, n - i)), l),
            n - i);
}

/* A worker that has only some columns reads the whole group: nobody may have changed it. */
static part share_norms(const step *s, const batch *b, const worker *w)
{
    int64_t group = s->a.norm.group, width = s->in[0].width, n_rows = step_rows(s, b);
    bool is_in_place = s->in[0].data == s->out[0].data;
    return group < width ? share_part(n_rows, width, group, w)
           : is_in_place ? share_rows(n_rows, width, w)
                         : share_part(n_rows, width, 64, w);
}

static void rms_norm(const step *s, const batch *b, const worker *w)
{
    int64_t group = s->a.norm.group;
    part p = share_norms(s, b, w);
    for (int64_t t = p.row_begin; t < p.row_end; t++) {
        const float *x = operand_row(&s->in[0], t);
        float *y = operand_row(&s->out[0], t);
        for (int64_t i = p.col_begin; i < p.col_end;) {
            int64_t start = i / group * group, end = start + group;
            end = end < p.col_end ? end : p.col_end;
            float scale = norm_scale(x + start, group, s->a.norm.eps);
            const float *by = s->a.norm.weight + (s->a.norm.is_wide ? start : 0);
            scale_row(x + i, by + (i - start), scale, step_threshold(s, b), end - i, y + i);
            i = end;
        }
    }
}

static float mean_of(const float *x, int64_t n)
{
    double sums[8] = {0}, sum = 0; /* each by itself, so that they become vectors */
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            sums[k] += x[i + k];
    for (; i < n; i++)
        sum += x[i];
    for (int k = 0; k < 8; k++)
        sum += sums[k];
    return (float)(sum / (double)n);
}

static float layer_norm_scale(const float *x, int64_t n, float mean, float eps)
{
    vd2 a = vd2_zero();
    vf means = v_set(mean);
    int64_t i = 0;
    for (; i + VW <= n; i += VW)
        a = vd2_add_square(a, v_sub(v_load(x + i), means));
    double squares = vd2_sum(a);
    for (; i < n; i++)
        squares += (double)(x[i] - mean) * (x[i] - mean);
    return (float)(1.0 / sqrt(squares / (double)n + (double)eps));
}

/* Columns [begin, end) of the group that begins at `start`; bias may be NULL. */
static void layer_norm_group(const step *s, int64_t start, const float *x, int64_t begin,
                             int64_t end, float *y)
{
    int64_t wide = s->a.norm.is_wide ? start : 0;
    const float *by = s->a.norm.weight + wide;
    const float *bias = s->a.norm.bias ? s->a.norm.bias + wide : NULL;
    float mean = mean_of(x, s->a.norm.group);
    vf means = v_set(mean);
    vf scale = v_set(layer_norm_scale(x, s->a.norm.group, mean, s->a.norm.eps));
    for (int64_t i = begin, n = VW; i < end; i += VW) {
        n = end - i < VW ? end - i : VW;
        vf shift = bias ? v_load_n(bias + i, n) : v_set(0);
        vf normed = v_mul(v_sub(v_load_n(x + i, n), means), scale);
        v_store_n(y + i, v_fma(normed, v_load_n(by + i, n), shift), n);
    }
}

static void layer_norm(const step *s, const batch *b, const worker *w)
{
    int64_t group = s->a.norm.group;
    part p = share_norms(s, b, w);
    for (int64_t t = p.row_begin; t < p.row_end; t++)
        for (int64_t i = p.col_begin, end; i < p.col_end; i = end) {
            int64_t start = i / group * group;
            end = start + group < p.col_end ? start + group : p.col_end;
            layer_norm_group(s, start, operand_row(&s->in[0], t) + start, i - start, end - start,
                             operand_row(&s->out[0], t) + start);
        }
}

/* ---- Quantize -------------------------------------------------------------------------------- */

/* One block of ACT_Q8: 32 values with their scale and two sums. */
static inline void quantize_block(const vf x[32 / VW], int8_t *q, float *scale, int16_t sums[2])
{
    vf most_v = v_abs(x[0]);
    for (int i = 1; i < 32 / VW; i++)
        most_v = v_max(most_v, v_abs(x[i]));
    float d = act_q8_scale(v_hmax(most_v));
    vf inverse = v_set(1.0f / d), y[32 / VW];
    for (int i = 0; i < 32 / VW; i++)
        y[i] = v_mul(x[i], inverse);
    vq bytes = v_to_i8_32(y);
    vq_store(q, bytes);
    vq_sums(bytes, sums);
    *scale = d;
}

static void quantize_columns(const float *x, int64_t begin, int64_t end, int64_t width, float least,
                             void *row)
{
    vf l = v_set(least);
    float *scales = (float *)act_q8_scales(row, width);
    int16_t *sums = (int16_t *)act_q8_sums(row, width);
    for (int64_t i = begin; i < end; i += 32) {
        vf v[32 / VW];
        for (int k = 0; k < 32 / VW; k++)
            v[k] = drop_small(v_load(x + i + k * VW), l);
        quantize_block(v, (int8_t *)row + i, scales + i / 32, sums + i / 16);
    }
}

static void quantize(const step *s, const batch *b, const worker *w)
{
    int64_t width = s->in[0].width;
    part p = share_part(step_rows(s, b), width, 64, w);
    for (int64_t t = p.row_begin; t < p.row_end; t++)
        quantize_columns(operand_row(&s->in[0], t), p.col_begin, p.col_end, width,
                         step_threshold(s, b), operand_row(&s->out[0], t));
}

static void rotate_quantize(const step *s, const batch *b, const worker *w)
{
    int64_t width = s->in[0].width;
    part p = share_part(step_rows(s, b), width, ROTATE_VALUES, w);
    for (int64_t t = p.row_begin; t < p.row_end; t++) {
        const float *x = operand_row(&s->in[0], t);
        void *row = operand_row(&s->out[0], t);
        float *scales = (float *)act_q8_scales(row, width);
        int16_t *sums = (int16_t *)act_q8_sums(row, width);
        for (int64_t i = p.col_begin; i < p.col_end; i += ROTATE_VALUES) {
            float rotated[ROTATE_VALUES];
            rotate_in_registers(x + i, rotated);
            for (int64_t k = 0; k < ROTATE_VALUES; k += 32) {
                vf v[32 / VW];
                for (int j = 0; j < 32 / VW; j++)
                    v[j] = v_load(rotated + k + j * VW);
                quantize_block(v, (int8_t *)row + i + k, scales + (i + k) / 32,
                               sums + (i + k) / 16);
            }
        }
    }
}

static void rms_norm_quantize(const step *s, const batch *b, const worker *w)
{
    int64_t group = s->a.norm.group, width = s->in[0].width;
    const float *by = s->a.norm.weight;
    vf least = v_set(step_threshold(s, b));
    part p = share_part(step_rows(s, b), width, group == width ? 64 : group, w);
    if (group % 32) { /* blocks of the result would span groups */
        rms_norm_quantize_ref(s, b, w);
        return;
    }
    for (int64_t t = p.row_begin; t < p.row_end; t++) {
        const float *x = operand_row(&s->in[0], t);
        void *row = operand_row(&s->out[0], t);
        float *scales = (float *)act_q8_scales(row, width);
        int16_t *sums = (int16_t *)act_q8_sums(row, width);
        vf scale = v_set(0);
        for (int64_t i = p.col_begin; i < p.col_end; i += 32) {
            int64_t at = i % group;
            if (at == 0 || i == p.col_begin)
                scale = v_set(norm_scale(x + i - at, group, s->a.norm.eps));
            vf v[32 / VW];
            for (int k = 0; k < 32 / VW; k++)
                v[k] = drop_small(
                    v_mul(v_mul(v_load(x + i + k * VW), scale), v_load(by + at + k * VW)), least);
            quantize_block(v, (int8_t *)row + i, scales + i / 32, sums + i / 16);
        }
    }
}

/* ---- Add, glu -------------------------------------------------------------------------------- */

static void add(const step *s, const batch *b, const worker *w)
{
    vf scale = v_set(s->a.add.scale);
    part p = share_part(step_rows(s, b), s->out[0].width, 64, w);
    for (int64_t t = p.row_begin; t < p.row_end; t++) {
        const float *x = operand_row(&s->in[0], t);
        float *y = operand_row(&s->out[0], t);
        int64_t i = p.col_begin, left = p.col_end;
        for (; i + VW <= left; i += VW)
            v_store(y + i, v_fma(scale, v_load(x + i), v_load(y + i)));
        if (i < left)
            v_store_n(y + i, v_fma(scale, v_load_n(x + i, left - i), v_load_n(y + i, left - i)),
                      left - i);
    }
}

/* act(gate) * up; every kind, so that none becomes another. */
static inline vf gate_product(glu_kind kind, vf g, vf u)
{
    switch (kind) {
    case GLU_SILU:
        return v_mul(v_div(g, v_add(v_set(1.0f), v_exp(v_sub(v_set(0.0f), g)))), u);
    case GLU_GELU_TANH: {
        /* (1 + tanh(z)) / 2 = sigmoid(2z) */
        vf z = v_mul(g, v_fma(v_mul(g, g), v_set(0.7978845608f * 0.044715f), v_set(0.7978845608f)));
        return v_mul(v_mul(g, v_sigmoid(v_add(z, z))), u);
    }
    case GLU_CLAMPED:
        g = v_min(v_set(7.0f), g); /* the set value first: keeps a NaN */
        u = v_add(v_max(v_set(-7.0f), v_min(v_set(7.0f), u)), v_set(1.0f));
        return v_mul(v_mul(g, v_sigmoid(v_mul(v_set(1.702f), g))), u);
    case GLU_GELU:
        return v_mul(v_mul(v_mul(v_set(0.5f), g), v_erfc(v_mul(v_set(-0.7071067812f), g))), u);
    case GLU_RELU2: {
        vf above = v_max(v_set(0.0f), g); /* g second: keeps a NaN */
        return v_mul(v_mul(above, above), u);
    }
    case GLU_SIGMOID:
        return v_mul(v_sigmoid(g), u);
    case GLU_TANH:
        return v_mul(v_tanh(g), u);
    case GLU_PRODUCT:
        return v_mul(g, u);
    case GLU_COUNT:
        break;
    }
    return v_set(NAN); /* no activation: nothing that could pass for one */
}

static void glu_row(glu_kind kind, const float *gate, const float *up, int64_t n, float *out)
{
    int64_t i = 0;
    for (; i + VW <= n; i += VW)
        v_store(out + i, gate_product(kind, v_load(gate + i), v_load(up + i)));
    if (i < n)
        v_store_n(out + i, gate_product(kind, v_load_n(gate + i, n - i), v_load_n(up + i, n - i)),
                  n - i);
}

/* out = act(gate) */
static void act_row(glu_kind kind, const float *gate, int64_t n, float *out)
{
    vf one = v_set(1.0f);
    int64_t i = 0;
    for (; i + VW <= n; i += VW)
        v_store(out + i, gate_product(kind, v_load(gate + i), one));
    if (i < n)
        v_store_n(out + i, gate_product(kind, v_load_n(gate + i, n - i), one), n - i);
}

/* Columns [begin, end), of which each value of the gate has `share`. */
static void narrow_row(glu_kind kind, const float *gate, int64_t share, const float *up,
                       int64_t begin, int64_t end, float *out)
{
    for (int64_t i = begin, stop; i < end; i = stop) {
        float factor;
        act_row(kind, gate + i / share, 1, &factor);
        stop = (i / share + 1) * share;
        stop = stop < end ? stop : end;
        vf f = v_set(factor);
        for (; i + VW <= stop; i += VW)
            v_store(out + i, v_mul(f, v_load(up + i)));
        if (i < stop)
            v_store_n(out + i, v_mul(f, v_load_n(up + i, stop - i)), stop - i);
    }
}

static void glu(const step *s, const batch *b, const worker *w)
{
    part p = share_part(step_rows(s, b), s->out[0].width, 64, w);
    int64_t from = p.col_begin, n = p.col_end - p.col_begin;
    int64_t share = s->out[0].width / s->in[0].width;
    for (int64_t t = p.row_begin; t < p.row_end; t++) {
        const float *gate = operand_row(&s->in[0], t);
        float *out = operand_row(&s->out[0], t);
        if (s->in[1].value < 0)
            act_row(s->a.glu.kind, gate + from, n, out + from);
        else if (share > 1)
            narrow_row(s->a.glu.kind, gate, share, operand_row(&s->in[1], t), from, p.col_end, out);
        else
            glu_row(s->a.glu.kind, gate + from, operand_row(&s->in[1], t) + from, n, out + from);
    }
}

/* ---- Soft cap -------------------------------------------------------------------------------- */

static void softcap(const step *s, const batch *b, const worker *w)
{
    part p = share_part(step_rows(s, b), s->out[0].width, 64, w);
    vf cap = v_set(s->a.softcap.cap);
    for (int64_t t = p.row_begin; t < p.row_end; t++) {
        float *x = operand_row(&s->out[0], t);
        int64_t i = p.col_begin, end = p.col_end;
        for (; i + VW <= end; i += VW)
            v_store(x + i, v_mul(cap, v_tanh(v_div(v_load(x + i), cap))));
        if (i < end)
            v_store_n(x + i, v_mul(cap, v_tanh(v_div(v_load_n(x + i, end - i), cap))), end - i);
    }
}

/* ---- The table ------------------------------------------------------------------------------- */

void FN(rows_use)(kernel_table *table)
{
    table->ops[OP_RMS_NORM] = rms_norm;
    table->ops[OP_LAYER_NORM] = layer_norm;
    table->ops[OP_QUANTIZE] = quantize;
    table->ops[OP_ROTATE_QUANTIZE] = rotate_quantize;
    table->ops[OP_RMS_NORM_QUANTIZE] = rms_norm_quantize;
    table->ops[OP_ADD] = add;
    table->ops[OP_GLU] = glu;
    table->ops[OP_SOFTCAP] = softcap;
    table->glu_row = glu_row;
}
