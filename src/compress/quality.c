/* Perplexity and divergence from rows of logits, and their error estimates. */
#include "compress/quality.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

/* ---- One row --------------------------------------------------------------------------------- */

/* ln of the sum of exp(logits), and where the largest is. */
static double log_sum_exp(const float *logits, int64_t n, int64_t *top)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    double sum = 0;
    float max = logits[best];
    for (int64_t i = 0; i < n; i++)
        sum += expf(logits[i] - max);
    *top = best;
    return (double)max + log(sum);
}

quality_score quality_judge(const float *logits, const float *base, int64_t n_vocab,
                            lace_token target)
{
    assert(target >= 0 && target < n_vocab);
    int64_t top, top_base;
    double norm = log_sum_exp(logits, n_vocab, &top);
    quality_score score = {.nll = norm - (double)logits[target]};
    if (!base)
        return score;
    double norm_base = log_sum_exp(base, n_vocab, &top_base);
    double kld = 0;
    for (int64_t i = 0; i < n_vocab; i++) {
        double ln_base = (double)base[i] - norm_base;
        if (ln_base > -40) /* e^-40 of anything a float can hold is less than rounding */
            kld += (double)expf((float)ln_base) * (ln_base - ((double)logits[i] - norm));
    }
    score.nll_base = norm_base - (double)base[target];
    score.kld = kld;
    score.is_same_top = top == top_base;
    return score;
}

/* ---- Sums ------------------------------------------------------------------------------------ */

lace_status quality_init(quality *q, uint64_t max, bool has_base, lace_error *err)
{
    *q = (quality){.max = max};
    if (has_base && !(q->klds = mem_calloc(max, sizeof *q->klds)))
        return error_nomem(err, "divergences");
    return LACE_OK;
}

void quality_deinit(quality *q)
{
    mem_free(q->klds);
    *q = (quality){0};
}

void quality_add(quality *q, const quality_score *s)
{
    assert(q->n < q->max);
    q->nll += s->nll;
    q->nll2 += s->nll * s->nll;
    if (q->klds) {
        q->nll_base += s->nll_base;
        q->nll_base2 += s->nll_base * s->nll_base;
        q->nll_nll_base += s->nll * s->nll_base;
        q->kld += s->kld;
        q->kld2 += s->kld * s->kld;
        q->n_same_top += s->is_same_top;
        q->klds[q->n] = (float)s->kld;
    }
    q->n++;
}

/* ---- Results --------------------------------------------------------------------------------- */

/* Mean and its standard error: sqrt((mean of squares - square of mean) / (n - 1)). */
static quality_estimate estimate(double sum, double sum2, uint64_t n)
{
    quality_estimate e = {.mean = n ? sum / (double)n : 0};
    if (n > 1) {
        double variance = sum2 / (double)n - e.mean * e.mean;
        e.error = variance > 0 ? sqrt(variance / (double)(n - 1)) : 0;
    }
    return e;
}

static quality_estimate exp_of(quality_estimate ln)
{
    double value = exp(ln.mean);
    return (quality_estimate){value, value * ln.error};
}

/* The two sides are judged on the same tokens: their errors mostly cancel in the ratio. */
static quality_estimate ln_ratio(const quality *q, quality_estimate a, quality_estimate b)
{
    quality_estimate e = {.mean = a.mean - b.mean};
    if (q->n > 1) {
        double covariance = (q->nll_nll_base / (double)q->n - a.mean * b.mean) / (double)(q->n - 1);
        double variance = a.error * a.error + b.error * b.error - 2 * covariance;
        e.error = variance > 0 ? sqrt(variance) : 0;
    }
    return e;
}

void quality_estimate_now(const quality *q, quality_result *out)
{
    *out = (quality_result){.n = q->n, .nll = estimate(q->nll, q->nll2, q->n)};
    out->perplexity = exp_of(out->nll);
    if (!q->klds)
        return;
    quality_estimate base = estimate(q->nll_base, q->nll_base2, q->n);
    out->perplexity_base = exp_of(base);
    out->ln_ratio = ln_ratio(q, out->nll, base);
    out->kld = estimate(q->kld, q->kld2, q->n);
    /* A share is the mean of zeros and ones, which are their own squares. */
    out->same_top = estimate((double)q->n_same_top, (double)q->n_same_top, q->n);
}

double quality_quantile(const float *sorted, uint64_t n, double p)
{
    if (n == 0)
        return 0;
    double at = p * (double)(n - 1);
    uint64_t below = (uint64_t)at;
    uint64_t above = below + 1 < n ? below + 1 : below;
    double part = at - (double)below;
    return (1 - part) * (double)sorted[below] + part * (double)sorted[above];
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void quality_summarize(quality *q, quality_result *out)
{
    quality_estimate_now(q, out);
    if (!q->klds || q->n == 0)
        return;
    qsort(q->klds, q->n, sizeof *q->klds, compare_floats);
    out->kld_median = quality_quantile(q->klds, q->n, 0.5);
    out->kld_p99 = quality_quantile(q->klds, q->n, 0.99);
    out->kld_p999 = quality_quantile(q->klds, q->n, 0.999);
    out->kld_max = (double)q->klds[q->n - 1];
}
