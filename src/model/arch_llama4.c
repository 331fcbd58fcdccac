/*
 * Llama 4, its language part: three layers of four turn q and k, norm them without weights and see
 * the chunk of the text that they are in; the others know no positions and scale their queries with
 * the length of the text. Experts, one of them a token, read their input times its sigmoid; a shared
 * expert stands beside them. What GGUF files have no keys for is as in the released models.
 */
#include "model/transformer.h"

enum { CHUNK = 8192, PERIOD = 4, MAVERICKS_EXPERTS = 128 };

static lace_status configure(model_config *c, lace_error *err)
{
    c->rope.is_neox = false;
    c->norms_each_head = c->norms_after_rope = true;
    c->windows_are_chunks = true;
    c->weighs_inputs = true;
    c->temperature_skips_turned = true;
    c->temperature_offset = 1;
    c->routing.scores = ROUTE_SIGMOID;
    c->routing.norms = false;
    if (c->has_layer_kinds)
        return LACE_OK;
    c->window = CHUNK;
    c->temperature_scale = 0.1;
    c->temperature_length = CHUNK;
    c->norms_turned = c->n_experts != MAVERICKS_EXPERTS;
    for (int i = 0; i < c->n_layers; i++) {
        c->layers[i].skips_rope = (i + 1) % PERIOD == 0;
        c->layers[i].is_local = !c->layers[i].skips_rope;
    }
    return LACE_OK;
}

const arch arch_llama4 = {.name = "llama4",
                          .takes = ARCH_EXPERTS | ARCH_ROUTING,
                          .configure = configure,
                          .form = &llama_form};
