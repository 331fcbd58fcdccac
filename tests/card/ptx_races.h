/*
 * Races in shared memory, which LACE_CARD=races=1 finds: two warps use a word, one of them writes, and
 * no barrier lies between.
 *
 * Any barrier that opens counts, and any wait for a barrier in shared memory that ends, whoever waits
 * there: what is said is a fault nearly always, and some faults are not said. What the copy engine and
 * the matrix units read and write themselves is not looked at.
 */
#ifndef TESTS_CARD_PTX_RACES_H
#define TESTS_CARD_PTX_RACES_H

#include "ptx_run.h"

/* Whether a block is looked at; false, too: no memory. */
bool races_make(block *b);
void races_free(block *b);

/* A barrier lies between what was and what comes. */
static inline void races_pass(block *b)
{
    b->phase++;
}

/* Lanes read or write n_bytes at these places; those outside of the block's shared memory are not
 * looked at. */
void races_note(warp *w, const instr *i, uint32_t mask, uint8_t *const at[N_LANES],
                uint32_t n_bytes, bool writes);

#endif
