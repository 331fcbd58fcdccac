/*
 * Choosing that takes long, on a thread of its own.
 *
 * Which tokens a grammar allows is mostly known at once, but a grammar can be made so that finding
 * out takes a tenth of a second for every token. Whoever asks for that must not hold up others. So
 * the batcher gives such choices a little time in all, and hands those that are not done to this
 * thread; their generations sit out until it is done. Of those that wait, the one that has taken
 * the least time so far is next.
 *
 * A generation belongs to the thread from late_push to the moment it is in late_take's list.
 */
#ifndef LACE_ENGINE_LATE_CHOICE_H
#define LACE_ENGINE_LATE_CHOICE_H

#include "engine/generation.h"

typedef struct late_choice late_choice;

lace_status late_create(late_choice **out, lace_error *err);
void late_free(late_choice *l); /* with nothing in it; NULL is fine */

/* Choose for a generation from its kept logits. */
void late_push(late_choice *l, lace_generation *g);

/* A generation whose choice is made, or NULL. Waits at most so long for one. */
lace_generation *late_take(late_choice *l, uint64_t wait_ns);

/* Give a generation back now. True: the choice was made; false: it was not, and nothing changed. */
bool late_recall(late_choice *l, lace_generation *g);

#endif
