/*
 * Phi-3 and Phi-4: llama with q, k, v and gate, up in one tensor each, a rotary embedding that may
 * turn only part of a head, and factors for long contexts.
 */
#include "model/transformer.h"

static lace_status configure(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    /* The window in the files of Phi-3 mini is not smaller than its original context. */
    config_set_windows(c, 1);
    return LACE_OK;
}

static lace_status bind(model *m, lace_error *err)
{
    TRY(bind_ends(m, err));
    for (int i = 0; i < m->config.n_layers; i++) {
        model_layer *l = &m->layers[i];
        TRY(bind_vector(m, &l->attn_norm, m->config.n_embd, err, "blk.%d.attn_norm.weight", i));
        TRY(bind_attention(m, i, err));
        TRY(bind_vector(m, &l->ffn_norm, m->config.n_embd, err, "blk.%d.ffn_norm.weight", i));
        TRY(bind_ffn(m, i, err));
    }
    return bind_rope(m, err);
}

static void build(const model *m, plan *p, const layer_memory *memory)
{
    build_pre_norm(m, p, memory, GLU_SILU);
}

const arch arch_phi3 = {
    .name = "phi3", .takes = ARCH_WINDOW, .configure = configure, .bind = bind, .build = build};
