/*
 * Llama: pre-norm, rotary embedding, grouped-query attention, SwiGLU. Llama 1 to 3, Mistral without
 * windows, SmolLM, TinyLlama and many others are this model with other numbers.
 */
#include <math.h>

#include "model/bind.h"

static lace_status bind(model *m, lace_error *err)
{
    const model_config *c = &m->config;
    int64_t n_embd = c->n_embd, q = (int64_t)c->n_heads * c->head_dim;
    int64_t kv = (int64_t)c->n_kv_heads * c->head_dim;
    TRY(bind_embedding(m, err));
    TRY(bind_vector(m, &m->output_norm, n_embd, err, "output_norm.weight"));
    for (int i = 0; i < c->n_layers; i++) {
        model_layer *l = &m->layers[i];
        TRY(bind_vector(m, &l->attn_norm, n_embd, err, "blk.%d.attn_norm.weight", i));
        TRY(bind_matrix(m, &l->wq, q, n_embd, err, "blk.%d.attn_q.weight", i));
        TRY(bind_matrix(m, &l->wk, kv, n_embd, err, "blk.%d.attn_k.weight", i));
        TRY(bind_matrix(m, &l->wv, kv, n_embd, err, "blk.%d.attn_v.weight", i));
        TRY(bind_matrix(m, &l->wo, n_embd, q, err, "blk.%d.attn_output.weight", i));
        TRY(bind_optional(m, &l->bq, q, err, "blk.%d.attn_q.bias", i));
        TRY(bind_optional(m, &l->bk, kv, err, "blk.%d.attn_k.bias", i));
        TRY(bind_optional(m, &l->bv, kv, err, "blk.%d.attn_v.bias", i));
        TRY(bind_optional(m, &l->bo, n_embd, err, "blk.%d.attn_output.bias", i));
        TRY(bind_vector(m, &l->ffn_norm, n_embd, err, "blk.%d.ffn_norm.weight", i));
        TRY(bind_matrix(m, &l->gate, c->n_ff, n_embd, err, "blk.%d.ffn_gate.weight", i));
        TRY(bind_matrix(m, &l->up, c->n_ff, n_embd, err, "blk.%d.ffn_up.weight", i));
        TRY(bind_matrix(m, &l->down, n_embd, c->n_ff, err, "blk.%d.ffn_down.weight", i));
    }
    const float *factors;
    TRY(bind_optional(m, &factors, c->rope.n_dims / 2, err, "rope_freqs.weight"));
    return rope_prepare(&c->rope, factors, &m->memory, &m->rope, err);
}

static value attention(const model *m, plan *p, const model_layer *l, value x, value angles,
                       const kv_layer *kv)
{
    const model_config *c = &m->config;
    attend_params params = {.n_heads = c->n_heads, .scale = 1.0f / sqrtf((float)c->head_dim)};
    value n = plan_norm(p, x, l->attn_norm, c->n_embd, c->rms_eps);
    value q = plan_linear(p, n, &l->wq, l->bq, 1);
    value k = plan_linear(p, n, &l->wk, l->bk, 1);
    value v = plan_linear(p, n, &l->wv, l->bv, 1);
    q = plan_rope(p, q, angles, &m->rope, c->n_heads, c->head_dim);
    k = plan_rope(p, k, angles, &m->rope, c->n_kv_heads, c->head_dim);
    plan_kv_write(p, k, v, kv);
    value a = plan_attend(p, q, kv, &params);
    return plan_linear(p, a, &l->wo, l->bo, 1);
}

static value feed_forward(const model *m, plan *p, const model_layer *l, value x)
{
    value n = plan_norm(p, x, l->ffn_norm, m->config.n_embd, m->config.rms_eps);
    value gate = plan_linear(p, n, &l->gate, NULL, 1);
    value up = plan_linear(p, n, &l->up, NULL, 1);
    value h = plan_glu(p, GLU_SILU, gate, up);
    return plan_linear(p, h, &l->down, NULL, 1);
}

static void build(const model *m, plan *p, const kv_layer *kv)
{
    value x = plan_embed(p, m->embedding, 1);
    value angles = plan_rope_table(p, &m->rope);
    for (int i = 0; i < m->config.n_layers; i++) {
        p->layer = i;
        x = plan_add(p, x, attention(m, p, &m->layers[i], x, angles, &kv[i]), 1);
        x = plan_add(p, x, feed_forward(m, p, &m->layers[i], x), 1);
    }
    p->layer = -1;
    value last = plan_norm(p, plan_gather(p, x), m->output_norm, m->config.n_embd, m->config.rms_eps);
    plan_result(p, plan_linear(p, last, &m->output, NULL, 1));
}

const arch arch_llama = {.name = "llama", .bind = bind, .build = build};
