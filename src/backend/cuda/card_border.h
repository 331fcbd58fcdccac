/*
 * Values that enter and leave a part of a plan (plan/parts.h) on a card: copied between the border,
 * which is the host's memory, and the memory of the plan's values. Where the card can use the border by
 * itself, it is copied from and to there; else through pinned memory.
 */
#ifndef LACE_BACKEND_CUDA_CARD_BORDER_H
#define LACE_BACKEND_CUDA_CARD_BORDER_H

#include "backend/cuda/border_params.h"
#include "backend/cuda/cuda.h"
#include "plan/plan.h"

/* What the host and the card tell each other of a token; pinned. */
typedef struct border_token {
    decode_state said; /* n_chosen: the number of the run */
    _Alignas(64) volatile int32_t done;
} border_token;

typedef struct card_border {
    const plan *p;
    cuda_device *device;
    cuda_queue *queue;
    uint8_t *values; /* of the plan, on the card */
    uint8_t *border; /* of the host */
    uint8_t *shared; /* the border as the card names it; NULL: it cannot use it */
    uint8_t *pinned; /* else all values that cross, one behind the other; NULL: there are none */
    border_token *token, *token_on_card; /* where it is shared */
} card_border;

/* Whether anything crosses. */
bool card_border_has(const plan *p);

/* is_shared: the border is memory that the card may use. Takes the pinned memory, if anything crosses. */
lace_status card_border_init(card_border *b, bool is_shared, lace_error *err);
void card_border_deinit(card_border *b);

/* Queue copies of what enters; of what leaves; and wait for those, and bring them to the border. */
lace_status card_border_send(card_border *b, const batch *of, lace_error *err);
lace_status card_border_fetch(card_border *b, const batch *of, lace_error *err);
lace_status card_border_finish(card_border *b, const batch *of, lace_error *err);

/* ---- Single tokens, where the border is shared ----------------------------------------------- */

/* A launch at one end of a token's part, and what the card's engine copies in front of it. */
typedef struct border_step {
    bool enters;
    int32_t n_large;
    border_copy large[2];
    border_copies by_kernel;
} border_step;

/* Whether all that crosses has room in such a step. */
bool card_border_fits_token(const plan *p);

void card_border_of_token(const card_border *b, bool enters, decode_state *state, border_step *out);
lace_status card_border_copy_large(cuda_queue *q, const border_copy *large, int32_t n, bool enters,
                                   lace_error *err);

/* Say which token it is; and wait until what leaves is there. */
void card_border_begin_token(card_border *b, int32_t token, int32_t position, int32_t turn,
                             int32_t sequence);
lace_status card_border_wait_token(card_border *b, lace_error *err);

#endif
