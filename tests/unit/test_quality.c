/* Perplexity and divergence, against values worked out by hand. */
#include <math.h>

#include "base/mem.h"
#include "compress/quality.h"
#include "tap.h"

/* expf has 24 bits; a few of them may be lost in sums of some terms. */
static const double TOLERANCE = 1e-6;

static bool is_near(double found, double expected)
{
    bool ok = fabs(found - expected) <= TOLERANCE * (1 + fabs(expected));
    if (!ok)
        tap_note("found %.9g, expected %.9g", found, expected);
    return ok;
}

static void equal_logits_cost_ln_of_the_vocabulary(void)
{
    static const float logits[8] = {3, 3, 3, 3, 3, 3, 3, 3};
    quality_score s = quality_judge(logits, NULL, 8, 5);
    CHECK(is_near(s.nll, log(8)));
    CHECK(s.kld == 0 && s.nll_base == 0 && !s.is_same_top);
}

static void probabilities_do_not_depend_on_an_offset(void)
{
    /* p = 1/4, 3/4: far beyond what expf of the logit itself could hold. */
    const float logits[2] = {1000, 1000 + logf(3)};
    CHECK(fabs(quality_judge(logits, NULL, 2, 0).nll - log(4)) < 1e-4); /* 1000 + ln 3 is rounded */
    CHECK(fabs(quality_judge(logits, NULL, 2, 1).nll - log(4.0 / 3)) < 1e-4);
}

static void masked_tokens_have_no_probability(void)
{
    static const float logits[3] = {-INFINITY, 0, 0}, base[3] = {-INFINITY, 0, 0};
    quality_score s = quality_judge(logits, base, 3, 1);
    CHECK(is_near(s.nll, log(2)));
    CHECK(is_near(s.kld, 0));
}

static void divergence_is_that_of_the_definition(void)
{
    /* base 1/2, 1/4, 1/4; model 1/4, 1/2, 1/4: KLD = 1/2 ln 2 + 1/4 ln 1/2 + 0 = 1/4 ln 2. */
    const float base[3] = {logf(2), 0, 0}, logits[3] = {0, logf(2), 0};
    quality_score s = quality_judge(logits, base, 3, 0);
    CHECK(is_near(s.kld, log(2) / 4));
    CHECK(is_near(s.nll, log(4)));
    CHECK(is_near(s.nll_base, log(2)));
    CHECK(!s.is_same_top);
}

static void a_model_does_not_differ_from_itself(void)
{
    static const float logits[4] = {0.5f, -2, 7, 1};
    quality_score s = quality_judge(logits, logits, 4, 3);
    CHECK(is_near(s.kld, 0));
    CHECK(s.nll == s.nll_base);
    CHECK(s.is_same_top);
}

static void estimates_have_the_standard_error_of_a_mean(void)
{
    quality q;
    CHECK(quality_init(&q, 3, false, NULL) == LACE_OK);
    for (int i = 1; i <= 3; i++)
        quality_add(&q, &(quality_score){.nll = i});
    quality_result r;
    quality_summarize(&q, &r);
    /* 1, 2, 3: mean 2, mean square 14/3, variance 2/3, error sqrt(2/3 / 2). */
    CHECK(r.n == 3);
    CHECK(is_near(r.nll.mean, 2));
    CHECK(is_near(r.nll.error, sqrt(1.0 / 3)));
    CHECK(is_near(r.perplexity.mean, exp(2)));
    CHECK(is_near(r.perplexity.error, exp(2) * sqrt(1.0 / 3)));
    quality_deinit(&q);
}

static void errors_that_go_together_cancel_in_the_ratio(void)
{
    quality q;
    CHECK(quality_init(&q, 4, true, NULL) == LACE_OK);
    for (int i = 1; i <= 4; i++)
        quality_add(&q, &(quality_score){.nll = i + 0.5, .nll_base = i, .is_same_top = i != 2});
    quality_result r;
    quality_summarize(&q, &r);
    CHECK(is_near(r.ln_ratio.mean, 0.5));
    CHECK(r.ln_ratio.error < 1e-6); /* always one half apart */
    CHECK(is_near(r.perplexity_base.mean, exp(2.5)));
    CHECK(is_near(r.same_top.mean, 0.75));
    CHECK(is_near(r.same_top.error, sqrt(0.75 * 0.25 / 3)));
    quality_deinit(&q);
}

static void quantiles_lie_between_neighbours(void)
{
    static const float sorted[5] = {0, 1, 2, 4, 8};
    CHECK(quality_quantile(sorted, 5, 0) == 0);
    CHECK(quality_quantile(sorted, 5, 0.5) == 2);
    CHECK(is_near(quality_quantile(sorted, 5, 0.625), 3));
    CHECK(quality_quantile(sorted, 5, 1) == 8);
    CHECK(is_near(quality_quantile(sorted, 4, 0.5), 1.5)); /* an even count: the usual median */
    CHECK(quality_quantile(sorted, 1, 0.99) == 0);

    quality q;
    CHECK(quality_init(&q, 5, true, NULL) == LACE_OK);
    static const double unsorted[5] = {4, 0, 8, 2, 1};
    for (int i = 0; i < 5; i++)
        quality_add(&q, &(quality_score){.kld = unsorted[i]});
    quality_result r;
    quality_summarize(&q, &r);
    CHECK(r.kld_median == 2 && r.kld_max == 8);
    CHECK(is_near(r.kld_p99, 4 + 4 * 0.96)); /* at 0.99 * 4 = 3.96 */
    CHECK(is_near(r.kld.mean, 3));
    quality_deinit(&q);
}

static void no_memory_is_a_status(void)
{
    quality q;
    lace_error err;
    mem_fail_at(0, false);
    CHECK(quality_init(&q, 10, true, &err) == LACE_E_NOMEM);
    mem_fail_at(-1, false);
    quality_deinit(&q);
}

int main(void)
{
    CASE(equal_logits_cost_ln_of_the_vocabulary);
    CASE(probabilities_do_not_depend_on_an_offset);
    CASE(masked_tokens_have_no_probability);
    CASE(divergence_is_that_of_the_definition);
    CASE(a_model_does_not_differ_from_itself);
    CASE(estimates_have_the_standard_error_of_a_mean);
    CASE(errors_that_go_together_cancel_in_the_ratio);
    CASE(quantiles_lie_between_neighbours);
    CASE(no_memory_is_a_status);
    return tap_end();
}
