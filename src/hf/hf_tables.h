/*
 * Names of tensors in Hugging Face directories and in GGUF files, by family. Private to hf_names.c.
 *
 * The rows hold what follows "model.layers.3." and "blk.3.". A '*' stands for the number of an
 * expert. Two rows may take different parts of one tensor.
 */
#ifndef LACE_HF_HF_TABLES_H
#define LACE_HF_HF_TABLES_H

#include "hf/hf_recipes.h"

/* clang-format off */

#define ATTENTION_ROWS                                                                             \
    {"self_attn.q_proj.weight", "attn_q.weight", RECIPE_PERMUTE_Q, 0, 0},                          \
    {"self_attn.q_proj.bias",   "attn_q.bias",   RECIPE_PERMUTE_Q, 0, 0},                          \
    {"self_attn.k_proj.weight", "attn_k.weight", RECIPE_PERMUTE_K, 0, 0},                          \
    {"self_attn.k_proj.bias",   "attn_k.bias",   RECIPE_PERMUTE_K, 0, 0},                          \
    {"self_attn.v_proj.weight", "attn_v.weight", RECIPE_COPY, 0, 0},                               \
    {"self_attn.v_proj.bias",   "attn_v.bias",   RECIPE_COPY, 0, 0},                               \
    {"self_attn.o_proj.weight", "attn_output.weight", RECIPE_COPY, 0, 0},                          \
    {"self_attn.o_proj.bias",   "attn_output.bias",   RECIPE_COPY, 0, 0}

#define MLP_ROWS                                                                                   \
    {"mlp.gate_proj.weight", "ffn_gate.weight", RECIPE_COPY, 0, 0},                                \
    {"mlp.up_proj.weight",   "ffn_up.weight",   RECIPE_COPY, 0, 0},                                \
    {"mlp.down_proj.weight", "ffn_down.weight", RECIPE_COPY, 0, 0}

#define PRE_NORM_ROWS                                                                              \
    {"input_layernorm.weight",          "attn_norm.weight", RECIPE_COPY, 0, 0},                    \
    {"post_attention_layernorm.weight", "ffn_norm.weight",  RECIPE_COPY, 0, 0}

#define HEAD_NORM_ROWS(kind)                                                                       \
    {"self_attn.q_norm.weight", "attn_q_norm.weight", kind, 0, 0},                                 \
    {"self_attn.k_norm.weight", "attn_k_norm.weight", kind, 0, 0}

static const name_row llama_rows[] = {ATTENTION_ROWS, MLP_ROWS, PRE_NORM_ROWS};

static const name_row mixtral_rows[] = {
    ATTENTION_ROWS,
    PRE_NORM_ROWS,
    {"block_sparse_moe.gate.weight",         "ffn_gate_inp.weight",  RECIPE_COPY, 0, 0},
    {"block_sparse_moe.experts.*.w1.weight", "ffn_gate_exps.weight", RECIPE_STACK, 0, 0},
    {"block_sparse_moe.experts.*.w2.weight", "ffn_down_exps.weight", RECIPE_STACK, 0, 0},
    {"block_sparse_moe.experts.*.w3.weight", "ffn_up_exps.weight",   RECIPE_STACK, 0, 0},
};

static const name_row qwen_rows[] = {ATTENTION_ROWS, HEAD_NORM_ROWS(RECIPE_COPY), MLP_ROWS, PRE_NORM_ROWS};

static const name_row qwen3moe_rows[] = {
    ATTENTION_ROWS,
    HEAD_NORM_ROWS(RECIPE_COPY),
    PRE_NORM_ROWS,
    {"mlp.gate.weight",                "ffn_gate_inp.weight",  RECIPE_COPY, 0, 0},
    {"mlp.experts.*.gate_proj.weight", "ffn_gate_exps.weight", RECIPE_STACK, 0, 0},
    {"mlp.experts.*.down_proj.weight", "ffn_down_exps.weight", RECIPE_STACK, 0, 0},
    {"mlp.experts.*.up_proj.weight",   "ffn_up_exps.weight",   RECIPE_STACK, 0, 0},
    /* Or all experts in one tensor. */
    {"mlp.experts.gate_up_proj",       "ffn_gate_exps.weight", RECIPE_HALVE, 0, 2},
    {"mlp.experts.gate_up_proj",       "ffn_up_exps.weight",   RECIPE_HALVE, 1, 2},
    {"mlp.experts.down_proj",          "ffn_down_exps.weight", RECIPE_COPY, 0, 0},
};

