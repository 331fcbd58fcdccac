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

/* ---- Other devices --------------------------------------------------------------------------- */

/* Everything that a plain chain depends on: the cuts, the temperature and the random generator. */
typedef struct sampler_rule {
    uint64_t random[4]; /* random_state */
    float temperature;  /* 0: the best token, no draw */
    float top_p, min_p;
    int32_t top_k; /* 0: all */
} sampler_rule;

/* False if the chain has other stages: penalties, DRY, typical, XTC, mirostat. */
bool sampler_describe(const lace_sampler *sampler, sampler_rule *out);

/* Somebody else has drawn in place of this sampler: step its generator once. */
void sampler_skip_draw(lace_sampler *sampler);

#endif
