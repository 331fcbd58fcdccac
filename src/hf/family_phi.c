/* Hugging Face directories of Phi-3 and Phi-4. */
#include "hf/hf_family.h"

/* clang-format off */
static const name_row phi3_rows[] = {
    COPY("self_attn.qkv_proj.weight", "attn_qkv.weight"),
    COPY("self_attn.o_proj.weight", "attn_output.weight"),
    COPY("mlp.gate_up_proj.weight", "ffn_up.weight"),
    COPY("mlp.down_proj.weight", "ffn_down.weight"),
    PRE_NORM_ROWS,
};
/* clang-format on */

const hf_family family_phi3 = {.model_type = "phi3",
                               .class_name = "Phi3ForCausalLM",
                               .architecture = "phi3",
                               .layers = NAME_TABLE(phi3_rows),
                               .window = WINDOW_ALWAYS,
                               .activation = "silu"};
