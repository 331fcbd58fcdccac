/*
 * What Gemma 3n and 4 have in common: layers of two shapes, local and full, of which the last ones
 * may attend to keys and values of earlier ones, and a second embedding of each token, of which
 * every layer has its own part.
 */
#ifndef LACE_MODEL_GEMMA_PARTS_H
#define LACE_MODEL_GEMMA_PARTS_H

#include "model/transformer.h"

/* Keys of GGUF files that both have: which layers are local, which share, the second embedding. */
lace_status gemma_read_layers(const config_source *s, model_config *c);

/* arch.configure */
lace_status gemma_configure(model_config *c, lace_error *err);

/* arch.state: layers that share add nothing. */
void gemma_state(const model_config *c, int32_t layer, layer_state *out);

/* The norms, attention and the dense feed-forward part of layer i, up to what follows that part. */
lace_status gemma_bind_layer(model *m, int i, lace_error *err);

/* Attention over the normed input n, up to and including the output matrix. */
value gemma_attention(const model *m, plan *p, int i, value n, angles turn,
                      const layer_memory *memory);

/* The second embedding, if the model has one; and what layer i does with it. */
lace_status gemma_bind_second(model *m, lace_error *err);
lace_status gemma_bind_second_of(model *m, int i, lace_error *err);

/* The second embedding of all layers; x is the first. */
value gemma_second(const model *m, plan *p, value x);

/* What layer i makes of its part, by x: normed, to be added. */
value gemma_second_of(const model *m, plan *p, int i, value second, value x);

/* `scales` times a number. */
lace_status gemma_scale_norm(model *m, const float **scales, int64_t n, float by, lace_error *err);

/* An architecture of these parts, with its own `read`, `bind` and `build`. */
#define GEMMA_ARCH(name_, more)                                                                    \
    {                                                                                              \
        .name = name_,                                                                             \
        .takes = ARCH_WINDOW | ARCH_PATTERN | ARCH_SOFTCAPS | ARCH_LAYER_SHAPES | (more),          \
        .read = read, .configure = gemma_configure, .bind = bind, .state = gemma_state,            \
        .build = build                                                                             \
    }

#endif
