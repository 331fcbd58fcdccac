/*
 * Nemotron-H: layers of one part each, a state space, attention that knows no positions, or a
 * feed-forward network with squared ReLU and no gate.
 */
#include "model/state_space.h"

static lace_status read(const config_source *s, model_config *c)
{
    TRY(read_state_space(s, c));
    for (int32_t i = 0; i < c->n_layers; i++) {
        layer_config *l = &c->layers[i];
        l->kind = l->n_ff > 0 ? LAYER_FFN : l->n_kv_heads > 0 ? LAYER_ATTENTION : LAYER_RECURRENT;
    }
    return LACE_OK;
}

static lace_status configure(model_config *c, lace_error *err)
{
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].skips_rope = true;
    return LACE_OK;
}

static lace_status bind_mlp(model *m, int i, lace_error *err)
{
    int64_t n_ff = m->config.layers[i].n_ff, n_embd = m->config.n_embd;
    model_layer *l = &m->layers[i];
    TRY(bind_matrix(m, &l->up, n_ff, n_embd, err, "blk.%d.ffn_up.weight", i));
    return bind_matrix(m, &l->down, n_embd, n_ff, err, "blk.%d.ffn_down.weight", i);
}

static lace_status bind_part(model *m, int i, lace_error *err)
{
    const layer_config *l = &m->config.layers[i];
    if (l->kind == LAYER_RECURRENT)
        return bind_state_space(m, i, true, err);
    if (l->kind == LAYER_ATTENTION)
        return bind_attention(m, i, err);
    return bind_mlp(m, i, err);
}

static lace_status bind(model *m, lace_error *err)
{
    TRY(bind_ends(m, err));
    for (int i = 0; i < m->config.n_layers; i++) {
        TRY(bind_vector(m, &m->layers[i].attn_norm, m->config.n_embd, err,
                        "blk.%d.attn_norm.weight", i));
        TRY(bind_part(m, i, err));
    }
    return LACE_OK;
}

static void state(const model_config *c, int32_t layer, layer_state *out)
{
    if (c->layers[layer].kind == LAYER_RECURRENT)
        state_space_state(c, out);
}

static value build_mlp(const model *m, plan *p, int i, value n)
{
    const model_layer *l = &m->layers[i];
    value up = plan_linear(p, n, &l->up, NULL, 1);
    return plan_linear(p, plan_act(p, GLU_RELU2, up), &l->down, NULL, 1);
}

static value build_part(const model *m, plan *p, int i, value n, const layer_memory *memory)
{
    layer_kind kind = m->config.layers[i].kind;
    return kind == LAYER_RECURRENT   ? build_state_space(m, p, i, n, memory)
           : kind == LAYER_ATTENTION ? build_attention(m, p, i, n, (angles){-1, -1}, memory)
                                     : build_mlp(m, p, i, n);
}

static void build(const model *m, plan *p, const layer_memory *memory)
{
    value x = plan_embed(p, &m->table, 1);
    for (int i = 0; i < m->config.n_layers; i++) {
        p->layer = i;
        value n = build_norm(m, p, x, m->layers[i].attn_norm);
        x = plan_add(p, x, build_part(m, p, i, n, memory), 1);
    }
    p->layer = -1;
    build_logits(m, p, x);
}

const arch arch_nemotron_h = {.name = "nemotron_h",
                              .takes = ARCH_LAYER_KINDS | ARCH_STATE_SPACE,
                              .read = read,
                              .configure = configure,
                              .bind = bind,
                              .state = state,
                              .build = build};
