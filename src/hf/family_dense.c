/*
 * Hugging Face directories of dense decoders with llama's names or names close to them: Ministral 3,
 * Cohere, Seed-OSS, EXAONE 4, Apertus, Arcee, StarCoder 2, StableLM, Nemotron, Phi-2, GLM-4, ERNIE 4.5,
 * Hunyuan.
 */
#include <math.h>

#include "hf/hf_family.h"

/* clang-format off */
#define NORM_BIAS_ROWS                                                                             \
    COPY("input_layernorm.bias",          "attn_norm.bias"),                                       \
    COPY("post_attention_layernorm.bias", "ffn_norm.bias")

static const name_row plain_rows[] = {ATTENTION_ROWS, MLP_ROWS, PRE_NORM_ROWS, NORM_BIAS_ROWS, HEAD_NORM_ROWS(RECIPE_COPY)};

static const name_row post_norm_rows[] = {
    ATTENTION_ROWS, MLP_ROWS, HEAD_NORM_ROWS(RECIPE_COPY),
    COPY("post_attention_layernorm.weight",   "post_attention_norm.weight"),
    COPY("post_feedforward_layernorm.weight", "post_ffw_norm.weight"),
};

static const name_row seed_rows[] = {
    ATTENTION_ROWS, MLP_ROWS,
    COPY("input_layernorm.weight",          "attn_norm.weight"),
    COPY("post_attention_layernorm.weight", "post_attention_norm.weight"),
};

static const name_row apertus_rows[] = {
    ATTENTION_ROWS, MLP_ROWS, HEAD_NORM_ROWS(RECIPE_COPY),
    COPY("attention_layernorm.weight",   "attn_norm.weight"),
    COPY("feedforward_layernorm.weight", "ffn_norm.weight"),
    COPY("mlp.act_fn.alpha_p", "xielu.alpha_p"),
    COPY("mlp.act_fn.alpha_n", "xielu.alpha_n"),
    COPY("mlp.act_fn.beta",    "xielu.beta"),
    COPY("mlp.act_fn.eps",     "xielu.eps"),
};

static const name_row starcoder2_rows[] = {
    ATTENTION_ROWS, PRE_NORM_ROWS, NORM_BIAS_ROWS,
    WITH_BIAS("mlp.c_fc", "ffn_up"),
    WITH_BIAS("mlp.c_proj", "ffn_down"),
};

static const name_row stablelm_rows[] = {
    ATTENTION_ROWS, MLP_ROWS, PRE_NORM_ROWS, NORM_BIAS_ROWS,
    PART("self_attn.q_layernorm.norms.*.weight", "attn_q_norm.weight", RECIPE_STACK, STACK_HEADS, 0),
    PART("self_attn.k_layernorm.norms.*.weight", "attn_k_norm.weight", RECIPE_STACK, STACK_KV_HEADS, 0),
};

static const name_row nemotron_rows[] = {
    ATTENTION_ROWS, MLP_ROWS, NORM_BIAS_ROWS,
    MADE("input_layernorm.weight",          "attn_norm.weight", RECIPE_ADD_ONE),
    MADE("post_attention_layernorm.weight", "ffn_norm.weight",  RECIPE_ADD_ONE),
};

static const name_row phi_rows[] = {
    ATTENTION_ROWS,
    WITH_BIAS("self_attn.dense", "attn_output"),
    WITH_BIAS("input_layernorm", "attn_norm"),
    WITH_BIAS("mlp.fc1", "ffn_up"),
    WITH_BIAS("mlp.fc2", "ffn_down"),
};

static const name_row glm4_rows[] = {
    ATTENTION_ROWS,
    COPY("mlp.gate_up_proj.weight",         "ffn_up.weight"),
    COPY("mlp.down_proj.weight",            "ffn_down.weight"),
    COPY("input_layernorm.weight",          "attn_norm.weight"),
    COPY("post_self_attn_layernorm.weight", "post_attention_norm.weight"),
    COPY("post_attention_layernorm.weight", "ffn_norm.weight"),
    COPY("post_mlp_layernorm.weight",       "post_ffw_norm.weight"),
};

static const name_row hunyuan_rows[] = {
    ATTENTION_ROWS, MLP_ROWS, PRE_NORM_ROWS,
    COPY("self_attn.query_layernorm.weight", "attn_q_norm.weight"),
    COPY("self_attn.key_layernorm.weight",   "attn_k_norm.weight"),
};

