/*
 * Embeddings and scores: texts' tokens to vectors, for several requests together. Threads bring
 * texts and wait for them. One of those that wait computes a batch, of whatever texts are there,
 * and then another one does: requests that come while a batch is computed share the next one.
 */
#ifndef LACE_SERVER_EMBED_QUEUE_H
#define LACE_SERVER_EMBED_QUEUE_H

#include <stdatomic.h>

#include "base/status.h"

typedef struct embedder embedder;

/* The options are those of the batcher's session. */
lace_status embedder_create(lace_model *model, const lace_session_options *options, embedder **out,
                            lace_error *err);
void embedder_free(embedder *e);

int32_t embedder_context(const embedder *e); /* the most tokens of a text */

/*
 * Compute texts; see lace_embedder_run. LACE_E_CANCELLED soon after *is_cancelled has become true.
 * The texts' is_unwanted is set here.
 */
lace_status embedder_run(embedder *e, lace_embed_text *texts, size_t n_texts,
                         const atomic_bool *is_cancelled, lace_error *err);

#endif
