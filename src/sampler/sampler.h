/*
 * What the sampler of lace.h offers inside the library: the distribution that a token is drawn
 * from, for those who need more than the token (log-probabilities, speculation, tests).
 */
#ifndef LACE_SAMPLER_SAMPLER_H
#define LACE_SAMPLER_SAMPLER_H

#include "base/status.h"

/* A token that the chain has kept so far. */
typedef struct candidate {
    lace_token token;
    float logit;
    double p;   /* its probability among the candidates, where the running stage has computed it */
    double key; /* what the running stage orders by: larger is better, then the smaller token */
} candidate;

/*
 * Run the chain on logits [n_vocab]. *out is what is left, at least one, best first where a stage
 * has put them in order, with probabilities that add up to 1; valid until the next call. With
 * temperature 0 that is one candidate. Draws no random number, but one for XTC.
 */
lace_status sampler_distribution(lace_sampler *sampler, const float *logits, const candidate **out,
                                 size_t *n_out, lace_error *err);

#endif
