/* The sampler: every stage against distributions worked out by hand, the draw, and bad input. */
#include "sampler/sampler.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "tap.h"

/* Everything off: the plain softmax of the logits. */
static lace_sampler_options plain(void)
{
    lace_sampler_options o = lace_sampler_options_default();
    o.temperature = 1;
    o.top_k = 0;
    o.top_p = 1;
    o.min_p = 0;
    return o;
}

static lace_sampler *create(lace_sampler_options o, int32_t n_vocab)
{
    lace_sampler *s = NULL;
    lace_error err = {0};
    if (!CHECK(lace_sampler_create(&o, n_vocab, &s, &err) == LACE_OK)) {
        tap_note("%s", err.text);
        exit(1);
    }
    return s;
}

/*
 * The chain must give exactly the tokens whose expected probability is above 0. Probabilities here
 * come from float logits, which carry 6e-8 relative error: 1e-6 leaves room for a few of those.
 */
static void check_distribution(lace_sampler_options o, const float *logits, const double *expected,
                               int32_t n)
{
    lace_sampler *s = create(o, n);
    const candidate *list;
    size_t n_list, n_expected = 0;
    CHECK(sampler_distribution(s, logits, &list, &n_list, NULL) == LACE_OK);
    for (int32_t i = 0; i < n; i++)
        n_expected += expected[i] > 0;
    CHECK(n_list == n_expected);
    for (size_t i = 0; i < n_list; i++) {
        double want = expected[list[i].token];
        if (!CHECK(fabs(list[i].p - want) < 1e-6))
            tap_note("token %d: p %.9g, expected %.9g", list[i].token, list[i].p, want);
    }
    lace_sampler_free(s);
}

/* Logits of given probabilities. */
static void logits_of(const double *p, int32_t n, float *out)
{
    for (int32_t i = 0; i < n; i++)
        out[i] = (float)log(p[i]);
}

static const double five[5] = {0.1, 0.4, 0.05, 0.3, 0.15};

/* ---- Stages ---------------------------------------------------------------------------------- */

static void with_everything_off_the_chain_is_a_softmax(void)
{
    float logits[5];
    logits_of(five, 5, logits);
    check_distribution(plain(), logits, five, 5);
    for (int i = 0; i < 5; i++)
        logits[i] += 1000; /* a common offset must change nothing, nor overflow */
    double expected[5];
    double sum = 0;
    for (int i = 0; i < 5; i++)
        sum += expected[i] = exp((double)logits[i] - 1000);
    for (int i = 0; i < 5; i++)
        expected[i] /= sum;
    check_distribution(plain(), logits, expected, 5);
}

static void top_k_keeps_the_k_best(void)
{
    float logits[5];
    logits_of(five, 5, logits);
    lace_sampler_options o = plain();
    o.top_k = 2;
    check_distribution(o, logits, (double[]){0, 0.4 / 0.7, 0, 0.3 / 0.7, 0}, 5);
    o.top_k = 1;
    check_distribution(o, logits, (double[]){0, 1, 0, 0, 0}, 5);
    o.top_k = 5;
    check_distribution(o, logits, five, 5);
    o.top_k = 1000;
    check_distribution(o, logits, five, 5);
}

/* Other devices find the best in other ways: the order in which they are drawn from is fixed. */
static void top_k_gives_out_the_best_first(void)
{
    enum { N = 500, K = 37 };
    float logits[N];
    random_state random;
    random_init(&random, 3);
    for (int i = 0; i < N; i++)
        logits[i] = (float)(random_bits(&random) % 100);
    lace_sampler_options o = plain();
    o.top_k = K;
    lace_sampler *s = create(o, N);
    const candidate *list;
    size_t n;
    CHECK(sampler_distribution(s, logits, &list, &n, NULL) == LACE_OK && n == K);
    for (size_t i = 1; i < n; i++)
        CHECK(list[i - 1].logit > list[i].logit ||
              (list[i - 1].logit == list[i].logit && list[i - 1].token < list[i].token));
    lace_sampler_free(s);
}

