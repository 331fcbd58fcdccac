/* Parts that many architectures share: attention, feed-forward, experts, logits. */
#include "model/transformer.h"

#include <math.h>

/* ---- Binding --------------------------------------------------------------------------------- */

lace_status bind_ends(model *m, lace_error *err)
{
    TRY(bind_embedding(m, err));
    return bind_vector(m, &m->output_norm, m->config.n_embd, err, "output_norm.weight");
}

lace_status bind_attention(model *m, int i, lace_error *err)
{
    const model_config *c = &m->config;
    model_layer *l = &m->layers[i];
    int64_t q = config_q_width(c, i), kv = config_kv_width(c, i);
    if (bind_has(m, "blk.%d.attn_qkv.weight", i)) {
        const char *name = "blk.%d.attn_qkv.weight";
        int64_t all = q + 2 * kv;
        TRY(bind_rows(m, &l->wq, all, 0, q, c->n_embd, err, name, i));
        TRY(bind_rows(m, &l->wk, all, q, kv, c->n_embd, err, name, i));
        TRY(bind_rows(m, &l->wv, all, q + kv, kv, c->n_embd, err, name, i));
    } else {
        TRY(bind_matrix(m, &l->wq, q, c->n_embd, err, "blk.%d.attn_q.weight", i));
        TRY(bind_matrix(m, &l->wk, kv, c->n_embd, err, "blk.%d.attn_k.weight", i));
        TRY(bind_matrix(m, &l->wv, kv, c->n_embd, err, "blk.%d.attn_v.weight", i));
        TRY(bind_optional(m, &l->bq, q, err, "blk.%d.attn_q.bias", i));
        TRY(bind_optional(m, &l->bk, kv, err, "blk.%d.attn_k.bias", i));
        TRY(bind_optional(m, &l->bv, kv, err, "blk.%d.attn_v.bias", i));
    }
    TRY(bind_matrix(m, &l->wo, c->n_embd, q, err, "blk.%d.attn_output.weight", i));
    return bind_optional(m, &l->bo, c->n_embd, err, "blk.%d.attn_output.bias", i);
}

lace_status bind_ffn(model *m, int i, lace_error *err)
{
    const model_config *c = &m->config;
    model_layer *l = &m->layers[i];
    int64_t n_ff = c->layers[i].n_ff;
    if (bind_has(m, "blk.%d.ffn_gate.weight", i)) {
        TRY(bind_matrix(m, &l->gate, n_ff, c->n_embd, err, "blk.%d.ffn_gate.weight", i));
        TRY(bind_matrix(m, &l->up, n_ff, c->n_embd, err, "blk.%d.ffn_up.weight", i));
    } else {
        /* Both in one tensor, the gate first. */
        const char *name = "blk.%d.ffn_up.weight";
        TRY(bind_rows(m, &l->gate, 2 * n_ff, 0, n_ff, c->n_embd, err, name, i));
        TRY(bind_rows(m, &l->up, 2 * n_ff, n_ff, n_ff, c->n_embd, err, name, i));
    }
    return bind_matrix(m, &l->down, c->n_embd, n_ff, err, "blk.%d.ffn_down.weight", i);
}

lace_status bind_moe(model *m, int i, lace_error *err)
{
    const model_config *c = &m->config;
    model_layer *l = &m->layers[i];
    int64_t n = c->n_experts, n_ff = c->n_ff_expert, n_embd = c->n_embd;
    TRY(bind_matrix(m, &l->router, n, n_embd, err, "blk.%d.ffn_gate_inp.weight", i));
    TRY(bind_optional(m, &l->router_bias, n, err, "blk.%d.ffn_gate_inp.bias", i));
    TRY(bind_experts(m, &l->gate_experts, n_ff, n_embd, err, "blk.%d.ffn_gate_exps.weight", i));
    TRY(bind_experts(m, &l->up_experts, n_ff, n_embd, err, "blk.%d.ffn_up_exps.weight", i));
    TRY(bind_experts(m, &l->down_experts, n_embd, n_ff, err, "blk.%d.ffn_down_exps.weight", i));
    TRY(bind_optional(m, &l->gate_experts_bias, n * n_ff, err, "blk.%d.ffn_gate_exps.bias", i));
    TRY(bind_optional(m, &l->up_experts_bias, n * n_ff, err, "blk.%d.ffn_up_exps.bias", i));
    return bind_optional(m, &l->down_experts_bias, n * n_embd, err, "blk.%d.ffn_down_exps.bias", i);
}

lace_status bind_rope(model *m, lace_error *err)
{
    const model_config *c = &m->config;
    const float *factors, *short_factors, *long_factors;
    int64_t n = c->rope.n_dims / 2;
    TRY(bind_optional(m, &factors, n, err, "rope_freqs.weight"));
    TRY(bind_optional(m, &short_factors, n, err, "rope_factors_short.weight"));
    TRY(bind_optional(m, &long_factors, n, err, "rope_factors_long.weight"));
    if (c->rope.scaling == ROPE_LONGROPE && !short_factors && !long_factors)
        return error_set(err, LACE_E_META,
                         "tensors rope_factors_short.weight and rope_factors_long.weight "
                         "are missing: rope.scaling.type is longrope");
    TRY(rope_prepare(&c->rope, short_factors ? short_factors : factors, &m->memory, &m->rope, err));
    if (long_factors)
        TRY(rope_prepare(&c->rope, long_factors, &m->memory, &m->rope_long, err));
    m->rope_local = m->rope;
    if (c->rope_local_base > 0) {
        rope_config local = c->rope;
        local.base = c->rope_local_base;
        local.scaling = ROPE_PLAIN;
        TRY(rope_prepare(&local, NULL, &m->memory, &m->rope_local, err));
    }
    return LACE_OK;
}

