/*
 * Falcon-H1: attention and a state space side by side on one normed input, in every layer. What
 * matrices make is multiplied with factors, which in GGUF files are in the weights.
 */
#include "model/state_space.h"

#include <math.h>

/* What attention reads is multiplied, and its keys once more: both act on the scores alike. */
static lace_status configure(model_config *c, lace_error *err)
{
    double factor = c->mup.attention_in * c->mup.attention_in * c->mup.key;
    c->rope.is_neox = true;
    if (factor != 1)
        c->attention_scale = factor / sqrt((double)c->head_dim);
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
        TRY(bind_state_space(m, i, false, err));
        TRY(bind_vector(m, &l->ffn_norm, c->n_embd, err, "blk.%d.ffn_norm", i));
        TRY(bind_ffn(m, i, err));
    }
    return bind_rope(m, err);
}

static void state(const model_config *c, int32_t layer, layer_state *out)
{
    state_space_state(c, out);
}

static value build_scaled_ffn(const model *m, plan *p, int i, value n)
{
    const model_layer *l = &m->layers[i];
    value gate = plan_linear(p, n, &l->gate, NULL, (float)m->config.mup.gate);
    value up = plan_linear(p, n, &l->up, NULL, 1);
    return plan_linear(p, plan_glu(p, GLU_SILU, gate, up), &l->down, NULL,
                       (float)m->config.mup.down);
}

static void build(const model *m, plan *p, const layer_memory *memory)
{
    const mup_config *by = &m->config.mup;
    value x = plan_embed(p, &m->table, (float)m->config.embedding_scale);
    angles turn = build_angles(m, p);
    for (int i = 0; i < m->config.n_layers; i++) {
        const model_layer *l = &m->layers[i];
        p->layer = i;
        value n = build_norm(m, p, x, l->attn_norm);
        value a = build_attention(m, p, i, n, turn, memory);
        value s = build_state_space(m, p, i, n, memory);
        x = plan_add(p, x, a, (float)(by->attention_in * by->attention_out));
        x = plan_add(p, x, s, 1);
        n = build_norm(m, p, x, l->ffn_norm);
        x = plan_add(p, x, build_scaled_ffn(m, p, i, n), 1);
    }
    build_logits(m, p, x);
}

const arch arch_falcon_h1 = {.name = "falcon-h1",
                             .takes = ARCH_ATTENTION_SCALE | ARCH_STATE_SPACE,
                             .read = read_state_space,
                             .configure = configure,
                             .bind = bind,
                             .state = state,
                             .build = build};
