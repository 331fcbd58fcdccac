/*
 * Latent attention (DeepSeek-V2, arXiv 2405.04434): what is kept of a position is one row, a latent
 * of kv_rank values and a key of a few rotated ones, which all heads share. A head's keys and values
 * are products of its own small matrices with the latent; here the matrix of keys is applied to the
 * query instead, and that of values to what attention gives, so that heads attend to the rows
 * themselves:
 *
 *     q (k_b c) = (k_b' q) c          sum of shares (v_b c) = v_b (sum of shares c)
 */
#include <math.h>

#include "model/transformer.h"

/* What the norms of latents add to the variance, whatever that of the model is. */
#define LATENT_EPS 1e-6

void state_latent(const model_config *c, int32_t layer, layer_state *out)
{
    *out = layer_state_latent(c->head_dim, c->value_dim);
}

lace_status bind_latent_attention(model *m, int i, lace_error *err)
{
    const model_config *c = &m->config;
    const latent_config *t = &c->latent;
    model_layer *l = &m->layers[i];
    int64_t q = (int64_t)c->n_heads * (t->nope_dim + c->rope.n_dims);
    if (t->q_rank > 0) {
        TRY(bind_matrix(m, &l->wq_a, t->q_rank, c->n_embd, err, "blk.%d.attn_q_a.weight", i));
        TRY(bind_optional(m, &l->bq_a, t->q_rank, err, "blk.%d.attn_q_a.bias", i));
        TRY(bind_vector(m, &l->q_a_norm, t->q_rank, err, "blk.%d.attn_q_a_norm.weight", i));
        TRY(bind_matrix(m, &l->wq, q, t->q_rank, err, "blk.%d.attn_q_b.weight", i));
    } else {
        TRY(bind_matrix(m, &l->wq, q, c->n_embd, err, "blk.%d.attn_q.weight", i));
    }
    TRY(bind_matrix(m, &l->wk, c->head_dim, c->n_embd, err, "blk.%d.attn_kv_a_mqa.weight", i));
    TRY(bind_optional(m, &l->bk, c->head_dim, err, "blk.%d.attn_kv_a_mqa.bias", i));
    TRY(bind_vector(m, &l->kv_a_norm, t->kv_rank, err, "blk.%d.attn_kv_a_norm.weight", i));
    if (bind_has(m, "blk.%d.attn_k_b.weight", i)) {
        TRY(bind_heads(m, &l->k_b, c->n_heads, t->kv_rank, t->nope_dim, err,
                       "blk.%d.attn_k_b.weight", i));
        TRY(bind_heads(m, &l->v_b, c->n_heads, t->value_dim, t->kv_rank, err,
                       "blk.%d.attn_v_b.weight", i));
    } else {
        TRY(bind_split_heads(m, &l->k_b, &l->v_b, c->n_heads, t->nope_dim, t->value_dim, t->kv_rank,
                             err, "blk.%d.attn_kv_b.weight", i));
    }
    TRY(bind_matrix(m, &l->wo, c->n_embd, (int64_t)c->n_heads * t->value_dim, err,
                    "blk.%d.attn_output.weight", i));
    return bind_optional(m, &l->bo, c->n_embd, err, "blk.%d.attn_output.bias", i);
}

/* 1 / sqrt(head), and what YaRN makes of the attention's temperature, squared. */
static float latent_scale(const model_config *c)
{
    const rope_config *r = &c->rope;
    double scale = 1 / sqrt((double)(c->latent.nope_dim + r->n_dims));
    double mscale = r->factor > 1 ? 1 + 0.1 * r->yarn_mscale_all * log(r->factor) : 1;
    return (float)(scale * mscale * mscale);
}

static value norm_latent(plan *p, value x, const float *scales, int64_t n)
{
    norm_params norm = {.kind = OP_RMS_NORM, .scales = scales, .group = n, .eps = LATENT_EPS};
    return plan_norm(p, x, &norm);
}

value build_latent_attention(const model *m, plan *p, int i, value n, angles turn,
                             const layer_memory *memory)
{
    const model_config *c = &m->config;
    const latent_config *t = &c->latent;
    const model_layer *l = &m->layers[i];
    const int32_t n_heads = c->n_heads, turned = c->rope.n_dims, head = t->nope_dim + turned;
    /* What reads n first: products of one input that stand together can be fused. */
    value q = t->q_rank > 0 ? plan_linear(p, n, &l->wq_a, l->bq_a, 1)
                            : plan_linear(p, n, &l->wq, NULL, 1);
    value row = plan_linear(p, n, &l->wk, l->bk, 1);
    if (t->q_rank > 0)
        q = plan_linear(p, norm_latent(p, q, l->q_a_norm, t->q_rank), &l->wq, NULL, 1);
    value latent = norm_latent(p, plan_slice(p, row, 0, t->kv_rank), l->kv_a_norm, t->kv_rank);
    value key = plan_slice(p, row, t->kv_rank, turned);

    /* The end of each head of q is turned. */
    value ends = plan_slice(p, q, t->nope_dim, (int64_t)n_heads * head - t->nope_dim);
    plan_rope(p, ends, turn.all, &m->rope, n_heads, head);
    key = plan_rope(p, key, turn.all, &m->rope, 1, turned);
    if (c->temperature_scale != 0)
        q = plan_temperature(p, q, (float)c->temperature_scale, c->temperature_offset,
                             c->temperature_length);
    plan_kv_write(p, latent, key, &memory[i].kv);
    attend_params params = {.n_heads = n_heads, .scale = latent_scale(c)};
    value a =
        plan_attend(p, plan_linear_heads(p, q, l->k_b, n_heads, turned), &memory[i].kv, &params);
    return plan_linear(p, plan_linear_heads(p, a, l->v_b, n_heads, 0), &l->wo, l->bo, 1);
}