static const name_row gemma_rows[] = {
    ATTENTION_ROWS,
    HEAD_NORM_ROWS(RECIPE_ADD_ONE),
    MLP_ROWS,
    {"input_layernorm.weight",            "attn_norm.weight",           RECIPE_ADD_ONE, 0, 0},
    {"post_attention_layernorm.weight",   "post_attention_norm.weight", RECIPE_ADD_ONE, 0, 0},
    {"pre_feedforward_layernorm.weight",  "ffn_norm.weight",            RECIPE_ADD_ONE, 0, 0},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight",       RECIPE_ADD_ONE, 0, 0},
};

static const name_row phi3_rows[] = {
    {"self_attn.qkv_proj.weight", "attn_qkv.weight",    RECIPE_COPY, 0, 0},
    {"self_attn.o_proj.weight",   "attn_output.weight", RECIPE_COPY, 0, 0},
    {"mlp.gate_up_proj.weight",   "ffn_up.weight",      RECIPE_COPY, 0, 0},
    {"mlp.down_proj.weight",      "ffn_down.weight",    RECIPE_COPY, 0, 0},
    PRE_NORM_ROWS,
};

static const name_row olmo2_rows[] = {
    ATTENTION_ROWS,
    HEAD_NORM_ROWS(RECIPE_COPY),
    MLP_ROWS,
    {"post_attention_layernorm.weight",   "post_attention_norm.weight", RECIPE_COPY, 0, 0},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight",       RECIPE_COPY, 0, 0},
};

static const name_row gpt_oss_rows[] = {
    ATTENTION_ROWS,
    {"self_attn.sinks",                 "attn_sinks.weight",          RECIPE_COPY, 0, 0},
    {"input_layernorm.weight",          "attn_norm.weight",           RECIPE_COPY, 0, 0},
    {"post_attention_layernorm.weight", "post_attention_norm.weight", RECIPE_COPY, 0, 0},
    {"mlp.router.weight",               "ffn_gate_inp.weight",        RECIPE_COPY, 0, 0},
    {"mlp.router.bias",                 "ffn_gate_inp.bias",          RECIPE_COPY, 0, 0},
    {"mlp.experts.gate_up_proj",        "ffn_gate_exps.weight",       RECIPE_TRANSPOSE, 0, 2},
    {"mlp.experts.gate_up_proj",        "ffn_up_exps.weight",         RECIPE_TRANSPOSE, 1, 2},
    {"mlp.experts.down_proj",           "ffn_down_exps.weight",       RECIPE_TRANSPOSE, 0, 1},
    {"mlp.experts.gate_up_proj_blocks", "ffn_gate_exps.weight",       RECIPE_MXFP4, 0, 2},
    {"mlp.experts.gate_up_proj_blocks", "ffn_up_exps.weight",         RECIPE_MXFP4, 1, 2},
    {"mlp.experts.down_proj_blocks",    "ffn_down_exps.weight",       RECIPE_MXFP4, 0, 1},
    {"mlp.experts.gate_up_proj_bias",   "ffn_gate_exps.bias",         RECIPE_STRIDE, 0, 2},
    {"mlp.experts.gate_up_proj_bias",   "ffn_up_exps.bias",           RECIPE_STRIDE, 1, 2},
    {"mlp.experts.down_proj_bias",      "ffn_down_exps.bias",         RECIPE_COPY, 0, 0},
};

#define TABLE(rows) {rows, sizeof rows / sizeof *rows}

static const struct {
    const name_row *rows;
    size_t n_rows;
} layer_tables[] = {
    [HF_LLAMA] = TABLE(llama_rows),     [HF_MIXTRAL] = TABLE(mixtral_rows),
    [HF_QWEN] = TABLE(qwen_rows),       [HF_QWEN3MOE] = TABLE(qwen3moe_rows),
    [HF_GEMMA] = TABLE(gemma_rows),     [HF_PHI3] = TABLE(phi3_rows),
    [HF_OLMO2] = TABLE(olmo2_rows),     [HF_GPT_OSS] = TABLE(gpt_oss_rows),
};

/* In front of every name: plain models, then two generations of those that also see. */
static const char *const name_prefixes[] = {"model.", "language_model.model.", "model.language_model.", ""};

/* What is no part of the model, or of its language part. */
static const char *const ignored_starts[] = {"vision_tower.", "multi_modal_projector.",
                                             "model.vision_tower.", "model.multi_modal_projector."};
static const char *const ignored_ends[] = {".rotary_emb.inv_freq", ".attention.masked_bias",
                                           ".attention.bias", ".k_scale", ".v_scale"};
/* clang-format on */

#endif
