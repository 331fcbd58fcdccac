/*
 * Qwen: like llama, with biases on q, k and v (Qwen2) or norms on the heads of q and k (Qwen3), and
 * experts in its MoE form.
 */
#include "model/transformer.h"

static lace_status configure(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    c->norms_each_head = true;
    config_set_windows(c, 0); /* the window in the files of Qwen2 is not used */
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
        TRY(bind_optional(m, &l->q_norm, c->head_dim, err, "blk.%d.attn_q_norm.weight", i));
        TRY(bind_optional(m, &l->k_norm, c->head_dim, err, "blk.%d.attn_k_norm.weight", i));
        TRY(bind_vector(m, &l->ffn_norm, c->n_embd, err, "blk.%d.ffn_norm.weight", i));
        TRY(c->layers[i].has_experts ? bind_moe(m, i, err) : bind_ffn(m, i, err));
    }
    return bind_rope(m, err);
}

static void build(const model *m, plan *p, const layer_memory *memory)
{
    build_pre_norm(m, p, memory, GLU_SILU);
}

const arch arch_qwen2 = {
    .name = "qwen2", .takes = ARCH_WINDOW, .configure = configure, .bind = bind, .build = build};
const arch arch_qwen3 = {
    .name = "qwen3", .takes = ARCH_WINDOW, .configure = configure, .bind = bind, .build = build};
const arch arch_qwen3moe = {.name = "qwen3moe",
                            .takes = ARCH_WINDOW | ARCH_EXPERTS,
                            .configure = configure,
                            .bind = bind,
                            .build = build};
