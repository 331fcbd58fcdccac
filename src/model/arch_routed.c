/*
 * Mixtures of experts with the parts of Llama and Qwen, and routers of many kinds: GLM-4.5,
 * dots.llm1, MiniMax-M2, ERNIE 4.5, Hunyuan, Qwen2-MoE, OLMoE, Granite's. They differ in numbers, in
 * what q and k are normed by, and in what a file leaves unsaid.
 */
#include <string.h>

#include "model/config_source.h"
#include "model/transformer.h"

/* ---- What files leave unsaid ----------------------------------------------------------------- */

/* Sigmoid scores, unless the file has a word for them. */
static lace_status read_sigmoid(const config_source *s, model_config *c)
{
    int32_t function = 0;
    TRY(config_int(s, "expert_gating_func", 0, 3, &function, NULL));
    if (function == 0) {
        c->routing.scores = ROUTE_SIGMOID;
        c->routing.n_ranking = 2;
    }
    c->routing.norm_more = 1e-20f;
    return LACE_OK;
}

/* Weights that are not normed, unless the file says that they are. */
static lace_status read_not_normed(const config_source *s, model_config *c)
{
    c->routing.norms = false;
    return config_bool(s, "expert_weights_norm", &c->routing.norms, NULL);
}

static lace_status read_ernie(const config_source *s, model_config *c)
{
    c->routing.norm_least = 1e-12f;
    return LACE_OK;
}

static lace_status need_experts(model_config *c, lace_error *err)
{
    return c->n_experts > 0
               ? LACE_OK
               : error_set(err, LACE_E_META, "%s.expert_count is missing", c->architecture);
}

/* Pairs of the rope half a head apart; q and k are normed head by head, if at all. */
static lace_status configure_heads(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    c->norms_each_head = true;
    return need_experts(c, err);
}

/* q and k are normed over all heads together. */
static lace_status configure_all_heads(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    return need_experts(c, err);
}

/* Pairs of the rope side by side, in both formats. */
static lace_status configure_ernie(model_config *c, lace_error *err)
{
    c->rope.is_neox = false;
    return need_experts(c, err);
}

static lace_status configure_hunyuan(model_config *c, lace_error *err)
{
    c->norms_after_rope = true;
    return configure_heads(c, err);
}

/* ---------------------------------------------------------------------------------------------- */

static lace_status bind(model *m, lace_error *err)
{
    const model_config *c = &m->config;
    TRY(bind_ends(m, err));
    for (int i = 0; i < c->n_layers; i++) {
        model_layer *l = &m->layers[i];
        int64_t q = c->norms_each_head ? c->layers[i].head_dim : config_q_width(c, i),
                k = c->norms_each_head ? c->layers[i].head_dim : config_kv_width(c, i);
        const char *ffn_norm = strcmp(c->architecture, "glm4moe") == 0
                                   ? "blk.%d.post_attention_norm.weight"
                                   : "blk.%d.ffn_norm.weight";
        TRY(bind_vector(m, &l->attn_norm, c->n_embd, err, "blk.%d.attn_norm.weight", i));
        TRY(bind_attention(m, i, err));
        TRY(bind_optional(m, &l->q_norm, q, err, "blk.%d.attn_q_norm.weight", i));
        TRY(bind_optional(m, &l->k_norm, k, err, "blk.%d.attn_k_norm.weight", i));
        TRY(bind_vector(m, &l->ffn_norm, c->n_embd, err, ffn_norm, i));
        if (!c->layers[i].has_experts) {
            TRY(bind_ffn(m, i, err));
            continue;
        }
        TRY(bind_moe(m, i, err));
        TRY(bind_shared_experts(m, i, true, err));
    }
    return bind_rope(m, err);
}

static void build(const model *m, plan *p, const layer_memory *memory)
{
    build_pre_norm(m, p, memory, GLU_SILU);
}

#define ROUTED(id, name_, more, read_, configure_)                                                 \
    const arch arch_##id = {.name = name_,                                                         \
                            .takes = ARCH_EXPERTS | ARCH_ROUTING | (more),                         \
                            .read = read_,                                                         \
                            .configure = configure_,                                               \
                            .bind = bind,                                                          \
                            .build = build}

ROUTED(glm4moe, "glm4moe", ARCH_NEXTN, read_sigmoid, configure_heads);
ROUTED(dots1, "dots1", 0, read_sigmoid, configure_heads);
ROUTED(minimax_m2, "minimax-m2", 0, read_sigmoid, configure_all_heads);
ROUTED(ernie4_5_moe, "ernie4_5-moe", 0, read_ernie, configure_ernie);
ROUTED(hunyuan_moe, "hunyuan-moe", 0, NULL, configure_hunyuan);
ROUTED(qwen2moe, "qwen2moe", 0, read_not_normed, configure_heads);
ROUTED(olmoe, "olmoe", 0, read_not_normed, configure_all_heads);
ROUTED(granitemoe, "granitemoe", ARCH_FACTORS | ARCH_ATTENTION_SCALE, NULL, need_experts);
