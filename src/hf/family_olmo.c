/* Hugging Face directories of OLMo 2 and 3. */
#include "hf/hf_family.h"

/* clang-format off */
static const name_row olmo2_rows[] = {
    ATTENTION_ROWS,
    HEAD_NORM_ROWS(RECIPE_COPY),
    MLP_ROWS,
    COPY("post_attention_layernorm.weight", "post_attention_norm.weight"),
    COPY("post_feedforward_layernorm.weight", "post_ffw_norm.weight"),
};
/* clang-format on */

const hf_family family_olmo2 = {.model_type = "olmo2",
                                .class_name = "Olmo2ForCausalLM",
                                .architecture = "olmo2",
                                .layers = NAME_TABLE(olmo2_rows),
                                .window = WINDOW_NEVER,
                                .activation = "silu"};

/* Layers with a window turn by the plain angles. */
static lace_status read_olmo3(const source *s, hf_config *h)
{
    if (h->model.rope_local_base == 0)
        h->model.rope_local_base = h->model.rope.base;
    return LACE_OK;
}

const hf_family family_olmo3 = {.model_type = "olmo3",
                                .class_name = "Olmo3ForCausalLM",
                                .architecture = "olmo2",
                                .layers = NAME_TABLE(olmo2_rows),
                                .window = WINDOW_PERIOD,
                                .period = 4,
                                .activation = "silu",
                                .read = read_olmo3};