static void top_k_prefers_the_first_of_equals(void)
{
    const float logits[6] = {1, 3, 2, 2, 2, 3};
    lace_sampler_options o = plain();
    o.top_k = 3;
    double e = exp(-1), z = 2 + e;
    check_distribution(o, logits, (double[]){0, 1 / z, e / z, 0, 0, 1 / z}, 6);
}

static int compare_down(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static void top_k_agrees_with_a_full_sort_of_a_large_vocabulary(void)
{
    enum { N = 150000, K = 40 };
    float *logits = malloc(N * sizeof *logits), *sorted = malloc(N * sizeof *sorted);
    random_state r;
    random_init(&r, 7);
    for (int i = 0; i < N; i++)
        logits[i] = sorted[i] = (float)(20 * random_unit(&r) - 10);
    qsort(sorted, N, sizeof *sorted, compare_down);
    lace_sampler_options o = plain();
    o.top_k = K;
    lace_sampler *s = create(o, N);
    const candidate *list;
    size_t n;
    CHECK(sampler_distribution(s, logits, &list, &n, NULL) == LACE_OK);
    CHECK(n == K);
    bool all_inside = true, all_true = true;
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        all_inside = all_inside && list[i].logit >= sorted[K - 1];
        all_true = all_true && logits[list[i].token] == list[i].logit;
        sum += list[i].p;
    }
    CHECK(all_inside);
    CHECK(all_true);
    CHECK(fabs(sum - 1) < 1e-12);
    lace_sampler_free(s);
    free(logits);
    free(sorted);
}

static void top_p_keeps_the_smallest_set_that_reaches_p(void)
{
    float logits[5];
    logits_of(five, 5, logits);
    lace_sampler_options o = plain();
    o.top_p = 0.6f; /* 0.4 is too little, 0.4 + 0.3 enough */
    check_distribution(o, logits, (double[]){0, 0.4 / 0.7, 0, 0.3 / 0.7, 0}, 5);
    o.top_p = 0.75f;
    check_distribution(o, logits, (double[]){0, 0.4 / 0.85, 0, 0.3 / 0.85, 0.15 / 0.85}, 5);
    o.top_p = 0; /* never fewer than one */
    check_distribution(o, logits, (double[]){0, 1, 0, 0, 0}, 5);
}

static void top_p_counts_shares_of_what_top_k_left(void)
{
    float logits[5];
    logits_of(five, 5, logits);
    lace_sampler_options o = plain();
    o.top_k = 2;    /* 4/7 and 3/7 */
    o.top_p = 0.5f; /* of all five, 0.4 would not reach it */
    check_distribution(o, logits, (double[]){0, 1, 0, 0, 0}, 5);
}

static void top_p_gives_out_the_best_first(void)
{
    float logits[5];
    logits_of(five, 5, logits);
    lace_sampler_options o = plain();
    o.top_p = 0.99f;
    lace_sampler *s = create(o, 5);
    const candidate *list;
    size_t n;
    CHECK(sampler_distribution(s, logits, &list, &n, NULL) == LACE_OK);
    const lace_token order[5] = {1, 3, 4, 0, 2};
    CHECK(n == 5);
    for (size_t i = 0; i < n; i++)
        CHECK(list[i].token == order[i]);
    lace_sampler_free(s);
}

static void min_p_keeps_what_has_a_share_of_the_best(void)
{
    float logits[5];
    logits_of(five, 5, logits);
    lace_sampler_options o = plain();
    o.min_p = 0.3f; /* 0.12 and more */
    check_distribution(o, logits, (double[]){0, 0.4 / 0.85, 0, 0.3 / 0.85, 0.15 / 0.85}, 5);
    o.min_p = 1;
    check_distribution(o, logits, (double[]){0, 1, 0, 0, 0}, 5);
}

