/* Hugging Face directories of Phi-3, Phi-4 and Phi-3.5-MoE. */
#include "hf/hf_family.h"

/* clang-format off */
static const name_row phi3_rows[] = {
    COPY("self_attn.qkv_proj.weight", "attn_qkv.weight"),
    COPY("self_attn.o_proj.weight", "attn_output.weight"),
    COPY("mlp.gate_up_proj.weight", "ffn_up.weight"),
    COPY("mlp.down_proj.weight", "ffn_down.weight"),
    PRE_NORM_ROWS,
};

static const name_row phimoe_rows[] = {
    ATTENTION_ROWS,
    PRE_NORM_ROWS,
    COPY("input_layernorm.bias", "attn_norm.bias"),
    COPY("post_attention_layernorm.bias", "ffn_norm.bias"),
    SPARSE_MOE_ROWS,
};

static const name_row phimoe_ends[] = {
    COPY("embed_tokens.weight", "token_embd.weight"),
    WITH_BIAS("norm", "output_norm"),
};

static const name_row phimoe_heads[] = {
    WITH_BIAS("lm_head", "output"),
};
/* clang-format on */

static lace_status read_phimoe(const source *s, hf_config *h)
{
    double jitter = 0.01;
    TRY(hf_read_experts(s, &h->model));
    TRY(source_float(s, "router_jitter_noise", 0, 1, &jitter, NULL));
    h->model.routing = (route_rule){.scores = ROUTE_MIXER, .jitter = (float)jitter};
    return LACE_OK;
}

const hf_family family_phi3 = {.layers = NAME_TABLE(phi3_rows), .window = WINDOW_ALWAYS};
const hf_family family_phimoe = {FAMILY(phimoe_rows, hf_expert_keys, read_phimoe),
                                 .ends = NAME_TABLE(phimoe_ends), .heads = NAME_TABLE(phimoe_heads),
                                 .window = WINDOW_ALWAYS};
