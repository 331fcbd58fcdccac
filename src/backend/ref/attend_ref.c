/* Plain attention: rotary embedding, the cache, and softmax(q k) v. */
#include <assert.h>
#include <math.h>

#include "base/threads.h"
#include "tensor/cache_row.h"
#include "backend/ref/ref.h"

/* The axis of positions that a frequency turns by. */
static int32_t axis_of(const step *s, int64_t frequency)
{
    int64_t end = 0;
    if (s->a.rope_table.is_interleaved) {
        int32_t axis = (int32_t)(frequency % 3);
        return frequency < 3 * (int64_t)s->a.rope_table.sections[axis] ? axis : 0;
    }
    for (int32_t axis = 0; axis < ROPE_MAX_AXES; axis++) {
        end += s->a.rope_table.sections[axis];
        if (frequency < end)
            return axis;
    }
    return 0;
}

/* Angles as the models were trained with them: a product of two floats. */
void rope_table_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end;
    pool_share(b->n_tokens, 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        float *y = operand_row(&s->out[0], t);
        for (int64_t i = 0; i < s->out[0].width / 2; i++) {
            int32_t position = batch_axis(b, axis_of(s, i), (int32_t)t);
            float angle = (float)position * s->a.rope_table.frequencies[i];
            y[2 * i] = cosf(angle) * s->a.rope_table.magnitude;
            y[2 * i + 1] = sinf(angle) * s->a.rope_table.magnitude;
        }
    }
}

void rope_head_ref(float *head, const float *table, int32_t n_dims, bool is_neox)
{
    int32_t stride = is_neox ? 1 : 2, apart = is_neox ? n_dims / 2 : 1;
    for (int32_t i = 0; i < n_dims / 2; i++) {
        float *x = head + i * stride, c = table[2 * i], sn = table[2 * i + 1];
        float x0 = x[0], x1 = x[apart];
        x[0] = x0 * c - x1 * sn;
        x[apart] = x0 * sn + x1 * c;
    }
}

void rope_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end;
    pool_share(b->n_tokens, 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        for (int32_t h = 0; h < s->a.rope.n_heads; h++)
            rope_head_ref(operand_row(&s->out[0], t) + h * s->a.rope.head_dim,
                          operand_row(&s->in[0], t), s->a.rope.n_dims, s->a.rope.is_neox);
}

/* The place of one head's key (or value) of a position. */
static uint8_t *kv_row(const kv_layer *kv, bool is_value, const int32_t *pages, int32_t head,
                       int32_t position)
{
    uint64_t page = (uint64_t)pages[position / kv->page_tokens];
    uint64_t row =
        (uint64_t)head * (uint64_t)kv->page_tokens + (uint64_t)(position % kv->page_tokens);
    return kv->data + page * kv->page_bytes +
           (is_value ? kv->v_offset + row * kv->v_row_bytes : kv->k_offset + row * kv->row_bytes);
}

/* k and v: as KV_WRITE has them. */
static void write_token(const kv_layer *kv, const batch *b, int64_t t, const float *k,
                        const float *v)
{
    const int32_t *pages = b->pages[kv->group][t];
    if (kv->v_in_k) { /* the two parts of one key */
        uint8_t *row = kv_row(kv, false, pages, 0, b->positions[t]);
        cache_put(kv->type, kv->k_span, k, kv->v_dim, row);
        cache_put(kv->type, kv->k_span, v, kv->head_dim - kv->v_dim,
                  row + row_bytes(kv->type, kv->v_dim));
        return;
    }
    for (int32_t h = 0; h < kv->n_heads; h++) {
        cache_put(kv->type, kv->k_span, k + h * kv->head_dim, kv->head_dim,
                  kv_row(kv, false, pages, h, b->positions[t]));
        cache_put(kv->v_type, kv->v_span, v + h * kv->v_dim, kv->v_dim,
                  kv_row(kv, true, pages, h, b->positions[t]));
    }
}

void kv_write_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end;
    pool_share(b->n_tokens, 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        write_token(&s->kv, b, t, operand_row(&s->in[0], t), operand_row(&s->in[1], t));
}

void rope_kv_ref(const step *s, const batch *b, const worker *w)
{
    int64_t begin, end;
    const kv_layer *kv = &s->kv;
    pool_share(b->n_tokens, 1, w->index, w->count, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *table = operand_row(&s->in[0], t);
        float *q = operand_row(&s->out[0], t), *k = operand_row(&s->out[1], t);
        for (int32_t h = 0; h < s->a.rope.n_heads; h++)
            rope_head_ref(q + h * kv->head_dim, table, s->a.rope.n_dims, s->a.rope.is_neox);
        for (int32_t h = 0; h < kv->n_heads; h++)
            rope_head_ref(k + h * kv->head_dim, table, s->a.rope.n_dims, s->a.rope.is_neox);
        write_token(kv, b, t, k, operand_row(&s->in[1], t));
    }
}

/* One query head of one token. scores: [n_context], row: [head_dim or v_dim]. */
static void attend_head(const step *s, const batch *b, int64_t t, int32_t h, float *scores,
                        float *row)
{
    const kv_layer *kv = &s->kv;
    const int32_t *pages = b->pages[kv->group][t];
    int32_t dim = kv->head_dim, head = h / (s->a.attend.n_heads / kv->n_heads);
    int32_t first, end, v_dim = kv->v_dim;
    attend_range(s, b, (int32_t)t, &first, &end);
    int32_t last = end - 1;
    const float *q = operand_row(&s->in[0], t) + h * dim;
    float *out = operand_row(&s->out[0], t) + h * v_dim;

    float most = s->a.attend.sinks ? s->a.attend.sinks[h] : -INFINITY;
    for (int32_t p = first; p <= last; p++) {
        cache_get(kv->type, kv->k_span, kv_row(kv, false, pages, head, p), dim, row);
        double dot = 0;
        for (int32_t i = 0; i < dim; i++)
            dot += (double)q[i] * row[i];
        float score = (float)dot * s->a.attend.scale;
        if (s->a.attend.softcap > 0)
            score = s->a.attend.softcap * tanhf(score / s->a.attend.softcap);
        scores[p - first] = score;
        most = score > most ? score : most;
    }
    double sum = s->a.attend.sinks ? (double)expf(s->a.attend.sinks[h] - most) : 0;
    for (int32_t p = first; p <= last; p++) {
        scores[p - first] = expf(scores[p - first] - most);
        sum += scores[p - first];
    }
    for (int32_t i = 0; i < v_dim; i++)
        out[i] = 0;
    for (int32_t p = first; p <= last; p++) {
        cache_get(kv->v_type, kv->v_span, kv_row(kv, true, pages, head, p), v_dim, row);
        float share = (float)(scores[p - first] / sum);
        for (int32_t i = 0; i < v_dim; i++)
            out[i] += share * row[i];
    }
}

void attend_ref(const step *s, const batch *b, const worker *w)
{
    int64_t n_heads = s->a.attend.n_heads, begin, end;
    float *row = (float *)w->scratch;
    float *scores = row + (s->kv.head_dim > s->kv.v_dim ? s->kv.head_dim : s->kv.v_dim);
    pool_share(b->n_tokens * n_heads, 1, w->index, w->count, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        attend_head(s, b, i / n_heads, (int32_t)(i % n_heads), scores, row);
}
