/*
 * gpt-oss: experts with a clamped activation and biases, attention with biases and sinks (a score
 * per head that belongs to no position), a window in every other layer, and yarn whose ramp is not
 * rounded.
 */
#include "model/transformer.h"

static lace_status configure(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    c->rope.yarn_keeps_fractions = true;
    config_set_windows(c, 2);
    return config_need_experts(c, err);
}

static const decoder_form form = {
    .has_sinks = true, .ffn_norm = "post_attention_norm", .act = GLU_CLAMPED};

const arch arch_gpt_oss = {
    .name = "gpt-oss", .takes = ARCH_EXPERTS | ARCH_WINDOW, .configure = configure, .form = &form};
