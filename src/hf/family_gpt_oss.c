/* Hugging Face directories of gpt-oss. */
#include "hf/hf_family.h"

/* clang-format off */
static const name_row gpt_oss_rows[] = {
    ATTENTION_ROWS,
    COPY("self_attn.sinks", "attn_sinks.weight"),
    COPY("input_layernorm.weight", "attn_norm.weight"),
    COPY("post_attention_layernorm.weight", "post_attention_norm.weight"),
    WITH_BIAS("mlp.router", "ffn_gate_inp"),
    PART("mlp.experts.gate_up_proj", "ffn_gate_exps.weight", RECIPE_TRANSPOSE, 0, 2),
    PART("mlp.experts.gate_up_proj", "ffn_up_exps.weight", RECIPE_TRANSPOSE, 1, 2),
    PART("mlp.experts.down_proj", "ffn_down_exps.weight", RECIPE_TRANSPOSE, 0, 1),
    PART("mlp.experts.gate_up_proj_blocks", "ffn_gate_exps.weight", RECIPE_MXFP4, 0, 2),
    PART("mlp.experts.gate_up_proj_blocks", "ffn_up_exps.weight", RECIPE_MXFP4, 1, 2),
    PART("mlp.experts.down_proj_blocks", "ffn_down_exps.weight", RECIPE_MXFP4, 0, 1),
    PART("mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias", RECIPE_STRIDE, 0, 2),
    PART("mlp.experts.gate_up_proj_bias", "ffn_up_exps.bias", RECIPE_STRIDE, 1, 2),
    COPY("mlp.experts.down_proj_bias", "ffn_down_exps.bias"),
};
/* clang-format on */

static lace_status read(const source *s, hf_config *h)
{
    double limit = 7;
    TRY(source_float(s, "swiglu_limit", -1e6, 1e6, &limit, NULL));
    if (limit != 7)
        return source_fail(s, LACE_E_UNSUPPORTED, "swiglu_limit", "expected 7");
    return hf_read_experts(s, &h->model);
}

const hf_family family_gpt_oss = {FAMILY(gpt_oss_rows, hf_expert_keys, read),
                                  .window = WINDOW_PERIOD, .period = 2};
