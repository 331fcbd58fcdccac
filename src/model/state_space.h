/*
 * Parts of architectures whose layers have a state space (Mamba-2) or a gated short convolution
 * (LFM2) beside or instead of attention.
 */
#ifndef LACE_MODEL_STATE_SPACE_H
#define LACE_MODEL_STATE_SPACE_H

#include "model/config_source.h"
#include "model/transformer.h"

/* ---- State spaces ---------------------------------------------------------------------------- */

/* The keys ssm.*, all of which must be there. */
lace_status read_state_space(const config_source *s, model_config *c);

/* A layer remembers the convolution's inputs and the state, beside what *out says already. */
void state_space_state(const model_config *c, layer_state *out);

/* Without mamba's own norm, if the file has none and may lack it. */
lace_status bind_state_space(model *m, int i, bool needs_norm, lace_error *err);

/* Of the normed input n, up to and including the output matrix. */
value build_state_space(const model *m, plan *p, int i, value n, const layer_memory *memory);

/* ---- Short convolutions ---------------------------------------------------------------------- */

void short_conv_state(const model_config *c, layer_state *out);
lace_status bind_short_conv(model *m, int i, lace_error *err);
value build_short_conv(const model *m, plan *p, int i, value n, const layer_memory *memory);

#endif
