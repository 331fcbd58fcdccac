/*
 * Mixtures of experts with the parts of Llama and Qwen, and routers of many kinds: GLM-4.5,
 * dots.llm1, MiniMax-M2, ERNIE 4.5, Hunyuan, Qwen2-MoE, OLMoE, Granite's. They differ in numbers, in
 * what q and k are normed by, and in what a file leaves unsaid.
 */
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

/* Pairs of the rope half a head apart; q and k are normed head by head, if at all. */
static lace_status configure_heads(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    c->norms_each_head = true;
    return config_need_experts(c, err);
}

/* q and k are normed over all heads together. */
static lace_status configure_all_heads(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    return config_need_experts(c, err);
}

/* Pairs of the rope side by side, in both formats. */
static lace_status configure_ernie(model_config *c, lace_error *err)
{
    c->rope.is_neox = false;
    return config_need_experts(c, err);
}

static lace_status configure_hunyuan(model_config *c, lace_error *err)
{
    c->norms_after_rope = true;
    return configure_heads(c, err);
}

/* ---------------------------------------------------------------------------------------------- */

static lace_status configure_granite(model_config *c, lace_error *err)
{
    return config_need_experts(c, err);
}

static const decoder_form glm_form = {.ffn_norm = "post_attention_norm", .act = GLU_SILU};

#define ROUTED(id, name_, more, read_, configure_, form_)                                          \
    const arch arch_##id = {.name = name_,                                                         \
                            .takes = ARCH_EXPERTS | ARCH_ROUTING | (more),                         \
                            .read = read_,                                                         \
                            .configure = configure_,                                               \
                            .form = form_}

ROUTED(glm4moe, "glm4moe", ARCH_NEXTN, read_sigmoid, configure_heads, &glm_form);
ROUTED(dots1, "dots1", 0, read_sigmoid, configure_heads, &llama_form);
ROUTED(minimax_m2, "minimax-m2", 0, read_sigmoid, configure_all_heads, &llama_form);
ROUTED(ernie4_5_moe, "ernie4_5-moe", 0, read_ernie, configure_ernie, &llama_form);
ROUTED(hunyuan_moe, "hunyuan-moe", 0, NULL, configure_hunyuan, &llama_form);
ROUTED(qwen2moe, "qwen2moe", 0, read_not_normed, configure_heads, &llama_form);
ROUTED(olmoe, "olmoe", 0, read_not_normed, configure_all_heads, &llama_form);
ROUTED(granitemoe, "granitemoe", ARCH_FACTORS | ARCH_ATTENTION_SCALE, NULL, configure_granite,
       &llama_form);
