/*
 * Granite 4: most layers have a state space where the others have attention, which mostly knows no
 * positions. Experts with a shared one beside them, or a plain feed-forward network.
 */
#include "model/state_space.h"

static lace_status read(const config_source *s, model_config *c)
{
    bool has_rope = true;
    TRY(read_state_space(s, c));
    TRY(config_bool(s, "rope.scaling.finetuned", &has_rope, NULL));
    c->has_no_rope = !has_rope;
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].kind = c->layers[i].n_kv_heads == 0 ? LAYER_RECURRENT : LAYER_ATTENTION;
    return LACE_OK;
}

static lace_status configure(model_config *c, lace_error *err)
{
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].skips_rope = c->has_no_rope;
    return LACE_OK;
}

static lace_status bind_network(model *m, int i, lace_error *err)
{
    if (!m->config.layers[i].has_experts)
        return bind_ffn(m, i, err);
    TRY(bind_moe(m, i, err));
    return bind_shared_experts(m, i, true, err);
}

static lace_status bind(model *m, lace_error *err)
{
    const model_config *c = &m->config;
    TRY(bind_ends(m, err));
    for (int i = 0; i < c->n_layers; i++) {
        model_layer *l = &m->layers[i];
        bool attends = c->layers[i].kind == LAYER_ATTENTION;
        TRY(bind_vector(m, &l->attn_norm, c->n_embd, err, "blk.%d.attn_norm.weight", i));
        TRY(attends ? bind_attention(m, i, err) : bind_state_space(m, i, true, err));
        TRY(bind_vector(m, &l->ffn_norm, c->n_embd, err, "blk.%d.ffn_norm.weight", i));
        TRY(bind_network(m, i, err));
    }
    return bind_rope(m, err);
}

static void state(const model_config *c, int32_t layer, layer_state *out)
{
    if (c->layers[layer].kind == LAYER_RECURRENT)
        state_space_state(c, out);
}

static void build(const model *m, plan *p, const layer_memory *memory)
{
    const model_config *c = &m->config;
    value x = plan_embed(p, &m->table, (float)c->embedding_scale);
    angles turn = {-1, -1};
    if (!c->has_no_rope)
        turn = build_angles(m, p);
    for (int i = 0; i < c->n_layers; i++) {
        const model_layer *l = &m->layers[i];
        p->layer = i;
        value n = build_norm(m, p, x, l->attn_norm);
        x = build_residual(m, p, x,
                           c->layers[i].kind == LAYER_ATTENTION
                               ? build_attention(m, p, i, n, turn, memory)
                               : build_state_space(m, p, i, n, memory),
                           NULL);
        n = build_norm(m, p, x, l->ffn_norm);
        x = c->layers[i].has_experts
                ? build_moe(m, p, i, x, n, GLU_SILU)
                : build_residual(m, p, x, build_ffn(m, p, i, n, GLU_SILU), NULL);
    }
    p->layer = -1;
    build_logits(m, p, x);
}

const arch arch_granitehybrid = {.name = "granitehybrid",
                                 .takes = ARCH_EXPERTS | ARCH_ROUTING | ARCH_FACTORS |
                                          ARCH_ATTENTION_SCALE | ARCH_LAYER_KINDS |
                                          ARCH_STATE_SPACE,
                                 .read = read,
                                 .configure = configure,
                                 .bind = bind,
                                 .state = state,
                                 .build = build};
