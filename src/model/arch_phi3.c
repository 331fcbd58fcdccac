/*
 * Phi-3 and Phi-4: llama with q, k, v and gate, up in one tensor each, a rotary embedding that may
 * turn only part of a head, and factors for long contexts.
 */
#include "model/transformer.h"

static lace_status configure(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    /* The window in the files of Phi-3 mini is not smaller than its original context. */
    config_set_windows(c, 1);
    return LACE_OK;
}

const arch arch_phi3 = {
    .name = "phi3", .takes = ARCH_WINDOW, .configure = configure, .form = &llama_form};
