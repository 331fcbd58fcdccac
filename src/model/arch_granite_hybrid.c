/*
 * Granite 4: most layers have a state space where the others have attention, which mostly knows no
 * positions. Experts with a shared one beside them, or a plain feed-forward network.
 */
#include "model/state_space.h"

static lace_status read(const config_source *s, model_config *c)
{
    bool has_rope = true;
    TRY(read_state_space(s, c));
    TRY(config_bool(s, "rope.scaling.finetuned", &has_rope, NULL));
    c->has_no_rope = !has_rope;
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].kind = c->layers[i].n_kv_heads == 0 ? LAYER_RECURRENT : LAYER_ATTENTION;
    return LACE_OK;
}

static lace_status configure(model_config *c, lace_error *err)
{
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].skips_rope = c->has_no_rope;
    return LACE_OK;
}

static lace_status bind_normed_state_space(model *m, int i, lace_error *err)
{
    return bind_state_space(m, i, true, err);
}

static void state(const model_config *c, int32_t layer, layer_state *out)
{
    if (c->layers[layer].kind == LAYER_RECURRENT)
        state_space_state(c, out);
}

static const decoder_form form = {
    .act = GLU_SILU, .bind_mixer = bind_normed_state_space, .build_mixer = build_state_space};

const arch arch_granitehybrid = {.name = "granitehybrid",
                                 .takes = ARCH_EXPERTS | ARCH_ROUTING | ARCH_FACTORS |
                                          ARCH_ATTENTION_SCALE | ARCH_LAYER_KINDS |
                                          ARCH_STATE_SPACE,
                                 .read = read,
                                 .configure = configure,
                                 .state = state,
                                 .form = &form};
