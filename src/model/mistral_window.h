/*
 * What a GGUF file has lost: the window of a Mistral model.
 *
 * llama.cpp's converter calls Mistral "llama" and does not write its sliding window, so that a
 * reader of the file alone computes another model past the window. Where a config.json lies beside
 * the file and describes the same model, the window is taken from it.
 */
#ifndef LACE_MODEL_MISTRAL_WINDOW_H
#define LACE_MODEL_MISTRAL_WINDOW_H

#include "model/config.h"

/* Sets c->window if `path`'s folder has a config.json of this very model that says so. Never fails:
 * a neighbour that cannot be read is not this model's. */
void mistral_window_find(const char *path, model_config *c);

#endif