static void typical_p_keeps_what_surprises_as_expected(void)
{
    /*
     * Entropy 1.168. Distances of -log p from it: 0.5: 0.475, 0.3: 0.036, 0.1: 1.134 (twice).
     * So the order is 0.3, 0.5, then the first of the 0.1.
     */
    const double p[4] = {0.5, 0.1, 0.3, 0.1};
    float logits[4];
    logits_of(p, 4, logits);
    logits[3] = logits[1] - 1e-6f; /* a hair more surprising, so that rounding decides nothing */
    lace_sampler_options o = plain();
    o.typical_p = 0.25f; /* the best token is not among them: that is the point of the method */
    check_distribution(o, logits, (double[]){0, 0, 1, 0}, 4);
    o.typical_p = 0.7f;
    check_distribution(o, logits, (double[]){0.5 / 0.8, 0, 0.3 / 0.8, 0}, 4);
    o.typical_p = 0.85f;
    check_distribution(o, logits, (double[]){0.5 / 0.9, 0.1 / 0.9, 0.3 / 0.9, 0}, 4);
}

static void temperature_sharpens_and_flattens(void)
{
    const float logits[3] = {0, (float)log(2), (float)log(4)};
    lace_sampler_options o = plain();
    o.temperature = 0.5f; /* squares: 1, 4, 16 */
    check_distribution(o, logits, (double[]){1 / 21., 4 / 21., 16 / 21.}, 3);
    o.temperature = 2; /* roots: 1, 1.414, 2 */
    double z = 3 + sqrt(2);
    check_distribution(o, logits, (double[]){1 / z, sqrt(2) / z, 2 / z}, 3);
}

static void temperature_comes_after_the_cuts(void)
{
    float logits[5];
    logits_of(five, 5, logits);
    lace_sampler_options o = plain();
    o.top_p = 0.6f;
    o.temperature = 0.5f;
    check_distribution(o, logits, (double[]){0, 16 / 25., 0, 9 / 25., 0}, 5);
}

static void masked_tokens_are_never_kept(void)
{
    const float logits[4] = {-INFINITY, 1, -INFINITY, 1};
    lace_sampler_options o = plain();
    check_distribution(o, logits, (double[]){0, 0.5, 0, 0.5}, 4);
    o.top_k = 3;
    o.top_p = 0.9f;
    o.typical_p = 0.9f;
    o.min_p = 0.1f;
    check_distribution(o, logits, (double[]){0, 0.5, 0, 0.5}, 4);
}

static void extreme_but_finite_logits_are_fine(void)
{
    const float logits[4] = {FLT_MAX, -FLT_MAX, FLT_MAX, 0};
    lace_sampler_options o = plain();
    o.temperature = FLT_MIN;
    o.min_p = 0.5f;
    check_distribution(o, logits, (double[]){0.5, 0, 0.5, 0}, 4);
}

/* ---- Penalties ------------------------------------------------------------------------------- */

/* The distribution after accepting some tokens, against softmax of `expected_logits`. */
static void check_penalties(lace_sampler_options o, const float *logits, const lace_token *accepted,
                            size_t n_accepted, const double *expected_logits, int32_t n)
{
    lace_sampler *s = create(o, n);
    for (size_t i = 0; i < n_accepted; i++)
        lace_sampler_accept(s, accepted[i]);
    float before[8];
    memcpy(before, logits, (size_t)n * sizeof *logits);
    const candidate *list;
    size_t n_list;
    CHECK(sampler_distribution(s, logits, &list, &n_list, NULL) == LACE_OK);
    CHECK(memcmp(before, logits, (size_t)n * sizeof *logits) == 0);
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += exp(expected_logits[i]);
    for (size_t i = 0; i < n_list; i++) {
        double want = exp(expected_logits[list[i].token]) / sum;
        if (!CHECK(fabs(list[i].p - want) < 1e-6))
            tap_note("token %d: p %.9g, expected %.9g", list[i].token, list[i].p, want);
    }
    lace_sampler_free(s);
}

