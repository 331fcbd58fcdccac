/*
 * Phi-3.5-MoE: norms that subtract the mean, biases everywhere but in the experts, SparseMixer as its
 * router, and positions stretched as in Phi-3.
 */
#include "model/transformer.h"

static lace_status configure(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    c->centers_norms = true;
    if (c->routing.scores != ROUTE_MIXER) /* files have no key for it */
        c->routing = (route_rule){.scores = ROUTE_MIXER, .jitter = 0.01f};
    return config_need_experts(c, err);
}

const arch arch_phimoe = {
    .name = "phimoe", .takes = ARCH_EXPERTS, .configure = configure, .form = &llama_form};
