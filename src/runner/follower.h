/*
 * A rank that is not the first: it has a model with its rows, and does what rank 0 tells it until
 * that says that it is over.
 */
#ifndef LACE_RUNNER_FOLLOWER_H
#define LACE_RUNNER_FOLLOWER_H

#include "runner/runner.h"

/* Follow. LACE_OK: rank 0 has ended. A failure is also told to the others. */
lace_status follower_run(model *m, lace_error *err);

#endif
