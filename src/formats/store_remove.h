/*
 * Removing a model by name from where lace or another program keeps it.
 *
 * Hugging Face's cache: the links of the model, then the blobs that no link leads to any more, and
 * the whole repository when no model is left in it. Ollama's store: the manifest, then the blobs that
 * no other manifest names. Elsewhere: the GGUF file with all its parts.
 */
#ifndef LACE_FORMATS_STORE_REMOVE_H
#define LACE_FORMATS_STORE_REMOVE_H

#include "base/status.h"

/* *n_bytes is what the disk has got back. LACE_E_IO if there is no such model, or it cannot go. */
lace_status store_remove(const char *name, uint64_t *n_bytes, lace_error *err);

#endif
