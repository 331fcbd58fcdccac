/* Mamba-2: state spaces alone, one in each layer. */
#include "model/state_space.h"

static lace_status configure(model_config *c, lace_error *err)
{
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].kind = LAYER_RECURRENT;
    return LACE_OK;
}

static lace_status bind(model *m, lace_error *err)
{
    TRY(bind_ends(m, err));
    for (int i = 0; i < m->config.n_layers; i++) {
        TRY(bind_vector(m, &m->layers[i].attn_norm, m->config.n_embd, err,
                        "blk.%d.attn_norm.weight", i));
        TRY(bind_state_space(m, i, true, err));
    }
    return LACE_OK;
}

static void state(const model_config *c, int32_t layer, layer_state *out)
{
    state_space_state(c, out);
}

static void build(const model *m, plan *p, const layer_memory *memory)
{
    value x = plan_embed(p, &m->table, 1);
    for (int i = 0; i < m->config.n_layers; i++) {
        p->layer = i;
        value n = build_norm(m, p, x, m->layers[i].attn_norm);
        x = build_residual(m, p, x, build_state_space(m, p, i, n, memory), NULL);
    }
    build_logits(m, p, x);
}

const arch arch_mamba2 = {.name = "mamba2",
                          .takes = ARCH_LAYER_KINDS | ARCH_STATE_SPACE,
                          .read = read_state_space,
                          .configure = configure,
                          .bind = bind,
                          .state = state,
                          .build = build};
