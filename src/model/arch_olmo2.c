/* OLMo 2: norms after attention and feed-forward, not before; q and k are normed over all heads. */
#include "model/config_source.h"
#include "model/transformer.h"

static lace_status configure(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    config_set_windows(c, 4); /* OLMo 3, whose layers with a window turn by the plain angles */
    if (c->window > 0 && c->rope_local_base == 0)
        c->rope_local_base = c->rope.base;
    return LACE_OK;
}

static lace_status read(const config_source *s, model_config *c)
{
    return config_float(s, "rope.scaling.yarn_attn_factor", 1e-3, 1e3, &c->rope.attention_factor,
                        NULL);
}

static lace_status bind(model *m, lace_error *err)
{
    const model_config *c = &m->config;
    TRY(bind_ends(m, err));
    for (int i = 0; i < c->n_layers; i++) {
        model_layer *l = &m->layers[i];
        TRY(bind_attention(m, i, err));
        TRY(bind_vector(m, &l->q_norm, config_q_width(c, i), err, "blk.%d.attn_q_norm.weight", i));
        TRY(bind_vector(m, &l->k_norm, config_kv_width(c, i), err, "blk.%d.attn_k_norm.weight", i));
        TRY(bind_vector(m, &l->attn_post_norm, c->n_embd, err, "blk.%d.post_attention_norm.weight",
                        i));
        TRY(bind_ffn(m, i, err));
        TRY(bind_vector(m, &l->ffn_post_norm, c->n_embd, err, "blk.%d.post_ffw_norm.weight", i));
    }
    return bind_rope(m, err);
}

static void build(const model *m, plan *p, const layer_memory *memory)
{
    value x = plan_embed(p, &m->table, 1);
    angles turn = build_angles(m, p);
    for (int i = 0; i < m->config.n_layers; i++) {
        const model_layer *l = &m->layers[i];
        p->layer = i;
        x = build_residual(m, p, x, build_attention(m, p, i, x, turn, memory), l->attn_post_norm);
        x = build_residual(m, p, x, build_ffn(m, p, i, x, GLU_SILU), l->ffn_post_norm);
    }
    build_logits(m, p, x);
}

const arch arch_olmo2 = {.name = "olmo2",
                         .takes = ARCH_WINDOW | ARCH_PATTERN | ARCH_YARN_FACTOR,
                         .read = read,
                         .configure = configure,
                         .bind = bind,
                         .build = build};
