/*
 * Hugging Face directories of Llama and of those with its names: Mistral, Mixtral, Granite and its
 * mixture, SmolLM3.
 */
#include "hf/hf_family.h"

/* clang-format off */
static const name_row llama_rows[] = {ATTENTION_ROWS, MLP_ROWS, PRE_NORM_ROWS};

static const name_row mixtral_rows[] = {
    ATTENTION_ROWS,
    PRE_NORM_ROWS,
    SPARSE_MOE_ROWS,
};

static const name_row granitemoe_rows[] = {
    ATTENTION_ROWS,
    PRE_NORM_ROWS,
    COPY("block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight"),
    PART("block_sparse_moe.input_linear.weight", "ffn_gate_exps.weight", RECIPE_HALVE, 0, 2),
    PART("block_sparse_moe.input_linear.weight", "ffn_up_exps.weight", RECIPE_HALVE, 1, 2),
    COPY("block_sparse_moe.output_linear.weight", "ffn_down_exps.weight"),
};
/* clang-format on */

static lace_status read_mixtral(const source *s, hf_config *h)
{
    return hf_read_experts(s, &h->model);
}

static const char *const granite_keys[] = {"embedding_multiplier", "residual_multiplier",
                                           "logits_scaling", "attention_multiplier", NULL};

static lace_status read_granite(const source *s, hf_config *h)
{
    return hf_read_multipliers(s, &h->model);
}

static const char *const granitemoe_keys[] = {"embedding_multiplier", "residual_multiplier",
                                              "logits_scaling",       "attention_multiplier",
                                              "num_local_experts",    NULL};

static lace_status read_granitemoe(const source *s, hf_config *h)
{
    TRY(hf_read_multipliers(s, &h->model));
    return hf_read_experts(s, &h->model);
}

static const char *const smollm3_keys[] = {"no_rope_layers", NULL};

static lace_status read_smollm3(const source *s, hf_config *h)
{
    return hf_read_no_rope(s, &h->model);
}

const hf_family family_llama = {.layers = NAME_TABLE(llama_rows), .is_permuted = true};
const hf_family family_mistral = {
    .layers = NAME_TABLE(llama_rows), .is_permuted = true, .window = WINDOW_ALWAYS};
const hf_family family_mixtral = {FAMILY(mixtral_rows, hf_expert_keys, read_mixtral),
                                  .is_permuted = true, .window = WINDOW_ALWAYS};
const hf_family family_granite = {FAMILY(llama_rows, granite_keys, read_granite),
                                  .is_permuted = true};
const hf_family family_granitemoe = {FAMILY(granitemoe_rows, granitemoe_keys, read_granitemoe),
                                     .is_permuted = true};
const hf_family family_smollm3 = {FAMILY(llama_rows, smollm3_keys, read_smollm3),
                                  .is_permuted = true, .window = WINDOW_FLAG};
