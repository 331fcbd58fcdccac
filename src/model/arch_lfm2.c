/*
 * LFM2: gated short convolutions, and attention in some layers; with experts in all but the first
 * layers in its MoE form.
 */
#include "model/state_space.h"

static lace_status read(const config_source *s, model_config *c)
{
    TRY(config_need_int(s, "shortconv.l_cache", 2, CONFIG_MAX_TAPS, &c->ssm.n_taps));
    c->routing.norm_more = 1e-6f;
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].kind = c->layers[i].n_kv_heads == 0 ? LAYER_RECURRENT : LAYER_ATTENTION;
    return LACE_OK;
}

static lace_status configure(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    c->norms_each_head = true;
    config_set_windows(c, 1);
    return LACE_OK;
}

static void state(const model_config *c, int32_t layer, layer_state *out)
{
    if (c->layers[layer].kind == LAYER_RECURRENT)
        short_conv_state(c, out);
}

static const decoder_form form = {.has_head_norms = true,
                                  .act = GLU_SILU,
                                  .output_norm = "token_embd_norm",
                                  .bind_mixer = bind_short_conv,
                                  .build_mixer = build_short_conv};

#define LFM2(more)                                                                                 \
    .takes = ARCH_WINDOW | ARCH_LAYER_KINDS | (more), .read = read, .configure = configure,        \
    .state = state, .form = &form

const arch arch_lfm2 = {.name = "lfm2", LFM2(0)};
const arch arch_lfm2moe = {.name = "lfm2moe", LFM2(ARCH_EXPERTS | ARCH_ROUTING)};
