/*
 * Gemma 2 and 3: embeddings scaled by the root of the width, GELU, norms before and after attention
 * and feed-forward, windows in most layers. Gemma 2 caps scores and logits softly; Gemma 3 norms
 * the heads of q and k instead, and turns local layers by another base.
 */
#include <math.h>

#include "model/transformer.h"

static void configure_both(model_config *c, int period, int n_layers_27b)
{
    c->rope.is_neox = true;
    c->embedding_scale = sqrt(c->n_embd);
    config_set_windows(c, period);
    /* The largest of each family scales q by the width of an even share of the heads. */
    if (c->attention_scale == 0 && c->n_layers == n_layers_27b)
        c->attention_scale = 1 / sqrt((double)c->n_embd / c->n_heads);
}

static lace_status configure_gemma2(model_config *c, lace_error *err)
{
    configure_both(c, 2, 46);
    return LACE_OK;
}

static lace_status configure_gemma3(model_config *c, lace_error *err)
{
    configure_both(c, 6, 62);
    c->norms_each_head = true;
    if (c->rope_local_base == 0)
        c->rope_local_base = 10000;
    return LACE_OK;
}

static const decoder_form form = {.has_post_norms = true, .act = GLU_GELU_TANH};

#define GEMMA(more, configure_)                                                                    \
    .takes = ARCH_WINDOW | ARCH_ATTENTION_SCALE | ARCH_SOFTCAPS | (more), .configure = configure_, \
    .form = &form

const arch arch_gemma2 = {.name = "gemma2", GEMMA(0, configure_gemma2)};
const arch arch_gemma3 = {.name = "gemma3", GEMMA(ARCH_PERIOD, configure_gemma3)};