/* ---- Building -------------------------------------------------------------------------------- */

/* The rotation of layers that see everything, for the contexts of this plan. */
static const rope_params *global_rope(const model *m, const plan *p)
{
    bool is_long =
        m->rope_long.frequencies && p->limits.n_context > m->config.rope.original_context;
    return is_long ? &m->rope_long : &m->rope;
}

angles build_angles(const model *m, plan *p)
{
    angles a;
    a.all = a.local = plan_rope_table(p, global_rope(m, p));
    if (m->config.rope_local_base > 0)
        a.local = plan_rope_table(p, &m->rope_local);
    return a;
}

static value rms_norm(const model *m, plan *p, value x, const float *scales, int64_t group)
{
    norm_params norm = {
        .kind = OP_RMS_NORM, .scales = scales, .group = group, .eps = m->config.norm_eps};
    return plan_norm(p, x, &norm);
}

/* group: values that are normed together; 0: all of them. */
static value norm_heads(const model *m, plan *p, value x, const float *scales, int64_t group)
{
    if (!scales || p->status != LACE_OK)
        return x;
    return rms_norm(m, p, x, scales, group > 0 ? group : p->values[x].width);
}

value build_attention(const model *m, plan *p, int i, value n, angles turn,
                      const layer_memory *memory)
{
    const model_config *c = &m->config;
    const layer_config *kind = &c->layers[i];
    const model_layer *l = &m->layers[i];
    bool is_local = kind->is_local && c->window > 0;
    attend_params params = {
        .n_heads = kind->n_heads,
        .scale =
            c->attention_scale > 0 ? (float)c->attention_scale : 1 / sqrtf((float)kind->head_dim),
        .window = is_local ? c->window : 0,
        .softcap = (float)c->attention_softcap,
        .sinks = l->sinks,
    };
    value q = plan_linear(p, n, &l->wq, l->bq, 1);
    value k = plan_linear(p, n, &l->wk, l->bk, 1);
    value v = plan_linear(p, n, &l->wv, l->bv, 1);
    int64_t group = c->norms_each_head ? kind->head_dim : 0;
    q = norm_heads(m, p, q, l->q_norm, group);
    k = norm_heads(m, p, k, l->k_norm, group);
    if (!kind->skips_rope) {
        const rope_params *rope = is_local ? &m->rope_local : global_rope(m, p);
        value table = is_local ? turn.local : turn.all;
        q = plan_rope(p, q, table, rope, kind->n_heads, kind->head_dim);
        k = plan_rope(p, k, table, rope, kind->n_kv_heads, kind->head_dim);
    }
    plan_kv_write(p, k, v, &memory[i].kv);
    value a = plan_attend(p, q, &memory[i].kv, &params);
    return plan_linear(p, a, &l->wo, l->bo, 1);
}

value build_ffn(const model *m, plan *p, int i, value n, glu_kind kind)
{
    const model_layer *l = &m->layers[i];
    value gate = plan_linear(p, n, &l->gate, NULL, 1);
    value up = plan_linear(p, n, &l->up, NULL, 1);
    return plan_linear(p, plan_glu(p, kind, gate, up), &l->down, NULL, 1);
}

/* x += residual_scale * the experts' answer to n. */
static value add_experts(const model *m, plan *p, int i, value x, value n, glu_kind kind)
{
    const model_config *c = &m->config;
    const model_layer *l = &m->layers[i];
    moe_params moe = {.gate = l->gate_experts,
                      .up = l->up_experts,
                      .down = l->down_experts,
                      .gate_bias = l->gate_experts_bias,
                      .up_bias = l->up_experts_bias,
                      .down_bias = l->down_experts_bias,
                      .n_experts = c->n_experts,
                      .n_used = c->n_experts_used,
                      .rule = {.norms = c->norms_experts},
                      .glu = kind};
    value logits = plan_linear(p, n, &l->router, l->router_bias, 1);
    return plan_moe_add(p, x, n, logits, &moe, (float)c->residual_scale);
}

value build_norm(const model *m, plan *p, value x, const float *scales)
{
    return rms_norm(m, p, x, scales, m->config.n_embd);
}

value build_residual(const model *m, plan *p, value x, value y, const float *scales)
{
    if (scales)
        y = build_norm(m, p, y, scales);
    return plan_add(p, x, y, (float)m->config.residual_scale);
}

void build_logits(const model *m, plan *p, value x)
{
    const model_config *c = &m->config;
    value last = build_norm(m, p, plan_gather(p, x), m->output_norm);
    if (p->limits.stops_at_hidden) {
        plan_result(p, last);
        return;
    }
    value logits = plan_linear(p, last, &m->output, NULL, (float)(1 / c->logit_scale));
    if (c->final_softcap > 0)
        logits = plan_softcap(p, logits, (float)c->final_softcap);
    plan_result(p, logits);
}

void build_pre_norm(const model *m, plan *p, const layer_memory *memory, glu_kind kind)
{
    value x = plan_embed(p, &m->table, (float)m->config.embedding_scale);
    angles turn = build_angles(m, p);
    for (int i = 0; i < m->config.n_layers; i++) {
        const model_layer *l = &m->layers[i];
        p->layer = i;
        value a = build_attention(m, p, i, build_norm(m, p, x, l->attn_norm), turn, memory);
        x = build_residual(m, p, x, a, NULL);
        value n = build_norm(m, p, x, l->ffn_norm);
        if (m->config.layers[i].has_experts)
            x = add_experts(m, p, i, x, n, kind);
        else
            x = build_residual(m, p, x, build_ffn(m, p, i, n, kind), NULL);
    }
    p->layer = -1;
    build_logits(m, p, x);
}
