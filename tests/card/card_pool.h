/* The threads that compute: blocks of all launches of all cards take turns on them. */
#ifndef TESTS_CARD_CARD_POOL_H
#define TESTS_CARD_CARD_POOL_H

#include "ptx_run.h"

/* Let the blocks of a launch go as far as they can while the one in front of it has not ended. */
void pool_begin(launch *l);

/* Forget such a launch. */
void pool_drop(launch *l);

/* Run a launch to its end. false: it failed. */
bool pool_run(launch *l);

#endif
