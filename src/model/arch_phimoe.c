/*
 * Phi-3.5-MoE: norms that subtract the mean, biases everywhere but in the experts, SparseMixer as its
 * router, and positions stretched as in Phi-3.
 */
#include "model/transformer.h"

static lace_status configure(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    if (c->routing.scores != ROUTE_MIXER) /* files have no key for it */
        c->routing = (route_rule){.scores = ROUTE_MIXER, .jitter = 0.01f};
    return c->n_experts > 0 ? LACE_OK
                            : error_set(err, LACE_E_META, "phimoe.expert_count is missing");
}

static lace_status bind(model *m, lace_error *err)
{
    const model_config *c = &m->config;
    int64_t n = c->n_embd;
    TRY(bind_ends(m, err));
    TRY(bind_vector(m, &m->output_norm_bias, n, err, "output_norm.bias"));
    TRY(bind_optional(m, &m->output_bias, c->n_vocab, err, "output.bias"));
    for (int i = 0; i < c->n_layers; i++) {
        model_layer *l = &m->layers[i];
        TRY(bind_vector(m, &l->attn_norm, n, err, "blk.%d.attn_norm.weight", i));
        TRY(bind_vector(m, &l->attn_norm_bias, n, err, "blk.%d.attn_norm.bias", i));
        TRY(bind_attention(m, i, err));
        TRY(bind_vector(m, &l->ffn_norm, n, err, "blk.%d.ffn_norm.weight", i));
        TRY(bind_vector(m, &l->ffn_norm_bias, n, err, "blk.%d.ffn_norm.bias", i));
        TRY(bind_moe(m, i, err));
    }
    return bind_rope(m, err);
}

static value norm(const model *m, plan *p, value x, const float *scales, const float *bias)
{
    norm_params params = {.kind = OP_LAYER_NORM,
                          .scales = scales,
                          .bias = bias,
                          .group = m->config.n_embd,
                          .eps = m->config.norm_eps};
    return plan_norm(p, x, &params);
}

static void build(const model *m, plan *p, const layer_memory *memory)
{
    value x = plan_embed(p, &m->table, 1);
    angles turn = build_angles(m, p);
    for (int i = 0; i < m->config.n_layers; i++) {
        const model_layer *l = &m->layers[i];
        p->layer = i;
        value n = norm(m, p, x, l->attn_norm, l->attn_norm_bias);
        x = build_residual(m, p, x, build_attention(m, p, i, n, turn, memory), NULL);
        x = build_moe(m, p, i, x, norm(m, p, x, l->ffn_norm, l->ffn_norm_bias), GLU_SILU);
    }
    p->layer = -1;
    value last = norm(m, p, plan_gather(p, x), m->output_norm, m->output_norm_bias);
    plan_result(p, p->limits.stops_at_hidden ? last
                                             : plan_linear(p, last, &m->output, m->output_bias, 1));
}

const arch arch_phimoe = {
    .name = "phimoe", .takes = ARCH_EXPERTS, .configure = configure, .bind = bind, .build = build};
