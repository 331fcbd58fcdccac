/*
 * gpt-oss: experts with a clamped activation and biases, attention with biases and sinks (a score
 * per head that belongs to no position), a window in every other layer, and yarn whose ramp is not
 * rounded.
 */
#include "model/transformer.h"

static lace_status configure(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    c->rope.yarn_keeps_fractions = true;
    config_set_windows(c, 2);
    if (c->n_experts == 0)
        return error_set(err, LACE_E_META, "gpt-oss.expert_count is missing");
    return LACE_OK;
}

static lace_status bind(model *m, lace_error *err)
{
    const model_config *c = &m->config;
    TRY(bind_ends(m, err));
    for (int i = 0; i < c->n_layers; i++) {
        model_layer *l = &m->layers[i];
        TRY(bind_vector(m, &l->attn_norm, c->n_embd, err, "blk.%d.attn_norm.weight", i));
        TRY(bind_attention(m, i, err));
        TRY(bind_vector(m, &l->sinks, c->n_heads, err, "blk.%d.attn_sinks.weight", i));
        TRY(bind_vector(m, &l->ffn_norm, c->n_embd, err, "blk.%d.post_attention_norm.weight", i));
        TRY(bind_moe(m, i, err));
    }
    return bind_rope(m, err);
}

static void build(const model *m, plan *p, const layer_memory *memory)
{
    build_pre_norm(m, p, memory, GLU_CLAMPED);
}

const arch arch_gpt_oss = {.name = "gpt-oss",
                           .takes = ARCH_EXPERTS | ARCH_WINDOW,
                           .configure = configure,
                           .bind = bind,
                           .build = build};
