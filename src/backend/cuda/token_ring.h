/*
 * Tokens on their way from a card that works ahead of the host: a ring in pinned memory that
 * kernels write a word into for each choice (backend/choice.h), so that nobody waits
 * for the queue.
 */
#ifndef LACE_BACKEND_CUDA_TOKEN_RING_H
#define LACE_BACKEND_CUDA_TOKEN_RING_H

#include "backend/cuda/gpu.h"
#include "backend/cuda/sample_params.h"

typedef struct token_ring {
    int32_t *words, *device; /* [DECODE_RING] for the host and for the card; 0: not chosen yet */
    int32_t n_taken;
} token_ring;

lace_status token_ring_create(gpu *g, token_ring *out, lace_error *err);
void token_ring_free(gpu *g, token_ring *r);

/* Forget everything; the queue must be empty. */
void token_ring_clear(token_ring *r);

/* Wait for the next choice. */
lace_status token_ring_take(token_ring *r, cuda_queue *q, int32_t *word, lace_error *err);

/* ---- Sampling -------------------------------------------------------------------------------- */

/* Whether the card has a kernel that chooses from so many logits. */
bool gpu_can_sample(const gpu *g, int64_t n_vocab);

/* Choose from n rows. */
lace_status gpu_sample(gpu *g, cuda_queue *q, const sample_params *p, int32_t n, lace_error *err);

/* Tokens that are not known become those that were chosen last. */
lace_status gpu_fill_tokens(gpu *g, cuda_queue *q, const fill_tokens_params *p, lace_error *err);

#endif
