/* Whether the weights of a model are numbers: what is not makes every prediction NaN. */
#ifndef LACE_COMPRESS_FINITE_H
#define LACE_COMPRESS_FINITE_H

#include "base/threads.h"
#include "formats/weights.h"

/* LACE_E_NUMERIC with tensor, row and column of the first value that is infinite or NaN. */
lace_status finite_check(const weights *files, pool *workers, lace_error *err);

/* The error for a value of a tensor. `why` ends the line. */
lace_status finite_refuse(const tensor *t, uint64_t index, float value, const char *why,
                          lace_error *err);

#endif
