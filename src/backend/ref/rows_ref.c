/* Plain operations on rows: embed, gather, norm, quantize, add, glu. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "backend/ref/ref.h"
#include "tensor/rotate.h"

/* The row of a table that token t takes. */
static int32_t embed_row(const step *s, const batch *b, int64_t t)
{
    switch (s->a.embed.by) {
    case EMBED_BY_POSITION:
        return b->positions[t];
    case EMBED_BY_SEGMENT:
        return b->segments ? b->segments[t] : 0;
    case EMBED_BY_KNOWN_TOKEN:
        return b->tokens[t] < 0 || b->tokens[t] >= s->a.embed.table->n_rows ? 0 : b->tokens[t];
    default:
        return b->tokens[t];
    }
}

void embed_ref(const step *s, const batch *b, const worker *w)
{
    const weight *table = s->a.embed.table;
    int64_t width = table->n_cols, begin, end;
    uint64_t stride = row_bytes(table->type, width);
    pool_share(b->n_tokens, 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        float *y = operand_row(&s->out[0], t);
        int32_t row = embed_row(s, b, t);
        bool is_beside = s->a.embed.by == EMBED_BESIDE;
        bool is_given = row == TOKEN_GIVEN && b->embeddings;
        if (is_beside || is_given) /* as it is: not of the table, not scaled */
            memcpy(is_beside ? y + width : y, batch_given(b, t, width, 0),
                   (size_t)width * sizeof *y);
        if (is_given)
            continue;
        assert(row >= 0 && row < table->n_rows);
        unpack_row(table->type, table->data + (uint64_t)row * stride, width, y);
        if (s->a.embed.scale != 1.0f)
            for (int64_t i = 0; i < width; i++)
                y[i] *= s->a.embed.scale;
    }
}

void gather_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end;
    pool_share(b->n_outputs, 1, w->index, w->count, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        memcpy(operand_row(&s->out[0], i), operand_row(&s->in[0], b->outputs[i]),
               (size_t)s->out[0].width * sizeof(float));
}

/* y = x without what is smaller than `least`. A NaN stays. */
static void drop_small_row(const float *x, int64_t n, float least, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = fabsf(x[i]) < least ? 0 : x[i];
}

void drop_small_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end, width = s->in[0].width;
    float least = step_threshold(s, b);
    if (least == 0 && s->in[0].data == s->out[0].data)
        return;
    pool_share(step_rows(s, b), 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        drop_small_row(operand_row(&s->in[0], t), width, least, operand_row(&s->out[0], t));
}

static void norm_row(const step *s, float least, const float *x, float *y)
{
    int64_t group = s->a.norm.group;
    for (int64_t at = 0; at < s->in[0].width; at += group) {
        double sum = 0;
        for (int64_t i = 0; i < group; i++)
            sum += (double)x[at + i] * x[at + i];
        float scale = (float)(1.0 / sqrt(sum / (double)group + s->a.norm.eps));
        for (int64_t i = 0; i < group; i++)
            y[at + i] = x[at + i] * scale * s->a.norm.weight[s->a.norm.is_wide ? at + i : i];
    }
    drop_small_row(y, s->in[0].width, least, y);
}

void rms_norm_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end;
    pool_share(step_rows(s, b), 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        norm_row(s, step_threshold(s, b), operand_row(&s->in[0], t), operand_row(&s->out[0], t));
}

void layer_norm_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end, group = s->a.norm.group;
    pool_share(step_rows(s, b), 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        for (int64_t at = 0; at < s->in[0].width; at += group) {
            int64_t wide = s->a.norm.is_wide ? at : 0;
            const float *by = s->a.norm.weight + wide;
            const float *bias = s->a.norm.bias ? s->a.norm.bias + wide : NULL;
            const float *x = operand_row(&s->in[0], t) + at;
            float *y = operand_row(&s->out[0], t) + at;
            double sum = 0, squares = 0;
            for (int64_t i = 0; i < group; i++)
                sum += x[i];
            float mean = (float)(sum / (double)group);
            for (int64_t i = 0; i < group; i++)
                squares += (double)(x[i] - mean) * (x[i] - mean);
            float scale = (float)(1.0 / sqrt(squares / (double)group + s->a.norm.eps));
            for (int64_t i = 0; i < group; i++)
                y[i] = (x[i] - mean) * scale * by[i] + (bias ? bias[i] : 0);
        }
}

/* q is rounded to the nearest, halves to even, so that every level can give the same bits. */
void quantize_row_ref(const float *x, int64_t width, void *row)
{
    int8_t *q = row;
    float *scales = (float *)act_q8_scales(row, width);
    int16_t *sums = (int16_t *)act_q8_sums(row, width);
    for (int64_t block = 0; block < width / 32; block++) {
        const float *xb = x + 32 * block;
        float most = 0;
        for (int i = 0; i < 32; i++)
            most = fabsf(xb[i]) > most ? fabsf(xb[i]) : most;
        scales[block] = act_q8_scale(most);
        float inverse = 1.0f / scales[block];
        for (int half = 0; half < 2; half++) {
            int sum = 0;
            for (int i = 0; i < 16; i++) {
                float scaled = xb[16 * half + i] * inverse;
                int8_t value = (int8_t)lrintf(fminf(fmaxf(scaled, -128.0f), 127.0f));
                q[32 * block + 16 * half + i] = value;
                sum += value;
            }
            sums[2 * block + half] = (int16_t)sum;
        }
    }
}

