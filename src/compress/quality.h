/*
 * Quality: how well a model predicts a text, and how far its predictions are from another model's.
 *
 * Perplexity is exp of the mean of -ln p(next token). The Kullback-Leibler divergence of a model
 * from its base is the mean over positions of
 *
 *     KLD = sum over tokens t of p_base(t) (ln p_base(t) - ln p(t))
 *
 * Both are computed from logits in double precision. A row of logits is judged alone, by a function
 * without state, so rows may be judged in parallel; the results are then added in order, and the
 * sums do not depend on the number of threads.
 */
#ifndef LACE_COMPRESS_QUALITY_H
#define LACE_COMPRESS_QUALITY_H

#include "base/status.h"

/* What one position says. */
typedef struct quality_score {
    double nll;       /* -ln p(target) */
    double nll_base;  /* the same of the base model; 0 without one */
    double kld;       /* 0 without a base */
    bool is_same_top; /* both find the same token the likeliest; false without a base */
} quality_score;

/* Judge the logits [n_vocab] of a position whose next token is `target`; `base` may be NULL. */
quality_score quality_judge(const float *logits, const float *base, int64_t n_vocab,
                            lace_token target);

/* A mean and its standard error. */
typedef struct quality_estimate {
    double mean, error;
} quality_estimate;

/* Scores, added up. */
typedef struct quality {
    uint64_t n;
    double nll, nll2;           /* sums of the values and of their squares */
    double nll_base, nll_base2; /* of the base */
    double nll_nll_base;        /* of the products */
    double kld, kld2;
    uint64_t n_same_top;
    float *klds;  /* [n]: each divergence, for the quantiles; NULL without a base */
    uint64_t max; /* the most scores there will be */
} quality;

/* Room for max scores; with has_base, of comparisons. LACE_E_NOMEM. */
lace_status quality_init(quality *q, uint64_t max, bool has_base, lace_error *err);
void quality_deinit(quality *q);

/* Add a score; q->n < q->max. */
void quality_add(quality *q, const quality_score *score);

/* Everything there is to say. Without a base, only the first three are set. */
typedef struct quality_result {
    uint64_t n;                  /* positions */
    quality_estimate nll;        /* mean -ln p */
    quality_estimate perplexity; /* exp(nll); the error is that of nll times the value */
    quality_estimate perplexity_base;
    quality_estimate ln_ratio; /* ln(perplexity / perplexity_base), with their covariance */
    quality_estimate kld;
    double kld_median, kld_p99, kld_p999, kld_max;
    quality_estimate same_top; /* share of positions, 0 to 1 */
} quality_result;

/* The scores so far; sorts q->klds. */
void quality_summarize(quality *q, quality_result *out);

/* The same without sorting and without quantiles, for progress. */
void quality_estimate_now(const quality *q, quality_result *out);

/* The value below which a share p of n sorted values lies, between neighbours by proportion. */
double quality_quantile(const float *sorted, uint64_t n, double p);

#endif