static const float signs[4] = {2, -2, 0, 1};

static void repeat_penalty_divides_positive_and_multiplies_negative_logits(void)
{
    lace_sampler_options o = plain();
    o.repeat_penalty = 2;
    check_penalties(o, signs, (lace_token[]){0, 1, 2, 0}, 4, (double[]){1, -4, 0, 1}, 4);
}

static void presence_counts_once_and_frequency_each_time(void)
{
    lace_sampler_options o = plain();
    o.presence_penalty = 0.5f;
    check_penalties(o, signs, (lace_token[]){0, 0, 3}, 3, (double[]){1.5, -2, 0, 0.5}, 4);
    o.presence_penalty = 0;
    o.frequency_penalty = 0.25f;
    check_penalties(o, signs, (lace_token[]){0, 0, 3}, 3, (double[]){1.5, -2, 0, 0.75}, 4);
    o.presence_penalty = -1; /* negative ones encourage */
    o.repeat_penalty = 2;
    check_penalties(o, signs, (lace_token[]){0, 0, 1}, 3, (double[]){1.5, -3.25, 0, 1}, 4);
}

static void penalties_see_only_the_last_n_tokens(void)
{
    lace_sampler_options o = plain();
    o.frequency_penalty = 1;
    o.penalty_last_n = 3;
    /* 0 0 0 [1 0 3] */
    check_penalties(o, signs, (lace_token[]){0, 0, 0, 1, 0, 3}, 6, (double[]){1, -3, 0, 0}, 4);
    o.penalty_last_n = 0;
    check_penalties(o, signs, (lace_token[]){0, 0}, 2, (double[]){2, -2, 0, 1}, 4);
}

static void penalties_apply_to_greedy_too(void)
{
    lace_sampler_options o = plain();
    o.temperature = 0;
    o.repeat_penalty = 4;
    lace_sampler *s = create(o, 4);
    lace_token t;
    CHECK(lace_sampler_sample(s, signs, &t, NULL) == LACE_OK && t == 0);
    lace_sampler_accept(s, t);
    CHECK(lace_sampler_sample(s, signs, &t, NULL) == LACE_OK && t == 3);
    lace_sampler_free(s);
}

static void penalties_do_not_unmask_or_overflow(void)
{
    lace_sampler_options o = plain();
    o.repeat_penalty = 0.001f;
    o.presence_penalty = -1;
    lace_sampler *s = create(o, 3);
    const float logits[3] = {-INFINITY, FLT_MAX, 1};
    for (lace_token t = 0; t < 3; t++)
        lace_sampler_accept(s, t);
    const candidate *list;
    size_t n;
    CHECK(sampler_distribution(s, logits, &list, &n, NULL) == LACE_OK);
    CHECK(n == 2 && list[0].token == 1 && list[0].p == 1);
    lace_sampler_free(s);
}

static void accepting_tokens_outside_the_vocabulary_is_ignored(void)
{
    lace_sampler_options o = plain();
    o.frequency_penalty = 1;
    check_penalties(o, signs, (lace_token[]){-1, 4, 1 << 30, 0}, 4, (double[]){1, -2, 0, 1}, 4);
}

/* ---- The draw -------------------------------------------------------------------------------- */

static void draws_occur_as_often_as_their_probability_says(void)
{
    enum { N = 100000 };
    float logits[5];
    logits_of(five, 5, logits);
    lace_sampler_options o = plain();
    o.seed = 42;
    lace_sampler *s = create(o, 5);
    int counts[5] = {0};
    for (int i = 0; i < N; i++) {
        lace_token t;
        CHECK(lace_sampler_sample(s, logits, &t, NULL) == LACE_OK);
        counts[t]++;
    }
    double chi2 = 0;
    for (int i = 0; i < 5; i++)
        chi2 += (counts[i] - five[i] * N) * (counts[i] - five[i] * N) / (five[i] * N);
    /* 4 degrees of freedom: 18.47 is exceeded once in 1,000 seeds; this seed is fixed. */
    if (!CHECK(chi2 < 18.47))
        tap_note("chi-square %.2f, counts %d %d %d %d %d", chi2, counts[0], counts[1], counts[2],
                 counts[3], counts[4]);
    lace_sampler_free(s);
}

