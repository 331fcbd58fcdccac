/*
 * LFM2: gated short convolutions, and attention in some layers; with experts in all but the first
 * layers in its MoE form.
 */
#include "model/state_space.h"

static lace_status read(const config_source *s, model_config *c)
{
    TRY(config_need_int(s, "shortconv.l_cache", 2, CONFIG_MAX_TAPS, &c->ssm.n_taps));
    c->routing.norm_more = 1e-6f;
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].kind = c->layers[i].n_kv_heads == 0 ? LAYER_RECURRENT : LAYER_ATTENTION;
    return LACE_OK;
}

static lace_status configure(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    c->norms_each_head = true;
    config_set_windows(c, 1);
    return LACE_OK;
}

static lace_status bind_attending(model *m, int i, lace_error *err)
{
    int64_t n = m->config.layers[i].head_dim;
    model_layer *l = &m->layers[i];
    TRY(bind_attention(m, i, err));
    TRY(bind_vector(m, &l->q_norm, n, err, "blk.%d.attn_q_norm.weight", i));
    return bind_vector(m, &l->k_norm, n, err, "blk.%d.attn_k_norm.weight", i);
}

static lace_status bind(model *m, lace_error *err)
{
    const model_config *c = &m->config;
    TRY(bind_embedding(m, err));
    TRY(bind_vector(m, &m->output_norm, c->n_embd, err, "token_embd_norm.weight"));
    for (int i = 0; i < c->n_layers; i++) {
        model_layer *l = &m->layers[i];
        bool attends = c->layers[i].kind == LAYER_ATTENTION;
        TRY(bind_vector(m, &l->attn_norm, c->n_embd, err, "blk.%d.attn_norm.weight", i));
        TRY(attends ? bind_attending(m, i, err) : bind_short_conv(m, i, err));
        TRY(bind_vector(m, &l->ffn_norm, c->n_embd, err, "blk.%d.ffn_norm.weight", i));
        TRY(c->layers[i].has_experts ? bind_moe(m, i, err) : bind_ffn(m, i, err));
    }
    return bind_rope(m, err);
}

static void state(const model_config *c, int32_t layer, layer_state *out)
{
    if (c->layers[layer].kind == LAYER_RECURRENT)
        short_conv_state(c, out);
}

static void build(const model *m, plan *p, const layer_memory *memory)
{
    value x = plan_embed(p, &m->table, 1);
    angles turn = build_angles(m, p);
    for (int i = 0; i < m->config.n_layers; i++) {
        const model_layer *l = &m->layers[i];
        p->layer = i;
        value n = build_norm(m, p, x, l->attn_norm);
        x = build_residual(m, p, x,
                           m->config.layers[i].kind == LAYER_ATTENTION
                               ? build_attention(m, p, i, n, turn, memory)
                               : build_short_conv(m, p, i, n, memory),
                           NULL);
        n = build_norm(m, p, x, l->ffn_norm);
        x = m->config.layers[i].has_experts
                ? build_moe(m, p, i, x, n, GLU_SILU)
                : build_residual(m, p, x, build_ffn(m, p, i, n, GLU_SILU), NULL);
    }
    p->layer = -1;
    build_logits(m, p, x);
}

const arch arch_lfm2 = {.name = "lfm2",
                        .takes = ARCH_WINDOW | ARCH_LAYER_KINDS,
                        .read = read,
                        .configure = configure,
                        .bind = bind,
                        .state = state,
                        .build = build};
const arch arch_lfm2moe = {.name = "lfm2moe",
                           .takes = ARCH_EXPERTS | ARCH_ROUTING | ARCH_WINDOW | ARCH_LAYER_KINDS,
                           .read = read,
                           .configure = configure,
                           .bind = bind,
                           .state = state,
                           .build = build};
