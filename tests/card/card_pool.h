/* The threads that compute: blocks of all launches of all cards take turns on them. */
#ifndef TESTS_CARD_CARD_POOL_H
#define TESTS_CARD_CARD_POOL_H

#include "ptx_run.h"

/* Run a launch to its end. false: it failed. */
bool pool_run(launch *l);

#endif
