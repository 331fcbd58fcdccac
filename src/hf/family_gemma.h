/* What the families of Gemma share: rows of names, fields of their constants, defaults. */
#ifndef LACE_HF_FAMILY_GEMMA_H
#define LACE_HF_FAMILY_GEMMA_H

#include "hf/hf_family.h"

/* clang-format off */
/* Layers with norms before and behind each part, whose weights are made by a recipe. */
#define GEMMA_ROWS(kind)                                                                           \
    ATTENTION_ROWS,                                                                                \
    HEAD_NORM_ROWS(kind),                                                                          \
    MLP_ROWS,                                                                                      \
    MADE("input_layernorm.weight", "attn_norm.weight", kind),                                      \
    MADE("post_attention_layernorm.weight", "post_attention_norm.weight", kind),                   \
    MADE("pre_feedforward_layernorm.weight", "ffn_norm.weight", kind),                             \
    MADE("post_feedforward_layernorm.weight", "post_ffw_norm.weight", kind)

/* Inputs that each layer has of its own: what a layer does with them, and where they come from. */
#define LAYER_INPUT_ROWS                                                                           \
    COPY("per_layer_input_gate.weight", "inp_gate.weight"),                                        \
    COPY("per_layer_projection.weight", "proj.weight"),                                            \
    COPY("post_per_layer_input_norm.weight", "post_norm.weight")
#define LAYER_INPUT_ENDS                                                                           \
    COPY("embed_tokens.weight", "token_embd.weight"),                                              \
    COPY("norm.weight", "output_norm.weight"),                                                     \
    COPY("embed_tokens_per_layer.weight", "per_layer_token_embd.weight"),                          \
    COPY("per_layer_model_projection.weight", "per_layer_model_proj.weight"),                      \
    COPY("per_layer_projection_norm.weight", "per_layer_proj_norm.weight")

#define GEMMA_FAMILY(rows, end_rows, read_keys, reader, n)                                         \
    .layers = NAME_TABLE(rows), .ends = NAME_TABLE(end_rows), .reads = read_keys, .read = reader,  \
    .window = WINDOW_PERIOD, .period = n, .is_tied = true, .activation = "gelu_pytorch_tanh"
/* clang-format on */

/* Those that Gemma 3 and later ones share, or most of them. */
void set_gemma_defaults(model_config *c);

#endif
