/*
 * Values that enter and leave a part of a plan (plan/parts.h) on a card: copied between the border,
 * which is the host's memory, and the memory of the plan's values, through pinned memory.
 */
#ifndef LACE_BACKEND_CUDA_CARD_BORDER_H
#define LACE_BACKEND_CUDA_CARD_BORDER_H

#include "backend/cuda/cuda.h"
#include "plan/plan.h"

typedef struct card_border {
    const plan *p;
    cuda_device *device;
    cuda_queue *queue;
    uint8_t *values; /* of the plan, on the card */
    uint8_t *border; /* of the host */
    uint8_t *pinned; /* all values that cross, one behind the other; NULL: there are none */
} card_border;

/* Whether anything crosses. */
bool card_border_has(const plan *p);

/* Takes the pinned memory, if anything crosses. */
lace_status card_border_init(card_border *b, lace_error *err);
void card_border_deinit(card_border *b);

/* Queue copies of what enters; of what leaves; and wait for those, and bring them to the border. */
lace_status card_border_send(card_border *b, const batch *of, lace_error *err);
lace_status card_border_fetch(card_border *b, const batch *of, lace_error *err);
lace_status card_border_finish(card_border *b, const batch *of, lace_error *err);

#endif
