/*
 * Qwen3-Next and Qwen3.5: layers of a gated delta net, with one that attends after each few of them.
 * What attention gives out is gated, by rows of q's matrix. In the mixtures one expert is shared,
 * behind a gate of its own.
 */
#include "model/delta_net.h"
#include "model/transformer.h"

#include <string.h>

/* Each n-th layer attends. */
static lace_status read_kinds(const config_source *s, model_config *c)
{
    int32_t interval = 4;
    TRY(config_int(s, "full_attention_interval", 1, CONFIG_MAX_LAYERS, &interval, NULL));
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].kind = (i + 1) % interval == 0 ? LAYER_ATTENTION : LAYER_RECURRENT;
    return LACE_OK;
}

static lace_status read(const config_source *s, model_config *c)
{
    TRY(delta_net_read(s, &c->delta));
    TRY(config_sections(s, &c->rope));
    return read_kinds(s, c);
}

static lace_status configure(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    c->rope.interleaves_sections = true;
    c->norms_each_head = true;
    c->gates_attention = true;
    c->delta.is_tiled = strcmp(c->architecture, "qwen3next") != 0;
    return LACE_OK;
}

/* Files do not say which layers have experts: those that have a router. */
static lace_status bind_experts_or_ffn(model *m, int i, lace_error *err)
{
    const model_config *c = &m->config;
    if (c->n_experts > 0)
        m->config.layers[i].has_experts = bind_has(m, "blk.%d.ffn_gate_inp.weight", i);
    if (!c->layers[i].has_experts)
        return bind_ffn(m, i, err);
    TRY(bind_moe(m, i, err));
    TRY(bind_shared_experts(m, i, true, err));
    if (m->layers[i].shared_router.n_rows == 0)
        return error_set(err, LACE_E_META, "tensor blk.%d.ffn_%s_shexp.weight is missing", i,
                         m->layers[i].shared_up.n_rows == 0 ? "up" : "gate_inp");
    return LACE_OK;
}

static lace_status bind_layer(model *m, int i, lace_error *err)
{
    const model_config *c = &m->config;
    model_layer *l = &m->layers[i];
    TRY(bind_vector(m, &l->attn_norm, c->n_embd, err, "blk.%d.attn_norm.weight", i));
    if (c->layers[i].kind == LAYER_RECURRENT) {
        TRY(bind_delta_net(m, i, err));
    } else {
        TRY(bind_attention(m, i, err));
        TRY(bind_vector(m, &l->q_norm, c->head_dim, err, "blk.%d.attn_q_norm.weight", i));
        TRY(bind_vector(m, &l->k_norm, c->head_dim, err, "blk.%d.attn_k_norm.weight", i));
    }
    TRY(bind_vector(m, &l->ffn_norm, c->n_embd, err, "blk.%d.post_attention_norm.weight", i));
    return bind_experts_or_ffn(m, i, err);
}

static lace_status bind(model *m, lace_error *err)
{
    TRY(bind_ends(m, err));
    for (int i = 0; i < m->config.n_layers; i++)
        TRY(bind_layer(m, i, err));
    return bind_rope(m, err);
}

static void state(const model_config *c, int32_t layer, layer_state *out)
{
    if (c->layers[layer].kind == LAYER_RECURRENT)
        *out = delta_net_state(&c->delta);
}

static const decoder_form form = {.act = GLU_SILU, .build_mixer = build_delta_net};

#define DELTA_ARCH                                                                                 \
    .read = read, .configure = configure, .form = &form, .bind = bind, .state = state,             \
    .bind_layer = bind_layer

enum {
    DENSE_KEYS = ARCH_RECURRENT | ARCH_SECTIONS | ARCH_NEXTN,
    MOE_KEYS = DENSE_KEYS | ARCH_EXPERTS | ARCH_ROUTING
};

const arch arch_qwen3next = {.name = "qwen3next", .takes = MOE_KEYS, DELTA_ARCH};
const arch arch_qwen35 = {.name = "qwen35", .takes = DENSE_KEYS, DELTA_ARCH};
const arch arch_qwen35moe = {.name = "qwen35moe", .takes = MOE_KEYS, DELTA_ARCH};
