/* Mixtures of experts: what architectures bind and build for their layers. */
#include "model/transformer.h"

/* ---- Binding --------------------------------------------------------------------------------- */

/* Gate and up, which may lie in one tensor, the rows of the gate first. */
static lace_status bind_gate_and_up(model *m, int i, int64_t width, lace_error *err)
{
    model_layer *l = &m->layers[i];
    int64_t n_ff = m->config.n_ff_expert;
    const char *both = "blk.%d.ffn_gate_up_exps.weight";
    if (bind_has(m, "blk.%d.ffn_gate_up_exps.weight", i)) {
        TRY(bind_expert_rows(m, &l->gate_experts, 2 * n_ff, 0, n_ff, width, err, both, i));
        return bind_expert_rows(m, &l->up_experts, 2 * n_ff, n_ff, n_ff, width, err, both, i);
    }
    TRY(bind_experts(m, &l->gate_experts, n_ff, width, err, "blk.%d.ffn_gate_exps.weight", i));
    return bind_experts(m, &l->up_experts, n_ff, width, err, "blk.%d.ffn_up_exps.weight", i);
}

lace_status bind_moe_parts(model *m, int i, int64_t width, bool has_gate, lace_error *err)
{
    const model_config *c = &m->config;
    model_layer *l = &m->layers[i];
    int64_t n = c->n_experts, n_ff = c->n_ff_expert;
    TRY(bind_matrix(m, &l->router, n, c->n_embd, err, "blk.%d.ffn_gate_inp.weight", i));
    TRY(bind_optional(m, &l->router_bias, n, err, "blk.%d.ffn_gate_inp.bias", i));
    TRY(bind_optional(m, &l->choice_bias, n, err, "blk.%d.exp_probs_b.bias", i));
    TRY(bind_optional(m, &l->expert_scales, n, err, "blk.%d.ffn_down_exps.scale", i));
    if (has_gate)
        TRY(bind_gate_and_up(m, i, width, err));
    else
        TRY(bind_experts(m, &l->up_experts, n_ff, width, err, "blk.%d.ffn_up_exps.weight", i));
    TRY(bind_experts(m, &l->down_experts, width, n_ff, err, "blk.%d.ffn_down_exps.weight", i));
    TRY(bind_optional(m, &l->gate_experts_bias, n * n_ff, err, "blk.%d.ffn_gate_exps.bias", i));
    TRY(bind_optional(m, &l->up_experts_bias, n * n_ff, err, "blk.%d.ffn_up_exps.bias", i));
    return bind_optional(m, &l->down_experts_bias, n * width, err, "blk.%d.ffn_down_exps.bias", i);
}

lace_status bind_moe(model *m, int i, lace_error *err)
{
    return bind_moe_parts(m, i, m->config.n_embd, true, err);
}

lace_status bind_shared_experts(model *m, int i, bool has_gate, lace_error *err)
{
    const model_config *c = &m->config;
    model_layer *l = &m->layers[i];
    int64_t n_ff = bind_n_rows(m, "blk.%d.ffn_up_shexp.weight", i), n_embd = c->n_embd;
    if (n_ff == 0 && c->n_experts_shared == 0)
        return LACE_OK;
    if (has_gate)
        TRY(bind_matrix(m, &l->shared_gate, n_ff, n_embd, err, "blk.%d.ffn_gate_shexp.weight", i));
    TRY(bind_matrix(m, &l->shared_up, n_ff, n_embd, err, "blk.%d.ffn_up_shexp.weight", i));
    TRY(bind_matrix(m, &l->shared_down, n_embd, n_ff, err, "blk.%d.ffn_down_shexp.weight", i));
    if (bind_has(m, "blk.%d.ffn_gate_inp_shexp.weight", i))
        TRY(bind_matrix(m, &l->shared_router, 1, n_embd, err, "blk.%d.ffn_gate_inp_shexp.weight",
                        i));
    return LACE_OK;
}

/* ---- Building -------------------------------------------------------------------------------- */

moe_params build_moe_params(const model *m, int i, glu_kind kind)
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
                      .rule = c->routing,
                      .weighs_inputs = c->weighs_inputs,
                      .glu = kind};
    moe.rule.bias = l->choice_bias;
    moe.rule.scales = l->expert_scales;
    return moe;
}

value build_shared_experts(const model *m, plan *p, int i, value n, glu_kind kind)
{
    const model_layer *l = &m->layers[i];
    value h, share = -1; /* first, next to the other router */
    if (l->shared_router.n_rows > 0)
        share = plan_linear(p, n, &l->shared_router, NULL, 1);
    if (l->shared_gate.n_rows > 0) {
        value gate = plan_linear(p, n, &l->shared_gate, NULL, 1);
        h = plan_glu(p, kind, gate, plan_linear(p, n, &l->shared_up, NULL, 1));
    } else {
        h = plan_act(p, kind, plan_linear(p, n, &l->shared_up, NULL, 1));
    }
    value y = plan_linear(p, h, &l->shared_down, NULL, 1);
    return l->shared_router.n_rows > 0 ? plan_glu(p, GLU_SIGMOID, share, y) : y;
}

value build_moe(const model *m, plan *p, int i, value x, value n, glu_kind kind)
{
    const model_layer *l = &m->layers[i];
    moe_params moe = build_moe_params(m, i, kind);
    float scale = (float)m->config.residual_scale;
    value logits = plan_linear(p, n, &l->router, l->router_bias, 1);
    x = plan_moe_add(p, x, n, logits, &moe, scale);
    if (l->shared_up.n_rows > 0)
        x = plan_add(p, x, build_shared_experts(m, p, i, n, kind), scale);
    return x;
}
