/*
 * Hugging Face directories of mixtures with shared experts: GLM-4.5, dots.llm1, MiniMax-M2, ERNIE
 * 4.5 and Hunyuan.
 */
#include <math.h>

#include "hf/hf_family.h"

/* clang-format off */
static const name_row glm4_moe_rows[] = {
    ATTENTION_ROWS,
    HEAD_NORM_ROWS(RECIPE_COPY),
    COPY("input_layernorm.weight", "attn_norm.weight"),
    COPY("post_attention_layernorm.weight", "post_attention_norm.weight"),
    ROUTED_ROWS,
    COPY("mlp.gate.e_score_correction_bias", "exp_probs_b.bias"),
};

static const name_row glm4_moe_predicting[] = {PREDICTING_ROWS};

static const name_row dots1_rows[] = {
    ATTENTION_ROWS,
    HEAD_NORM_ROWS(RECIPE_COPY),
    PRE_NORM_ROWS,
    ROUTED_ROWS,
    COPY("mlp.gate.e_score_correction_bias", "exp_probs_b.bias"),
};

static const name_row minimax_m2_rows[] = {
    ATTENTION_ROWS,
    HEAD_NORM_ROWS(RECIPE_COPY),
    PRE_NORM_ROWS,
    SPARSE_MOE_ROWS,
    COPY("block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"),
};

static const name_row ernie4_5_moe_rows[] = {
    ATTENTION_ROWS,
    PRE_NORM_ROWS,
    ROUTED_ROWS,
    COPY("mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias"),
};

static const name_row hunyuan_rows[] = {
    ATTENTION_ROWS,
    COPY("self_attn.query_layernorm.weight", "attn_q_norm.weight"),
    COPY("self_attn.key_layernorm.weight", "attn_k_norm.weight"),
    PRE_NORM_ROWS,
    EXPERT_ROWS,
    SHARED_EXPERT_ROWS("mlp.shared_mlp"),
    COPY("mlp.gate.wg.weight", "ffn_gate_inp.weight"),
};
/* clang-format on */

static lace_status read_glm4_moe(const source *s, hf_config *h)
{
    h->model.routing = (route_rule){.scores = ROUTE_SIGMOID, .norms = true, .norm_more = 1e-20f};
    return hf_read_mixture(s, &h->model);
}

static lace_status read_dots1(const source *s, hf_config *h)
{
    h->model.routing = (route_rule){.scores = ROUTE_SIGMOID, .norm_more = 1e-20f};
    return hf_read_mixture(s, &h->model);
}

/* Heads are turned as far as rotary_dim says, where no share of them is given. */
static lace_status read_minimax_m2(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    c->routing = (route_rule){.scores = ROUTE_SIGMOID, .norms = true};
    TRY(source_int(s, "rotary_dim", 2, c->head_dim, &c->rope.n_dims, NULL));
    if (c->rope.n_dims % 2 != 0)
        return source_fail(s, LACE_E_META, "rotary_dim", "is odd, expected an even number");
    return hf_read_mixture(s, c);
}

/* Experts from one layer to another, each n-th; -1 is the last. */
static lace_status read_ernie4_5_moe(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    int32_t first = 1, last = -1, step = 1;
    double least = 1e-12;
    c->routing = (route_rule){.norms = true};
    TRY(hf_read_mixture(s, c));
    TRY(source_float(s, "moe_norm_min", 0, 1, &least, NULL));
    c->routing.norm_least = (float)least;
    TRY(source_int(s, "moe_layer_start_index", 0, CONFIG_MAX_LAYERS, &first, NULL));
    TRY(source_int(s, "moe_layer_end_index", -1, CONFIG_MAX_LAYERS, &last, NULL));
    TRY(source_int(s, "moe_layer_interval", 1, CONFIG_MAX_LAYERS, &step, NULL));
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].has_experts = (i + 1) % step == 0 && i >= first && (last < 0 || i <= last);
    return LACE_OK;
}

/* Its experts are as wide as intermediate_size says, whatever moe_intermediate_size is. */
static lace_status read_hunyuan_moe(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    c->routing = (route_rule){.norms = true};
    TRY(hf_read_mixture(s, c));
    c->n_ff_expert = c->n_ff;
    return LACE_OK;
}

const hf_family family_glm4_moe = {FAMILY(glm4_moe_rows, hf_mixture_keys, read_glm4_moe),
                                   .predicting = NAME_TABLE(glm4_moe_predicting)};
const hf_family family_dots1 = {FAMILY(dots1_rows, hf_mixture_keys, read_dots1),
                                .window = WINDOW_FLAG};
const hf_family family_minimax_m2 = {FAMILY(minimax_m2_rows, hf_mixture_keys, read_minimax_m2)};
const hf_family family_ernie4_5_moe = {
    FAMILY(ernie4_5_moe_rows, hf_mixture_keys, read_ernie4_5_moe), .is_tied = true};
const hf_family family_hunyuan_v1_moe = {FAMILY(hunyuan_rows, hf_mixture_keys, read_hunyuan_moe)};
