/*
 * Rotary embedding and writing to the cache. Compiled once per CPU level (level.h).
 *
 * The products of a rotation are rounded before they are added, as in the plain version: both then
 * give the same bits, and so does everything that is stored in the cache.
 */
#include "backend/cpu/level.h"

#include <string.h>

#include "base/threads.h"
#include "backend/cpu/ops.h"
#include "tensor/blocks.h"
#include "tensor/cache_row.h"

/* ---- Rotating -------------------------------------------------------------------------------- */

static inline void rotate(vf *x, vf *y, const float *table)
{
    vf c, s, x0 = *x, y0 = *y;
    v_split_pairs(v_load(table), v_load(table + VW), &c, &s);
    *x = v_sub(v_mul_rounded(x0, c), v_mul_rounded(y0, s));
    *y = v_add(v_mul_rounded(x0, s), v_mul_rounded(y0, c));
}

static void rotate_head(float *head, const float *table, int32_t n_dims, bool is_neox)
{
    int32_t half = n_dims / 2;
    if (half % VW) {
        rope_head_ref(head, table, n_dims, is_neox);
        return;
    }
    for (int32_t i = 0; i < half; i += VW) {
        vf x, y;
        if (is_neox) {
            x = v_load(head + i);
            y = v_load(head + half + i);
            rotate(&x, &y, table + 2 * i);
            v_store(head + i, x);
            v_store(head + half + i, y);
        } else {
            float *at = head + 2 * i;
            v_split_pairs(v_load(at), v_load(at + VW), &x, &y);
            rotate(&x, &y, table + 2 * i);
            v_join_pairs(x, y, &x, &y);
            v_store(at, x);
            v_store(at + VW, y);
        }
    }
}

static void rope(const step *s, const batch *b, const worker *w)
{
    int64_t n_heads = s->a.rope.n_heads, begin, end;
    pool_share(b->n_tokens * n_heads, 1, w->index, w->count, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        rotate_head(operand_row(&s->out[0], i / n_heads) + i % n_heads * s->a.rope.head_dim,
                    operand_row(&s->in[0], i / n_heads), s->a.rope.n_dims, s->a.rope.is_neox);
}

/* ---- Storing --------------------------------------------------------------------------------- */

static void store_f16(const float *x, int32_t n, uint8_t *out)
{
    int32_t i = 0;
    for (; i + VW <= n; i += VW)
        v_store_f16(out + 2 * i, v_load(x + i));
    for (; i < n; i++) {
        uint16_t h = v_to_f16(x[i]);
        memcpy(out + 2 * i, &h, 2);
    }
}

static void store_q8_0(const float *x, int32_t n, uint8_t *out)
{
    for (int32_t i = 0; i < n; i += 32, out += sizeof(block_q8_0)) {
        vf v[32 / VW], most = v_set(0);
        for (int k = 0; k < 32 / VW; k++) {
            v[k] = v_load(x + i + k * VW);
            most = v_max(most, v_abs(v[k]));
        }
        float scale = v_hmax(most) / 127.0f;
        vf per_value = v_set(scale != 0 ? 1.0f / scale : 0.0f);
        uint16_t half = v_to_f16(scale);
        for (int k = 0; k < 32 / VW; k++)
            v[k] = v_round_away(v_mul_rounded(v[k], per_value));
        memcpy(out, &half, 2);
        vq_store(out + 2, v_to_i8_32(v));
    }
}

static void store_row(dtype type, int32_t span, const float *x, int32_t n, uint8_t *out)
{
    if (span > 0)
        cache_put(type, span, x, n, out);
    else if (type == DTYPE_F16)
        store_f16(x, n, out);
    else if (type == DTYPE_Q8_0)
        store_q8_0(x, n, out);
    else
        memcpy(out, x, (size_t)n * sizeof *x);
}

/* One head of token t. k: [head_dim], v: [v_dim]; with v_in_k, the two parts of a key. */
static void write_head(const kv_layer *kv, const batch *b, int64_t t, int64_t head, const float *k,
                       const float *v)
{
    int32_t position = b->positions[t];
    uint64_t page = (uint64_t)b->pages[kv->group][t][position / kv->page_tokens];
    uint64_t row = (uint64_t)(head * kv->page_tokens + position % kv->page_tokens);
    uint8_t *at = kv->data + page * kv->page_bytes;
    uint8_t *key = at + kv->k_offset + row * kv->row_bytes;
    if (kv->v_in_k) {
        store_row(kv->type, kv->k_span, k, kv->v_dim, key);
        store_row(kv->type, kv->k_span, v, kv->head_dim - kv->v_dim,
                  key + row_bytes(kv->type, kv->v_dim));
        return;
    }
    store_row(kv->type, kv->k_span, k, kv->head_dim, key);
    store_row(kv->v_type, kv->v_span, v, kv->v_dim, at + kv->v_offset + row * kv->v_row_bytes);
}

static void kv_write(const step *s, const batch *b, const worker *w)
{
    const kv_layer *kv = &s->kv;
    int64_t begin, end;
    pool_share((int64_t)b->n_tokens * kv->n_heads, 1, w->index, w->count, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t t = i / kv->n_heads, head = i % kv->n_heads;
        write_head(kv, b, t, head, operand_row(&s->in[0], t) + head * kv->head_dim,
                   operand_row(&s->in[1], t) + head * kv->v_dim);
    }
}

/* The heads of q and k of a token are handed out one by one, so that one token has work for all. */
static void rope_kv(const step *s, const batch *b, const worker *w)
{
    const kv_layer *kv = &s->kv;
    int64_t n_heads = s->a.rope.n_heads, n_all = n_heads + kv->n_heads, begin, end;
    pool_share(b->n_tokens * n_all, 1, w->index, w->count, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t t = i / n_all, head = i % n_all;
        bool is_key = head >= n_heads;
        head -= is_key ? n_heads : 0;
        float *x = operand_row(&s->out[is_key], t) + head * kv->head_dim;
        rotate_head(x, operand_row(&s->in[0], t), s->a.rope.n_dims, s->a.rope.is_neox);
        if (is_key)
            write_head(kv, b, t, head, x, operand_row(&s->in[1], t) + head * kv->v_dim);
    }
}

/* ---- The table ------------------------------------------------------------------------------- */

void FN(rope_use)(kernel_table *table)
{
    table->ops[OP_ROPE] = rope;
    table->ops[OP_KV_WRITE] = kv_write;
    table->ops[OP_ROPE_KV] = rope_kv;
}
