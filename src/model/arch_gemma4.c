/*
 * Gemma 4: as Gemma 3, with other heads in full layers than in local ones, values that are normed,
 * and what a layer gives out scaled. The small ones have a second embedding and layers that share
 * keys and values; in the large ones the values of full layers are their keys. A mixture of experts
 * lies beside a feed-forward part, and both answers are added.
 */
#include <math.h>

#include "model/config_source.h"
#include "model/gemma_parts.h"

/* Heads of local layers, which is what the keys for all layers do not speak of. */
static lace_status read(const config_source *s, model_config *c)
{
    int32_t dim = c->head_dim, v_dim, n_dims;
    TRY(config_int(s, "attention.key_length_swa", 1, CONFIG_MAX_HEAD_DIM, &dim, NULL));
    v_dim = dim;
    TRY(config_int(s, "attention.value_length_swa", 1, CONFIG_MAX_HEAD_DIM, &v_dim, NULL));
    if (dim % 2 != 0 || (int64_t)c->n_heads * dim > CONFIG_MAX_WIDTH)
        return config_bad(s, "attention.key_length_swa", LACE_E_META,
                          "expected an even number of values, and fewer in all heads");
    if (v_dim != dim)
        return config_bad(s, "attention.value_length_swa", LACE_E_UNSUPPORTED,
                          "keys and values have different lengths, which lace does not support");
    n_dims = dim;
    TRY(config_int(s, "rope.dimension_count_swa", 2, dim, &n_dims, NULL));
    if (n_dims % 2 != 0)
        return config_bad(s, "rope.dimension_count_swa", LACE_E_META,
                          "is odd, expected an even number");
    c->rope_local_dims = n_dims;
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].head_dim = c->layers[i].is_local ? dim : c->head_dim;
    c->head_dim = dim > c->head_dim ? dim : c->head_dim;
    return gemma_read_layers(s, c);
}

static lace_status bind_mixture(model *m, int i, lace_error *err)
{
    int64_t n_embd = m->config.n_embd;
    model_layer *l = &m->layers[i];
    TRY(bind_moe(m, i, err));
    TRY(bind_vector(m, &l->router_norm, n_embd, err, "blk.%d.ffn_gate_inp.scale", i));
    TRY(bind_vector(m, &l->experts_norm, n_embd, err, "blk.%d.pre_ffw_norm_2.weight", i));
    TRY(bind_vector(m, &l->ffn_branch_norm, n_embd, err, "blk.%d.post_ffw_norm_1.weight", i));
    return bind_vector(m, &l->experts_branch_norm, n_embd, err, "blk.%d.post_ffw_norm_2.weight", i);
}

/* The scale of what the layer gives out goes into the norm of what is added last. */
static lace_status bind_output_scale(model *m, int i, lace_error *err)
{
    model_layer *l = &m->layers[i];
    const float *scale;
    TRY(bind_optional(m, &scale, 1, err, "blk.%d.layer_output_scale.weight", i));
    l->output_scale = scale ? *scale : 1;
    return gemma_scale_norm(m, m->config.n_embd_layer > 0 ? &l->second_norm : &l->ffn_post_norm,
                            m->config.n_embd, l->output_scale, err);
}

static lace_status bind(model *m, lace_error *err)
{
    const model_config *c = &m->config;
    int64_t n_embd = c->n_embd;
    TRY(bind_ends(m, err));
    TRY(gemma_bind_second(m, err));
    for (int i = 0; i < c->n_layers; i++) {
        model_layer *l = &m->layers[i];
        TRY(gemma_bind_layer(m, i, err));
        if (c->layers[i].has_experts)
            TRY(bind_mixture(m, i, err));
        TRY(bind_vector(m, &l->ffn_post_norm, n_embd, err, "blk.%d.post_ffw_norm.weight", i));
        TRY(gemma_bind_second_of(m, i, err));
        TRY(bind_output_scale(m, i, err));
    }
    return bind_rope(m, err);
}

/* Both answers to x, each normed, added up. */
static value mixture(const model *m, plan *p, int i, value x, value dense)
{
    const model_config *c = &m->config;
    const model_layer *l = &m->layers[i];
    moe_params moe = build_moe_params(m, i, GLU_GELU_TANH);
    value logits = plan_linear(p, build_norm(m, p, x, l->router_norm), &l->router, NULL,
                               1 / sqrtf((float)c->n_embd));
    value e = plan_moe(p, build_norm(m, p, x, l->experts_norm), logits, &moe, 1);
    dense = build_norm(m, p, dense, l->ffn_branch_norm);
    return plan_add(p, dense, build_norm(m, p, e, l->experts_branch_norm), 1);
}

static void build(const model *m, plan *p, const layer_memory *memory)
{
    const model_config *c = &m->config;
    value x = plan_embed(p, &m->table, (float)c->embedding_scale);
    value second = gemma_second(m, p, x);
    angles turn = build_angles(m, p);
    for (int i = 0; i < c->n_layers; i++) {
        const model_layer *l = &m->layers[i];
        p->layer = i;
        value a = gemma_attention(m, p, i, build_norm(m, p, x, l->attn_norm), turn, memory);
        x = build_residual(m, p, x, a, l->attn_post_norm);
        value f = build_ffn(m, p, i, build_norm(m, p, x, l->ffn_norm), GLU_GELU_TANH);
        if (c->layers[i].has_experts)
            f = mixture(m, p, i, x, f);
        value last = build_norm(m, p, f, l->ffn_post_norm);
        if (c->n_embd_layer > 0) {
            x = plan_add(p, x, last, 1);
            last = gemma_second_of(m, p, i, second, x);
        }
        /* The norm has scaled it already. */
        x = plan_add(p, last, x, l->output_scale);
    }
    build_logits(m, p, x);
}

const arch arch_gemma4 = GEMMA_ARCH("gemma4", ARCH_EXPERTS);
