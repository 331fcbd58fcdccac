/* How much each tensor matters: the KL divergence when it alone is quantized. */
#ifndef LACE_COMPRESS_SENSITIVITY_H
#define LACE_COMPRESS_SENSITIVITY_H

#include "compress/quantize.h"
#include "compress/walk.h"

/*
 * Quantize each tensor of `list` alone to `type`, rounding to the nearest, and measure the mean KL
 * divergence from the original over a few windows of the text: kls[list->n]. `report` is told how
 * far it is and may stop it. The walk is as before afterwards.
 */
enum { SENSITIVITY_WINDOWS = 4 };

lace_status sensitivity_measure(walk *w, const lace_token *tokens, size_t n_tokens, dtype type,
                                const quantize_made *list, double *kls,
                                bool (*report)(void *user, double done), void *user,
                                lace_error *err);

#endif