void quantize_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end, width = s->in[0].width;
    float *dropped = (float *)w->scratch; /* [width] */
    pool_share(step_rows(s, b), 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *x = operand_row(&s->in[0], t);
        if (s->sparsity) {
            drop_small_row(x, width, step_threshold(s, b), dropped);
            x = dropped;
        }
        quantize_row_ref(x, width, operand_row(&s->out[0], t));
    }
}

void rotate_quantize_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end, width = s->in[0].width;
    float *rotated = (float *)w->scratch; /* [width] */
    pool_share(step_rows(s, b), 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        for (int64_t i = 0; i < width; i += ROTATE_VALUES)
            rotate_128(operand_row(&s->in[0], t) + i, rotated + i);
        quantize_row_ref(rotated, width, operand_row(&s->out[0], t));
    }
}

void rms_norm_quantize_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end;
    float *normed = (float *)w->scratch; /* [width] */
    pool_share(step_rows(s, b), 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        norm_row(s, step_threshold(s, b), operand_row(&s->in[0], t), normed);
        quantize_row_ref(normed, s->in[0].width, operand_row(&s->out[0], t));
    }
}

void add_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end;
    pool_share(step_rows(s, b), 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *x = operand_row(&s->in[0], t);
        float *y = operand_row(&s->out[0], t);
        for (int64_t i = 0; i < s->out[0].width; i++)
            y[i] += s->a.add.scale * x[i];
    }
}

static float gate_product(glu_kind kind, float g, float u)
{
    switch (kind) {
    case GLU_SILU:
        return g / (1.0f + expf(-g)) * u;
    case GLU_GELU_TANH:
        return 0.5f * g * (1.0f + tanhf(0.7978845608f * (g + 0.044715f * g * g * g))) * u;
    case GLU_CLAMPED:
        g = g > 7.0f ? 7.0f : g;
        u = (u < -7.0f ? -7.0f : u > 7.0f ? 7.0f : u) + 1.0f;
        return g / (1.0f + expf(-1.702f * g)) * u;
    case GLU_GELU:
        return 0.5f * g * erfcf(-0.7071067812f * g) * u;
    case GLU_RELU2:
        return g < 0 ? 0 * u : g * g * u; /* a NaN stays */
    case GLU_SIGMOID:
        return 1.0f / (1.0f + expf(-g)) * u;
    case GLU_TANH:
        return tanhf(g) * u;
    case GLU_PRODUCT:
        return g * u;
    case GLU_COUNT:
        break;
    }
    return NAN; /* no activation: nothing that could pass for one */
}

void glu_row_ref(glu_kind kind, const float *gate, const float *up, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = gate_product(kind, gate[i], up[i]);
}

void glu_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end;
    pool_share(step_rows(s, b), 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *gate = operand_row(&s->in[0], t);
        const float *up = s->in[1].value >= 0 ? operand_row(&s->in[1], t) : NULL;
        float *y = operand_row(&s->out[0], t);
        int64_t share = s->out[0].width / s->in[0].width; /* columns of each value of the gate */
        for (int64_t i = 0; i < s->out[0].width; i++)
            y[i] = gate_product(s->a.glu.kind, gate[i / share], up ? up[i] : 1);
    }
}

void xielu_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end;
    float alpha_p = s->a.xielu.alpha_p, alpha_n = s->a.xielu.alpha_n, beta = s->a.xielu.beta;
    pool_share(s->out[0].width, 16, w->index, w->count, &begin, &end);
    for (int64_t t = 0; t < step_rows(s, b); t++) {
        float *y = operand_row(&s->out[0], t);
        for (int64_t i = begin; i < end; i++) {
            float x = y[i];
            y[i] = x > 0 ? alpha_p * x * x + beta * x
                         : (expm1f(fminf(x, s->a.xielu.eps)) - x) * alpha_n + beta * x;
        }
    }
}

void pick_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end, n = s->a.pick.n;
    pool_share(step_rows(s, b), 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *x = operand_row(&s->in[0], t) + s->a.pick.offset;
        float *y = operand_row(&s->out[0], t);
        for (int64_t i = 0; i < s->out[0].width; i += n, x += s->a.pick.stride)
            memcpy(y + i, x, (size_t)n * sizeof *y);
    }
}

void temperature_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end;
    pool_share(b->n_tokens, 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        float *y = operand_row(&s->out[0], t);
        int32_t n = (b->positions[t] + s->a.temperature.offset) / s->a.temperature.length;
        float factor = 1 + s->a.temperature.scale * logf((float)(1 + n));
        for (int64_t i = 0; n > 0 && i < s->out[0].width; i++)
            y[i] *= factor;
    }
}

void softcap_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end;
    float cap = s->a.softcap.cap;
    pool_share(s->out[0].width, 16, w->index, w->count, &begin, &end);
    for (int64_t t = 0; t < step_rows(s, b); t++) {
        float *x = operand_row(&s->out[0], t);
        for (int64_t i = begin; i < end; i++)
            x[i] = cap * tanhf(x[i] / cap);
    }
}