static const name_row bias_ends[] = {
    COPY("embed_tokens.weight", "token_embd.weight"),
    WITH_BIAS("norm", "output_norm"),
};

static const name_row nemotron_ends[] = {
    COPY("embed_tokens.weight", "token_embd.weight"),
    MADE("norm.weight",         "output_norm.weight", RECIPE_ADD_ONE),
    COPY("norm.bias",           "output_norm.bias"),
};

static const name_row phi_ends[] = {
    COPY("embed_tokens.weight",    "token_embd.weight"),
    WITH_BIAS("final_layernorm", "output_norm"),
};

static const name_row phi_heads[] = {
    WITH_BIAS("lm_head", "output"),
};
/* clang-format on */

/* ---- Keys of their own ----------------------------------------------------------------------- */

/* The object of the rotary embedding has the queries' temperature. */
static lace_status read_ministral3(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    source rope = {.object = source_get(s, "rope_parameters"),
                   .outer = s->object,
                   .name = "rope_parameters",
                   .err = s->err};
    c->temperature_length = c->rope.original_context;
    return source_float(&rope, "llama_4_scaling_beta", 0, 1e3, &c->temperature_scale, NULL);
}

static const char *const cohere_keys[] = {"logit_scale", NULL};

/* Pairs of the rotary embedding lie side by side already. */
static lace_status read_cohere(const source *s, hf_config *h)
{
    h->model.rope.is_neox = false;
    h->model.logit_scale = 0.0625;
    return source_float(s, "logit_scale", 1e-6, 1e6, &h->model.logit_scale, NULL);
}

static lace_status read_pairs(const source *s, hf_config *h)
{
    h->model.rope.is_neox = false;
    return LACE_OK;
}

static lace_status read_stablelm(const source *s, hf_config *h)
{
    return source_bool(s, "use_parallel_residual", &h->model.is_parallel);
}

static lace_status read_phi(const source *s, hf_config *h)
{
    return source_expect_bool(s, "qk_layernorm", false);
}

/* ---- The families ---------------------------------------------------------------------------- */

const hf_family family_ministral3 = {
    .layers = NAME_TABLE(plain_rows), .is_permuted = true, .read = read_ministral3};
const hf_family family_cohere = {FAMILY(plain_rows, cohere_keys, read_cohere), .is_tied = true};
const hf_family family_cohere2 = {FAMILY(plain_rows, cohere_keys, read_cohere), .is_tied = true,
                                  .window = WINDOW_PERIOD, .period = 4};
const hf_family family_seed_oss = {.layers = NAME_TABLE(seed_rows)};
const hf_family family_exaone4 = {
    .layers = NAME_TABLE(post_norm_rows), .window = WINDOW_PERIOD, .period = 4};
const hf_family family_apertus = {.layers = NAME_TABLE(apertus_rows), .activation = "xielu"};
const hf_family family_arcee = {
    .layers = NAME_TABLE(plain_rows), .is_permuted = true, .activation = "relu2"};
const hf_family family_starcoder2 = {.layers = NAME_TABLE(starcoder2_rows),
                                     .ends = NAME_TABLE(bias_ends),
                                     .is_tied = true,
                                     .window = WINDOW_ALWAYS,
                                     .activation = "gelu_pytorch_tanh"};
const hf_family family_stablelm = {
    .layers = NAME_TABLE(stablelm_rows), .ends = NAME_TABLE(bias_ends), .read = read_stablelm};
const hf_family family_nemotron = {
    .layers = NAME_TABLE(nemotron_rows), .ends = NAME_TABLE(nemotron_ends), .activation = "relu2"};
const hf_family family_phi = {.layers = NAME_TABLE(phi_rows),
                              .ends = NAME_TABLE(phi_ends),
                              .heads = NAME_TABLE(phi_heads),
                              .activation = "gelu_new",
                              .read = read_phi};
const hf_family family_glm4 = {.layers = NAME_TABLE(glm4_rows), .read = read_pairs};
const hf_family family_ernie4_5 = {
    .layers = NAME_TABLE(plain_rows), .is_tied = true, .read = read_pairs};
const hf_family family_hunyuan_v1_dense = {.layers = NAME_TABLE(hunyuan_rows), .is_tied = true};
