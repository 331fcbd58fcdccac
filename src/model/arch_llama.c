/*
 * Llama: pre-norm, rotary embedding, grouped-query attention, SwiGLU. Llama 1 to 3, Mistral,
 * SmolLM2, TinyLlama and many others are this model with other numbers; Mixtral has experts instead
 * of one feed-forward network, Granite four factors, SmolLM3 layers without positions.
 */
#include "model/transformer.h"

/* Mistral: every layer has the window. */
static lace_status configure_llama(model_config *c, lace_error *err)
{
    config_set_windows(c, 1);
    return LACE_OK;
}

/* SmolLM3: every fourth layer knows no positions. */
static lace_status configure_smollm3(model_config *c, lace_error *err)
{
    for (int i = 0; i < c->n_layers && !c->has_layer_kinds; i++)
        c->layers[i].skips_rope = (i + 1) % 4 == 0;
    return LACE_OK;
}

const arch arch_llama = {.name = "llama",
                         .takes = ARCH_EXPERTS | ARCH_WINDOW,
                         .configure = configure_llama,
                         .form = &llama_form};
const arch arch_granite = {
    .name = "granite", .takes = ARCH_FACTORS | ARCH_ATTENTION_SCALE, .form = &llama_form};
const arch arch_smollm3 = {.name = "smollm3", .configure = configure_smollm3, .form = &llama_form};