static void random_numbers_are_the_same_everywhere(void)
{
    /* From the authors' C code of xoshiro256** and splitmix64: seed 0. */
    random_state r;
    random_init(&r, 0);
    CHECK(r.s[0] == 0xe220a8397b1dcdafu);
    CHECK(r.s[1] == 0x6e789e6aa1b965f4u);
    CHECK(random_bits(&r) == 0x99ec5f36cb75f2b4u);
    CHECK(random_bits(&r) == 0xbf6e1f784956452au);
    for (int i = 0; i < 1000; i++) {
        double x = random_unit(&r);
        CHECK(x >= 0 && x < 1);
    }
}

static void the_same_seed_gives_the_same_tokens(void)
{
    float logits[100];
    for (int i = 0; i < 100; i++)
        logits[i] = (float)(i % 7);
    lace_sampler_options o = lace_sampler_options_default();
    o.seed = 123;
    lace_sampler *a = create(o, 100), *b = create(o, 100);
    o.seed = 124;
    lace_sampler *c = create(o, 100);
    int n_same_ab = 0, n_same_ac = 0;
    for (int i = 0; i < 200; i++) {
        lace_token x, y, z;
        lace_sampler_sample(a, logits, &x, NULL);
        lace_sampler_sample(b, logits, &y, NULL);
        lace_sampler_sample(c, logits, &z, NULL);
        n_same_ab += x == y;
        n_same_ac += x == z;
    }
    CHECK(n_same_ab == 200);
    CHECK(n_same_ac < 100);
    lace_sampler_free(a);
    lace_sampler_free(b);
    lace_sampler_free(c);
}

static void greedy_takes_the_first_of_equals_whatever_the_cuts(void)
{
    const float logits[6] = {-1, 5, 2, 5, -INFINITY, 5};
    lace_sampler_options o = lace_sampler_options_default();
    o.temperature = 0;
    o.typical_p = 0.1f;
    o.top_k = 1;
    lace_sampler *s = create(o, 6);
    for (int i = 0; i < 3; i++) {
        lace_token t;
        CHECK(lace_sampler_sample(s, logits, &t, NULL) == LACE_OK && t == 1);
    }
    lace_sampler_free(s);
}

static void a_vocabulary_of_one_token_works(void)
{
    lace_sampler *s = create(lace_sampler_options_default(), 1);
    lace_token t;
    CHECK(lace_sampler_sample(s, (float[]){-3}, &t, NULL) == LACE_OK && t == 0);
    lace_sampler_free(s);
}

/* ---- What must be refused -------------------------------------------------------------------- */

