/*
 * Embeddings: a text's tokens to one vector, by a session of its own that gives out hidden states.
 * It is made with the first request, and works for one request at a time, on the thread that asks.
 */
#ifndef LACE_SERVER_EMBED_H
#define LACE_SERVER_EMBED_H

#include <stdatomic.h>

#include "base/status.h"

typedef struct embedder embedder;

/* How the rows of a text's tokens become one. */
typedef enum embed_pooling { EMBED_MEAN, EMBED_LAST, EMBED_CLS } embed_pooling;

/* The options are those of the batcher's session. */
lace_status embedder_create(lace_model *model, const lace_session_options *options, embedder **out,
                            lace_error *err);
void embedder_free(embedder *e);

/*
 * Tokens, 1 to the context's length, to `out` [n_embd], of length 1. LACE_E_CANCELLED soon after
 * *is_cancelled has become true.
 */
lace_status embedder_run(embedder *e, const lace_token *tokens, size_t n, embed_pooling pooling,
                         const atomic_bool *is_cancelled, float *out, lace_error *err);

#endif
