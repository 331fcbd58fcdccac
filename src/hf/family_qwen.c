/* Hugging Face directories of Qwen 2 and 3, and of Qwen3-VL. */
#include "hf/hf_family.h"

/* clang-format off */
static const name_row qwen_rows[] = {ATTENTION_ROWS, HEAD_NORM_ROWS(RECIPE_COPY), MLP_ROWS, PRE_NORM_ROWS};

static const name_row qwen3moe_rows[] = {
    ATTENTION_ROWS, HEAD_NORM_ROWS(RECIPE_COPY), PRE_NORM_ROWS, EXPERT_ROWS,
    COPY("mlp.gate.weight", "ffn_gate_inp.weight"),
};

/* All experts of a kind in one tensor, inputs before outputs, gate before up. */
static const name_row qwen3_vl_moe_rows[] = {
    ATTENTION_ROWS, HEAD_NORM_ROWS(RECIPE_COPY), PRE_NORM_ROWS,
    PART("mlp.experts.gate_up_proj", "ffn_gate_exps.weight", RECIPE_TRANSPOSE_HALF, 0, 2),
    PART("mlp.experts.gate_up_proj", "ffn_up_exps.weight", RECIPE_TRANSPOSE_HALF, 1, 2),
    PART("mlp.experts.down_proj", "ffn_down_exps.weight", RECIPE_TRANSPOSE_HALF, 0, 1),
    COPY("mlp.gate.weight", "ffn_gate_inp.weight"),
};

static const name_row qwen2moe_rows[] = {
    ATTENTION_ROWS, MLP_ROWS, PRE_NORM_ROWS, EXPERT_ROWS, SHARED_EXPERT_ROWS("mlp.shared_expert"),
    COPY("mlp.gate.weight", "ffn_gate_inp.weight"),
    COPY("mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"),
};
/* clang-format on */

static lace_status read_qwen2moe(const source *s, hf_config *h)
{
    h->model.routing.norms = false;
    return hf_read_mixture(s, &h->model);
}

/* Qwen's window begins at a layer; that of the MoE form is in all layers. */
static lace_status read_qwen3moe(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    int32_t step = 1;
    TRY(hf_read_experts(s, c));
    c->routing.norms = false;
    TRY(source_bool(s, "norm_topk_prob", &c->routing.norms));
    TRY(source_need_int(s, "moe_intermediate_size", 1, CONFIG_MAX_WIDTH, &c->n_ff_expert));
    TRY(source_int(s, "decoder_sparse_step", 1, CONFIG_MAX_LAYERS, &step, NULL));
    if (step != 1)
        return source_fail(s, LACE_E_UNSUPPORTED, "decoder_sparse_step", "expected 1");
    if (json_array_size(source_get(s, "mlp_only_layers")) > 0)
        return source_fail(s, LACE_E_UNSUPPORTED, "mlp_only_layers", "expected none");
    for (int32_t i = 0; i < c->n_layers && !source_get(s, "layer_types"); i++)
        c->layers[i].is_local = c->window > 0;
    return LACE_OK;
}

static lace_status read_qwen3_vl(const source *s, hf_config *h)
{
    return hf_read_sections(s, &h->model.rope);
}

/* Whatever norm_topk_prob says, the reference divides by the sum. */
static lace_status read_qwen3_vl_moe(const source *s, hf_config *h)
{
    TRY(read_qwen3moe(s, h));
    h->model.routing.norms = true;
    return hf_read_sections(s, &h->model.rope);
}

const hf_family family_qwen3_vl = {.layers = NAME_TABLE(qwen_rows), .read = read_qwen3_vl};
const hf_family family_qwen3_vl_moe = {
    FAMILY(qwen3_vl_moe_rows, hf_expert_keys, read_qwen3_vl_moe)};
const hf_family family_qwen = {.layers = NAME_TABLE(qwen_rows), .window = WINDOW_FLAG};
const hf_family family_qwen2_moe = {FAMILY(qwen2moe_rows, hf_mixture_keys, read_qwen2moe),
                                    .window = WINDOW_FLAG};
const hf_family family_qwen3_moe = {FAMILY(qwen3moe_rows, hf_expert_keys, read_qwen3moe),
                                    .window = WINDOW_FLAG};
