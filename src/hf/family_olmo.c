/* Hugging Face directories of OLMo 2, OLMo 3 and OLMoE. */
#include "hf/hf_family.h"

/* clang-format off */
static const name_row olmo2_rows[] = {
    ATTENTION_ROWS,
    HEAD_NORM_ROWS(RECIPE_COPY),
    MLP_ROWS,
    COPY("post_attention_layernorm.weight", "post_attention_norm.weight"),
    COPY("post_feedforward_layernorm.weight", "post_ffw_norm.weight"),
};

static const name_row olmoe_rows[] = {
    ATTENTION_ROWS,
    HEAD_NORM_ROWS(RECIPE_COPY),
    PRE_NORM_ROWS,
    EXPERT_ROWS,
    COPY("mlp.gate.weight", "ffn_gate_inp.weight"),
};
/* clang-format on */

static lace_status read_olmoe(const source *s, hf_config *h)
{
    h->model.routing.norms = false;
    return hf_read_mixture(s, &h->model);
}

const hf_family family_olmo2 = {.layers = NAME_TABLE(olmo2_rows)};

/* Layers with a window turn by the plain angles. */
static lace_status read_olmo3(const source *s, hf_config *h)
{
    if (h->model.rope_local_base == 0)
        h->model.rope_local_base = h->model.rope.base;
    return LACE_OK;
}

const hf_family family_olmo3 = {
    .layers = NAME_TABLE(olmo2_rows), .window = WINDOW_PERIOD, .period = 4, .read = read_olmo3};
const hf_family family_olmoe = {FAMILY(olmoe_rows, hf_mixture_keys, read_olmoe)};
