/*
 * DRY ("don't repeat yourself"): a penalty for the token that would go on with a repetition. It
 * grows with the length of what is repeated, so verbatim loops end while single words may recur.
 */
#ifndef LACE_SAMPLER_DRY_H
#define LACE_SAMPLER_DRY_H

#include "base/status.h"

typedef struct dry dry;

/* Uses the dry_ members of the options, which have been checked. */
lace_status dry_create(const lace_sampler_options *options, int32_t n_vocab, dry **out,
                       lace_error *err);
void dry_free(dry *d);
void dry_accept(dry *d, lace_token token);

/* Subtract the penalties from logits [n_vocab]. */
void dry_apply(dry *d, float *logits);

#endif
