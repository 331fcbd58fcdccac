/*
 * Nemotron-H: layers of one part each, a state space, attention that knows no positions, a
 * feed-forward network with squared ReLU and no gate, or experts of that kind.
 */
#include <stdio.h>

#include "model/state_space.h"

/* Whether a layer is a network without experts: no key says it where others have them. */
static bool has_mlp(const gguf *g, int32_t layer)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.ffn_up.weight", layer);
    return gguf_find_tensor(g, name) != NULL;
}

static lace_status read(const config_source *s, model_config *c)
{
    int32_t function = 0; /* files do not say that scores are sigmoids */
    TRY(read_state_space(s, c));
    TRY(config_int(s, "moe_latent_size", 0, CONFIG_MAX_WIDTH, &c->n_latent, NULL));
    TRY(config_int(s, "expert_gating_func", 0, 3, &function, NULL));
    if (function == 0) {
        c->routing.scores = ROUTE_SIGMOID;
        c->routing.n_ranking = 2;
    }
    c->routing.norm_more = 1e-20f;
    for (int32_t i = 0; i < c->n_layers; i++) {
        layer_config *l = &c->layers[i];
        l->kind = l->n_ff > 0 ? LAYER_FFN : l->n_kv_heads > 0 ? LAYER_ATTENTION : LAYER_RECURRENT;
        l->has_experts = c->n_experts > 0 && l->kind == LAYER_FFN && !has_mlp(s->g, i);
    }
    return LACE_OK;
}

static lace_status configure(model_config *c, lace_error *err)
{
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].skips_rope = true;
    return LACE_OK;
}

/* Experts may read and write rows of another width. */
static lace_status bind_mixture(model *m, int i, lace_error *err)
{
    int64_t n = m->config.n_latent, n_embd = m->config.n_embd;
    model_layer *l = &m->layers[i];
    TRY(bind_moe_parts(m, i, n > 0 ? n : n_embd, false, err));
    if (n > 0) {
        TRY(bind_matrix(m, &l->latent_down, n, n_embd, err, "blk.%d.ffn_latent_down.weight", i));
        TRY(bind_matrix(m, &l->latent_up, n_embd, n, err, "blk.%d.ffn_latent_up.weight", i));
    }
    return bind_shared_experts(m, i, false, err);
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
    return l->has_experts ? bind_mixture(m, i, err) : bind_mlp(m, i, err);
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

static value build_mixture(const model *m, plan *p, int i, value x, value n)
{
    const model_layer *l = &m->layers[i];
    if (m->config.n_latent == 0)
        return build_moe(m, p, i, x, n, GLU_RELU2);
    moe_params moe = build_moe_params(m, i, GLU_RELU2);
    value logits = plan_linear(p, n, &l->router, l->router_bias, 1);
    value y = plan_moe(p, plan_linear(p, n, &l->latent_down, NULL, 1), logits, &moe, 1);
    x = plan_add(p, x, plan_linear(p, y, &l->latent_up, NULL, 1), 1);
    return plan_add(p, x, build_shared_experts(m, p, i, n, GLU_RELU2), 1);
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
        const layer_config *l = &m->config.layers[i];
        p->layer = i;
        value n = build_norm(m, p, x, m->layers[i].attn_norm);
        x = l->has_experts ? build_mixture(m, p, i, x, n)
                           : plan_add(p, x, build_part(m, p, i, n, memory), 1);
    }
    build_logits(m, p, x);
}

#define NEMOTRON(more)                                                                             \
    .takes = ARCH_LAYER_KINDS | ARCH_STATE_SPACE | (more), .read = read, .configure = configure,   \
    .bind = bind, .state = state, .build = build

const arch arch_nemotron_h = {.name = "nemotron_h", NEMOTRON(0)};
const arch arch_nemotron_h_moe = {.name = "nemotron_h_moe", NEMOTRON(ARCH_EXPERTS | ARCH_ROUTING)};
