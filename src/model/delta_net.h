/*
 * The gated delta net (Yang, Kautz and Hatamizadeh, 2024), as a recurrent layer of a transformer: q, k
 * and v go through a short convolution, the delta rule makes heads of values of them, which are normed
 * one by one and gated.
 */
#ifndef LACE_MODEL_DELTA_NET_H
#define LACE_MODEL_DELTA_NET_H

#include "model/bind.h"
#include "model/config_source.h"

/* The sizes, from the keys of a GGUF file. */
lace_status delta_net_read(const config_source *s, delta_config *out);

lace_status bind_delta_net(model *m, int i, lace_error *err);

/* What comes out of the layer for the normed input n, up to and including the output matrix. */
value build_delta_net(const model *m, plan *p, int i, value n, const layer_memory *memory);

/* What a layer remembers: the convolution's last inputs, then the heads' states. */
layer_state delta_net_state(const delta_config *d);

#endif
