/*
 * Gemma 2 and 3: embeddings scaled by the root of the width, GELU, norms before and after attention
 * and feed-forward, windows in most layers. Gemma 2 caps scores and logits softly; Gemma 3 norms
 * the heads of q and k instead, and turns local layers by another base.
 */
#include <math.h>

#include "model/transformer.h"

static void configure_both(model_config *c, int period, int n_layers_27b)
{
    c->rope.is_neox = true;
    c->embedding_scale = sqrt(c->n_embd);
    config_set_windows(c, period);
    /* The largest of each family scales q by the width of an even share of the heads. */
    if (c->attention_scale == 0 && c->n_layers == n_layers_27b)
        c->attention_scale = 1 / sqrt((double)c->n_embd / c->n_heads);
}

static lace_status configure_gemma2(model_config *c, lace_error *err)
{
    configure_both(c, 2, 46);
    return LACE_OK;
}

static lace_status configure_gemma3(model_config *c, lace_error *err)
{
    configure_both(c, 6, 62);
    c->norms_each_head = true;
    if (c->rope_local_base == 0)
        c->rope_local_base = 10000;
    return LACE_OK;
}

static lace_status bind(model *m, lace_error *err)
{
    const model_config *c = &m->config;
    int64_t n_embd = c->n_embd;
    TRY(bind_ends(m, err));
    for (int i = 0; i < c->n_layers; i++) {
        model_layer *l = &m->layers[i];
        TRY(bind_vector(m, &l->attn_norm, n_embd, err, "blk.%d.attn_norm.weight", i));
        TRY(bind_attention(m, i, err));
        TRY(bind_optional(m, &l->q_norm, c->head_dim, err, "blk.%d.attn_q_norm.weight", i));
        TRY(bind_optional(m, &l->k_norm, c->head_dim, err, "blk.%d.attn_k_norm.weight", i));
        TRY(bind_vector(m, &l->attn_post_norm, n_embd, err, "blk.%d.post_attention_norm.weight",
                        i));
        TRY(bind_vector(m, &l->ffn_norm, n_embd, err, "blk.%d.ffn_norm.weight", i));
        TRY(bind_ffn(m, i, err));
        TRY(bind_vector(m, &l->ffn_post_norm, n_embd, err, "blk.%d.post_ffw_norm.weight", i));
    }
    return bind_rope(m, err);
}

static void build(const model *m, plan *p, const layer_memory *memory)
{
    value x = plan_embed(p, &m->table, (float)m->config.embedding_scale);
    angles turn = build_angles(m, p);
    for (int i = 0; i < m->config.n_layers; i++) {
        const model_layer *l = &m->layers[i];
        p->layer = i;
        value a = build_attention(m, p, i, build_norm(m, p, x, l->attn_norm), turn, memory);
        x = build_residual(m, p, x, a, l->attn_post_norm);
        value f = build_ffn(m, p, i, build_norm(m, p, x, l->ffn_norm), GLU_GELU_TANH);
        x = build_residual(m, p, x, f, l->ffn_post_norm);
    }
    p->layer = -1;
    build_logits(m, p, x);
}

enum { TAKES = ARCH_WINDOW | ARCH_ATTENTION_SCALE | ARCH_SOFTCAPS };

const arch arch_gemma2 = {
    .name = "gemma2", .takes = TAKES, .configure = configure_gemma2, .bind = bind, .build = build};
const arch arch_gemma3 = {
    .name = "gemma3", .takes = TAKES, .configure = configure_gemma3, .bind = bind, .build = build};