static void logits_that_are_not_finite_are_named(void)
{
    const float temperatures[] = {0, 1};
    for (int i = 0; i < 2; i++) {
        lace_sampler_options o = plain();
        o.temperature = temperatures[i];
        lace_sampler *s = create(o, 4);
        lace_error err = {0};
        lace_token t = 77;
        CHECK(lace_sampler_sample(s, (float[]){1, 2, NAN, INFINITY}, &t, &err) == LACE_E_NUMERIC);
        CHECK(t == -1);
        CHECK(err.status == LACE_E_NUMERIC);
        CHECK(strstr(err.text, "token 2 is NaN"));
        CHECK(lace_sampler_sample(s, (float[]){1, INFINITY, 2, 3}, &t, &err) == LACE_E_NUMERIC);
        CHECK(strstr(err.text, "token 1 is +inf"));
        const float masked[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
        CHECK(lace_sampler_sample(s, masked, &t, &err) == LACE_E_NUMERIC);
        CHECK(strstr(err.text, "all 4"));
        CHECK(lace_sampler_sample(s, masked, &t, NULL) == LACE_E_NUMERIC);
        CHECK(lace_sampler_sample(s, (float[]){1, 2, 3, 4}, &t, &err) == LACE_OK);
        lace_sampler_free(s);
    }
}

static void options_outside_their_range_are_named(void)
{
    /* clang-format off */
    static const struct { const char *name; size_t offset; bool is_int; float bad[4]; int n_bad; } rows[] = {
#define F(name) #name, offsetof(lace_sampler_options, name), false
#define I(name) #name, offsetof(lace_sampler_options, name), true
        {F(temperature), {-0.1f, NAN, INFINITY}, 3},
        {F(typical_p), {0, -1, 1.01f, NAN}, 4},
        {F(top_p), {-0.1f, -1, 1.01f, NAN}, 4},
        {F(min_p), {-0.01f, 1.01f, NAN, INFINITY}, 4},
        {F(repeat_penalty), {0, -1, NAN, INFINITY}, 4},
        {F(presence_penalty), {NAN, INFINITY, -INFINITY}, 3},
        {F(frequency_penalty), {NAN, INFINITY, -INFINITY}, 3},
        {I(top_k), {-1, -1000}, 2},
        {I(penalty_last_n), {-1, 1 << 21}, 2},
#undef F
#undef I
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int k = 0; k < rows[i].n_bad; k++) {
            lace_sampler_options o = lace_sampler_options_default();
            char *field = (char *)&o + rows[i].offset;
            if (rows[i].is_int)
                *(int32_t *)field = (int32_t)rows[i].bad[k];
            else
                *(float *)field = rows[i].bad[k];
            lace_sampler *s = (lace_sampler *)&o;
            lace_error err = {0};
            CHECK(lace_sampler_create(&o, 10, &s, &err) == LACE_E_ARG);
            CHECK(s == NULL);
            if (!CHECK(strncmp(err.text, rows[i].name, strlen(rows[i].name)) == 0))
                tap_note("%s: %s", rows[i].name, err.text);
        }
    lace_sampler_options o = lace_sampler_options_default();
    lace_sampler *s;
    CHECK(lace_sampler_create(&o, 0, &s, NULL) == LACE_E_ARG && !s);
}

static void every_failing_allocation_is_survived(void)
{
    lace_sampler_options o = plain();
    o.repeat_penalty = 1.1f;
    int n_failures = 0;
    for (long i = 0; i < 10; i++) {
        lace_sampler *s = NULL;
        lace_error err = {0};
        mem_fail_at(i, false);
        lace_status status = lace_sampler_create(&o, 1000, &s, &err);
        mem_fail_at(-1, false);
        CHECK(status == LACE_OK || (status == LACE_E_NOMEM && !s && err.text[0]));
        n_failures += status != LACE_OK;
        lace_sampler_free(s);
    }
    CHECK(n_failures == 5); /* the sampler and its four arrays */
}

static void sampling_allocates_nothing(void)
{
    float logits[5];
    logits_of(five, 5, logits);
    lace_sampler_options o = lace_sampler_options_default();
    o.typical_p = 0.9f;
    o.repeat_penalty = 1.1f;
    lace_sampler *s = create(o, 5);
    mem_fail_at(0, true);
    for (int i = 0; i < 100; i++) {
        lace_token t;
        CHECK(lace_sampler_sample(s, logits, &t, NULL) == LACE_OK);
        lace_sampler_accept(s, t);
    }
    CHECK(mem_count() == 0);
    mem_fail_at(-1, false);
    lace_sampler_free(s);
}

/* ---- DRY, XTC, mirostat ---------------------------------------------------------------------- */

static void accept_all(lace_sampler *s, const char *letters)
{
    for (const char *p = letters; *p; p++)
        lace_sampler_accept(s, *p - 'a');
}

/* The probability of a token after some text, where all logits are 0. */
static double p_after(lace_sampler_options o, const char *letters, lace_token token)
{
    float logits[8] = {0};
    lace_sampler *s = create(o, 8);
    accept_all(s, letters);
    const candidate *list;
    size_t n;
    double p = 0;
    CHECK(sampler_distribution(s, logits, &list, &n, NULL) == LACE_OK);
    for (size_t i = 0; i < n; i++)
        if (list[i].token == token)
            p = list[i].p;
    lace_sampler_free(s);
    return p;
}

static void dry_penalizes_going_on_with_a_repetition(void)
{
    lace_sampler_options o = plain();
    o.dry_multiplier = 1;
    o.dry_base = 2;
    o.dry_allowed_length = 2;
    /* Of 8 equal tokens one loses x: exp(-x) / (7 + exp(-x)). */
    const double one = 1.0 / 8;
    CHECK(fabs(p_after(o, "", 0) - one) < 1e-6);
    CHECK(fabs(p_after(o, "abcdeb", 2) - one) < 1e-6); /* "b" alone is shorter than allowed */
    double lost = exp(-1.0) / (7 + exp(-1.0));         /* "ab": 1 * 2^0 */
    CHECK(fabs(p_after(o, "abcdab", 2) - lost) < 1e-6);
    double more = exp(-4.0) / (7 + exp(-4.0)); /* "habc" has 4 tokens: 2^2 */
    CHECK(fabs(p_after(o, "habcdefhabc", 3) - more) < 1e-6);
    /* Of two places the longer repetition counts. */
    CHECK(fabs(p_after(o, "habcdbcdhabc", 3) - more) < 1e-6);
    static const lace_token breakers[] = {1};
    o.dry_breakers = breakers;
    o.n_dry_breakers = 1;
    CHECK(fabs(p_after(o, "abcdab", 2) - one) < 1e-6); /* nothing goes over "b" */
    o.n_dry_breakers = 0;
    o.dry_last_n = 3;
    CHECK(fabs(p_after(o, "abcdab", 2) - one) < 1e-6); /* too long ago */
}

static void xtc_leaves_out_the_most_probable(void)
{
    float logits[5];
    logits_of(five, 5, logits); /* 0.1, 0.4, 0.05, 0.3, 0.15 */
    lace_sampler_options o = plain();
    o.xtc_probability = 1;
    o.xtc_threshold = 0.12f;
    /* 0.4 and 0.3 go, 0.15 is the least of those above the threshold. */
    const double expected[5] = {0.1 / 0.3, 0, 0.05 / 0.3, 0, 0.15 / 0.3};
    check_distribution(o, logits, expected, 5);
    o.xtc_threshold = 0.35f; /* only one is above */
    check_distribution(o, logits, five, 5);
    o.xtc_threshold = 0.12f;
    o.xtc_probability = 0;
    check_distribution(o, logits, five, 5);
    o.xtc_probability = 0.5f;
    lace_sampler *s = create(o, 5);
    int n_cut = 0;
    for (int i = 0; i < 1000; i++) {
        const candidate *list;
        size_t n;
        CHECK(sampler_distribution(s, logits, &list, &n, NULL) == LACE_OK);
        n_cut += n == 3;
    }
    CHECK(n_cut > 420 && n_cut < 580); /* 5 standard deviations of a fair coin */
    lace_sampler_free(s);
}

static void mirostat_holds_the_surprise(void)
{
    enum { N = 200 };
    float logits[N];
    for (int i = 0; i < N; i++)
        logits[i] = -1.2f * logf((float)(i + 1)); /* as ranks of words fall off */
    for (int version = 1; version <= 2; version++) {
        lace_sampler_options o = plain();
        o.mirostat = version;
        o.mirostat_tau = 3;
        o.mirostat_eta = 0.1f;
        o.seed = 5;
        lace_sampler *s = create(o, N);
        double sum = 0;
        enum { N_DRAWS = 4000, N_WARM = 200 };
        for (int i = 0; i < N_DRAWS; i++) {
            const candidate *list;
            size_t n;
            lace_token token;
            CHECK(sampler_distribution(s, logits, &list, &n, NULL) == LACE_OK);
            double p[N] = {0};
            for (size_t k = 0; k < n; k++)
                p[list[k].token] = list[k].p;
            CHECK(lace_sampler_sample(s, logits, &token, NULL) == LACE_OK);
            if (i >= N_WARM)
                sum += -log2(p[token]);
        }
        double mean = sum / (N_DRAWS - N_WARM);
        /* The feedback makes the mean what was asked for; 0.3 is for the draws' own spread. */
        if (!CHECK(fabs(mean - 3) < 0.3))
            tap_note("version %d: %.3f bits", version, mean);
        lace_sampler_free(s);
    }
}

static void new_options_outside_of_their_range_are_refused(void)
{
    lace_sampler_options o = plain();
    lace_sampler *s;
    o.dry_multiplier = -1;
    CHECK(lace_sampler_create(&o, 5, &s, NULL) == LACE_E_ARG);
    o = plain();
    o.dry_base = 0.5f;
    CHECK(lace_sampler_create(&o, 5, &s, NULL) == LACE_E_ARG);
    o = plain();
    o.dry_last_n = 0;
    CHECK(lace_sampler_create(&o, 5, &s, NULL) == LACE_E_ARG);
    o = plain();
    o.xtc_probability = NAN;
    CHECK(lace_sampler_create(&o, 5, &s, NULL) == LACE_E_ARG);
    o = plain();
    o.mirostat = 3;
    CHECK(lace_sampler_create(&o, 5, &s, NULL) == LACE_E_ARG);
    o = plain();
    o.mirostat_tau = -1;
    CHECK(lace_sampler_create(&o, 5, &s, NULL) == LACE_E_ARG);
}

int main(void)
{
    CASE(with_everything_off_the_chain_is_a_softmax);
    CASE(top_k_keeps_the_k_best);
    CASE(top_k_gives_out_the_best_first);
    CASE(top_k_prefers_the_first_of_equals);
    CASE(top_k_agrees_with_a_full_sort_of_a_large_vocabulary);
    CASE(top_p_keeps_the_smallest_set_that_reaches_p);
    CASE(top_p_counts_shares_of_what_top_k_left);
    CASE(top_p_gives_out_the_best_first);
    CASE(min_p_keeps_what_has_a_share_of_the_best);
    CASE(typical_p_keeps_what_surprises_as_expected);
    CASE(temperature_sharpens_and_flattens);
    CASE(temperature_comes_after_the_cuts);
    CASE(masked_tokens_are_never_kept);
    CASE(extreme_but_finite_logits_are_fine);
    CASE(repeat_penalty_divides_positive_and_multiplies_negative_logits);
    CASE(presence_counts_once_and_frequency_each_time);
    CASE(penalties_see_only_the_last_n_tokens);
    CASE(penalties_apply_to_greedy_too);
    CASE(penalties_do_not_unmask_or_overflow);
    CASE(accepting_tokens_outside_the_vocabulary_is_ignored);
    CASE(draws_occur_as_often_as_their_probability_says);
    CASE(random_numbers_are_the_same_everywhere);
    CASE(the_same_seed_gives_the_same_tokens);
    CASE(greedy_takes_the_first_of_equals_whatever_the_cuts);
    CASE(a_vocabulary_of_one_token_works);
    CASE(logits_that_are_not_finite_are_named);
    CASE(options_outside_their_range_are_named);
    CASE(every_failing_allocation_is_survived);
    CASE(sampling_allocates_nothing);
    CASE(dry_penalizes_going_on_with_a_repetition);
    CASE(xtc_leaves_out_the_most_probable);
    CASE(mirostat_holds_the_surprise);
    CASE(new_options_outside_of_their_range_are_refused);
    return tap_end();
}
