/*
 * The sampler: a chain of stages that thins out the tokens, and a draw from those that remain.
 *
 * Penalties change logits, which are still dense: one float for each token. top_k makes them a list
 * of candidates; the stages after it shorten or weight that list. Nothing is ever sorted in full: a
 * heap gives out the best candidates one by one, and a stage stops as soon as it has enough.
 */
#include "sampler/sampler.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "sampler/dry.h"
#include "base/random.h"

enum { MAX_LAST_N = 1 << 20 }; /* recent tokens that penalties may look at */

struct lace_sampler {
    lace_sampler_options options;
    int32_t n_vocab;
    random_state random;

    const float *dense; /* [n_vocab] what the chain works on: the caller's logits or `penalized` */
    float *penalized;   /* [n_vocab], only with penalties */
    candidate *list;    /* [list_capacity] */
    size_t n_list;
    size_t list_capacity; /* top_k, or n_vocab without it */

    /* The recent tokens, a ring, and how often each token occurs in it; only with penalties. */
    dry *dry;           /* only with DRY */
    double mu;          /* mirostat: surprise that is allowed, in bits */
    lace_token *recent; /* [penalty_last_n] */
    int32_t n_recent;
    int32_t oldest;
    int32_t *n_seen; /* [n_vocab] */
};

/* ---- Options --------------------------------------------------------------------------------- */

lace_sampler_options lace_sampler_options_default(void)
{
    return (lace_sampler_options){
        .temperature = 0.8f,
        .top_k = 40,
        .typical_p = 1.0f,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .repeat_penalty = 1.0f,
        .penalty_last_n = 64,
        .dry_base = 1.75f,
        .dry_allowed_length = 2,
        .dry_last_n = 1024,
        .xtc_threshold = 0.1f,
        .mirostat_tau = 5,
        .mirostat_eta = 0.1f,
    };
}

static bool has_penalties(const lace_sampler_options *o)
{
    return o->penalty_last_n > 0 &&
           (o->repeat_penalty != 1 || o->presence_penalty != 0 || o->frequency_penalty != 0);
}

static lace_status check_options(const lace_sampler_options *o, lace_error *err)
{
    /* clang-format off */
    const struct { const char *name; float value; bool is_valid; const char *range; } rows[] = {
        /* The comparisons are false for NaN. */
        {"temperature", o->temperature, o->temperature >= 0 && o->temperature <= FLT_MAX, "0 or more"},
        {"typical_p", o->typical_p, o->typical_p > 0 && o->typical_p <= 1, "above 0, at most 1"},
        {"top_p", o->top_p, o->top_p >= 0 && o->top_p <= 1, "0 to 1"},
        {"min_p", o->min_p, o->min_p >= 0 && o->min_p <= 1, "0 to 1"},
        {"repeat_penalty", o->repeat_penalty, o->repeat_penalty > 0 && o->repeat_penalty <= FLT_MAX, "above 0"},
        {"presence_penalty", o->presence_penalty, isfinite(o->presence_penalty), "a finite number"},
        {"frequency_penalty", o->frequency_penalty, isfinite(o->frequency_penalty), "a finite number"},
        {"dry_multiplier", o->dry_multiplier, o->dry_multiplier >= 0 && o->dry_multiplier <= FLT_MAX, "0 or more"},
        {"dry_base", o->dry_base, o->dry_base >= 1 && o->dry_base <= FLT_MAX, "1 or more"},
        {"xtc_probability", o->xtc_probability, o->xtc_probability >= 0 && o->xtc_probability <= 1, "0 to 1"},
        {"xtc_threshold", o->xtc_threshold, o->xtc_threshold >= 0 && o->xtc_threshold <= 1, "0 to 1"},
        {"mirostat_tau", o->mirostat_tau, o->mirostat_tau >= 0 && o->mirostat_tau <= FLT_MAX, "0 or more"},
        {"mirostat_eta", o->mirostat_eta, o->mirostat_eta >= 0 && o->mirostat_eta <= FLT_MAX, "0 or more"},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!rows[i].is_valid)
            return error_set(err, LACE_E_ARG, "%s is %g, expected %s", rows[i].name,
                             (double)rows[i].value, rows[i].range);
    if (o->top_k < 0)
        return error_set(err, LACE_E_ARG, "top_k is %d, expected 0 or more", o->top_k);
    if (o->dry_allowed_length < 0)
        return error_set(err, LACE_E_ARG, "dry_allowed_length is %d, expected 0 or more",
                         o->dry_allowed_length);
    if (o->dry_last_n < 1 || o->dry_last_n > MAX_LAST_N)
        return error_set(err, LACE_E_ARG, "dry_last_n is %d, expected 1 to %d", o->dry_last_n,
                         MAX_LAST_N);
    if (o->mirostat < 0 || o->mirostat > 2)
        return error_set(err, LACE_E_ARG, "mirostat is %d, expected 0 to 2", o->mirostat);
    if (o->penalty_last_n < 0 || o->penalty_last_n > MAX_LAST_N)
        return error_set(err, LACE_E_ARG, "penalty_last_n is %d, expected 0 to %d",
                         o->penalty_last_n, MAX_LAST_N);
    return LACE_OK;
}

/* ---- Heap ------------------------------------------------------------------------------------ */

typedef bool (*order_fn)(const candidate *a, const candidate *b);

static bool is_better(const candidate *a, const candidate *b)
{
    return a->key != b->key ? a->key > b->key : a->token < b->token;
}

static bool is_worse(const candidate *a, const candidate *b)
{
    return is_better(b, a);
}

/* Restore the heap below i: no child comes before its parent. Inlined with a constant order. */
static inline void sift_down(candidate *heap, size_t n, size_t i, order_fn before)
{
    candidate moved = heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &moved))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moved;
}

static inline void heapify(candidate *heap, size_t n, order_fn before)
{
    for (size_t i = n / 2; i-- > 0;)
        sift_down(heap, n, i, before);
}

/* Move the first of a heap of n behind its end, which shrinks by one. */
static inline void pop(candidate *heap, size_t n, order_fn before)
{
    candidate first = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = first;
    sift_down(heap, n - 1, 0, before);
}

/* Keep the best candidates by key, best first, until their probabilities reach `mass`. */
static void keep_mass(lace_sampler *s, double mass)
{
    heapify(s->list, s->n_list, is_better);
    size_t n = s->n_list; /* still in the heap; the kept ones grow down from the end */
    double sum = 0;
    while (n > 0 && (n == s->n_list || sum < mass)) {
        pop(s->list, n, is_better);
        sum += s->list[--n].p;
    }
    size_t n_kept = s->n_list - n;
    memmove(s->list, s->list + n, n_kept * sizeof *s->list);
    for (size_t i = 0, j = n_kept - 1; i < j; i++, j--) {
        candidate swap = s->list[i];
        s->list[i] = s->list[j];
        s->list[j] = swap;
    }
    s->n_list = n_kept;
}

/* ---- Stages ---------------------------------------------------------------------------------- */

static float max_logit(const lace_sampler *s)
{
    float max = s->list[0].logit;
    for (size_t i = 1; i < s->n_list; i++)
        if (s->list[i].logit > max)
            max = s->list[i].logit;
    return max;
}

/* Fill p of every candidate: softmax of logit / temperature. */
static void softmax(lace_sampler *s, double temperature)
{
    double max = max_logit(s), sum = 0;
    for (size_t i = 0; i < s->n_list; i++)
        sum += s->list[i].p = exp((s->list[i].logit - max) / temperature);
    for (size_t i = 0; i < s->n_list; i++)
        s->list[i].p /= sum; /* >= 1: the best one has exp(0) */
}

static float penalize(const lace_sampler_options *o, float logit, int32_t n_seen)
{
    float x = logit > 0 ? logit / o->repeat_penalty : logit * o->repeat_penalty;
    x -= o->frequency_penalty * (float)n_seen + o->presence_penalty;
    /* Overflow must not turn a penalty into a mask or into infinity; a mask stays one. */
    if (logit == -INFINITY)
        return logit;
    return x > FLT_MAX ? FLT_MAX : x >= -FLT_MAX ? x : -FLT_MAX;
}

static void stage_penalties(lace_sampler *s)
{
    if (s->n_recent == 0)
        return;
    memcpy(s->penalized, s->dense, (size_t)s->n_vocab * sizeof *s->penalized);
    /* Each value is computed from the original, so a token that occurs twice needs no care. */
    for (int32_t i = 0; i < s->n_recent; i++) {
        lace_token t = s->recent[i];
        s->penalized[t] = penalize(&s->options, s->dense[t], s->n_seen[t]);
    }
    s->dense = s->penalized;
}

static void stage_dry(lace_sampler *s)
{
    if (s->dense != s->penalized)
        memcpy(s->penalized, s->dense, (size_t)s->n_vocab * sizeof *s->penalized);
    dry_apply(s->dry, s->penalized);
    s->dense = s->penalized;
}

/* A heap with the worst on top becomes a list with the best first. */
static void sort_worst_heap(candidate *list, size_t n)
{
    for (; n > 1; n--)
        pop(list, n, is_worse);
}

/*
 * From dense logits to candidates: all that are not masked, as they come, or the k best, best
 * first: an order that does not depend on how they were found, as other devices find them in other
 * ways.
 */
static void stage_top_k(lace_sampler *s)
{
    size_t k = s->list_capacity;
    candidate *list = s->list;
    int32_t token = 0;
    s->n_list = 0;
    for (; token < s->n_vocab && s->n_list < k; token++) {
        float x = s->dense[token];
        if (x > -INFINITY)
            list[s->n_list++] = (candidate){.token = token, .logit = x, .key = x};
    }
    if (k == (size_t)s->n_vocab)
        return;
    /* A heap with the worst on top; among equals the larger token is worse,
     * so ties change nothing. */
    heapify(list, s->n_list, is_worse);
    for (; token < s->n_vocab; token++) {
        float x = s->dense[token];
        if (x > list[0].logit) {
            list[0] = (candidate){.token = token, .logit = x, .key = x};
            sift_down(list, k, 0, is_worse);
        }
    }
    sort_worst_heap(list, s->n_list);
}

/* Meister et al. 2023: keep the tokens whose surprise is closest to the expected one. */
static void stage_typical_p(lace_sampler *s)
{
    softmax(s, 1);
    double entropy = 0;
    for (size_t i = 0; i < s->n_list; i++)
        if (s->list[i].p > 0)
            entropy -= s->list[i].p * log(s->list[i].p);
    for (size_t i = 0; i < s->n_list; i++)
        s->list[i].key = -fabs(-log(s->list[i].p) - entropy);
    keep_mass(s, s->options.typical_p);
}

static void stage_top_p(lace_sampler *s)
{
    softmax(s, 1);
    for (size_t i = 0; i < s->n_list; i++)
        s->list[i].key = s->list[i].logit;
    keep_mass(s, s->options.top_p);
}

static void stage_min_p(lace_sampler *s)
{
    double max = max_logit(s);
    size_t n = 0;
    for (size_t i = 0; i < s->n_list; i++)
        if (exp(s->list[i].logit - max) >= s->options.min_p)
            s->list[n++] = s->list[i];
    s->n_list = n;
}

/* Leave out the most probable ones now and then, if others are probable enough. */
static void stage_xtc(lace_sampler *s)
{
    if (random_unit(&s->random) >= s->options.xtc_probability)
        return;
    softmax(s, 1);
    size_t n_above = 0, last = 0;
    for (size_t i = 0; i < s->n_list; i++) {
        if (s->list[i].p < s->options.xtc_threshold)
            continue;
        bool is_least = n_above == 0 || s->list[i].p < s->list[last].p ||
                        (s->list[i].p == s->list[last].p && s->list[i].token > s->list[last].token);
        last = is_least ? i : last;
        n_above++;
    }
    if (n_above < 2)
        return;
    lace_token kept = s->list[last].token;
    size_t n = 0;
    for (size_t i = 0; i < s->n_list; i++)
        if (s->list[i].p < s->options.xtc_threshold || s->list[i].token == kept)
            s->list[n++] = s->list[i];
    s->n_list = n;
}

/* Keep the n best, best first. */
static void keep_best(lace_sampler *s, size_t n_kept)
{
    for (size_t i = 0; i < s->n_list; i++)
        s->list[i].key = s->list[i].logit;
    heapify(s->list, s->n_list, is_better);
    size_t n = s->n_list;
    for (size_t i = 0; i < n_kept; i++, n--)
        pop(s->list, n, is_better);
    memmove(s->list, s->list + n, n_kept * sizeof *s->list);
    for (size_t i = 0, j = n_kept - 1; i < j; i++, j--) {
        candidate swap = s->list[i];
        s->list[i] = s->list[j];
        s->list[j] = swap;
    }
    s->n_list = n_kept;
}

/*
 * Mirostat (Basu et al. 2021). Version 2 leaves out tokens that surprise more than mu bits. Version
 * 1 estimates from the 100 best how probabilities fall with their rank, and finds the k at which
 * the surprise will be mu.
 */
static void stage_mirostat(lace_sampler *s)
{
    enum { N_ESTIMATE = 100 };
    softmax(s, s->options.temperature);
    size_t n_kept = 0;
    if (s->options.mirostat == 2) {
        for (size_t i = 0; i < s->n_list; i++)
            n_kept += -log2(s->list[i].p) <= s->mu;
    } else {
        size_t n = s->n_list < N_ESTIMATE ? s->n_list : N_ESTIMATE;
        size_t n_vocab = s->n_list;
        keep_best(s, n);
        double sum_ti = 0, sum_bi = 0;
        for (size_t i = 0; i + 1 < n && s->list[i + 1].p > 0; i++) {
            double t = log((double)(i + 2) / (double)(i + 1)),
                   b = log(s->list[i].p / s->list[i + 1].p);
            sum_ti += t * b;
            sum_bi += t * t;
        }
        double slope = sum_bi > 0 ? sum_ti / sum_bi : 1, epsilon = slope - 1;
        double k = pow(epsilon * pow(2, s->mu) / (1 - pow((double)n_vocab, -epsilon)), 1 / slope);
        n_kept = k >= 1 && k < (double)n ? (size_t)k : k < 1 ? 1 : n;
    }
    keep_best(s, n_kept > 0 ? n_kept : 1);
    double sum = 0;
    for (size_t i = 0; i < s->n_list; i++)
        sum += s->list[i].p;
    for (size_t i = 0; i < s->n_list; i++)
        s->list[i].p /= sum;
}

static void stage_temperature(lace_sampler *s)
{
    softmax(s, s->options.temperature);
}

/* Temperature 0: the best one, the first of equals. It needs no other stage but the penalties. */
static void stage_greedy(lace_sampler *s)
{
    int32_t best = 0;
    for (int32_t i = 1; i < s->n_vocab; i++)
        if (s->dense[i] > s->dense[best])
            best = i;
    s->list[0] = (candidate){.token = best, .logit = s->dense[best], .p = 1};
    s->n_list = 1;
}

static bool is_greedy(const lace_sampler_options *o)
{
    return o->temperature == 0;
}

static bool is_random(const lace_sampler_options *o)
{
    return !is_greedy(o);
}

static bool has_dry(const lace_sampler_options *o)
{
    return o->dry_multiplier > 0;
}

static bool has_mirostat(const lace_sampler_options *o)
{
    return is_random(o) && o->mirostat > 0;
}

/* The stages that mirostat takes the place of. */
static bool has_cuts(const lace_sampler_options *o)
{
    return is_random(o) && o->mirostat == 0;
}

static bool has_xtc(const lace_sampler_options *o)
{
    return has_cuts(o) && o->xtc_probability > 0;
}

static bool has_typical_p(const lace_sampler_options *o)
{
    return has_cuts(o) && o->typical_p < 1;
}

static bool has_top_p(const lace_sampler_options *o)
{
    return has_cuts(o) && o->top_p < 1;
}

static bool has_min_p(const lace_sampler_options *o)
{
    return has_cuts(o) && o->min_p > 0;
}

/* The chain. A new stage is a function above and a row here. */
/* clang-format off */
static const struct {
    bool (*is_on)(const lace_sampler_options *o);
    void (*apply)(lace_sampler *s);
} chain[] = {
    {has_penalties, stage_penalties},
    {has_dry, stage_dry},
    {is_greedy, stage_greedy},
    {is_random, stage_top_k},
    {has_typical_p, stage_typical_p},
    {has_top_p, stage_top_p},
    {has_min_p, stage_min_p},
    {has_xtc, stage_xtc},
    {has_cuts, stage_temperature},
    {has_mirostat, stage_mirostat},
};
/* clang-format on */

/* ---- Sampling -------------------------------------------------------------------------------- */

/* NaN, +inf, or nothing to choose from. */
static lace_status check_logits(const float *logits, int32_t n, lace_error *err)
{
    int n_bad = 0, n_masked = 0; /* no early exit: this way the loop becomes vector code */
    for (int32_t i = 0; i < n; i++) {
        n_bad += !(logits[i] < INFINITY);
        n_masked += logits[i] == -INFINITY;
    }
    if (n_masked == n)
        return error_set(err, LACE_E_NUMERIC, "all %d logits are -inf: no token is left", n);
    if (n_bad == 0)
        return LACE_OK;
    int32_t i = 0;
    while (logits[i] < INFINITY)
        i++;
    return error_set(err, LACE_E_NUMERIC, "the logit of token %d is %s (%d of %d are not finite)",
                     i, isnan(logits[i]) ? "NaN" : "+inf", n_bad, n);
}

lace_status sampler_distribution(lace_sampler *s, const float *logits, const candidate **out,
                                 size_t *n_out, lace_error *err)
{
    *out = NULL;
    *n_out = 0;
    TRY(check_logits(logits, s->n_vocab, err));
    s->dense = logits;
    for (size_t i = 0; i < sizeof chain / sizeof chain[0]; i++)
        if (chain[i].is_on(&s->options))
            chain[i].apply(s);
    s->dense = NULL;
    assert(s->n_list > 0);
    *out = s->list;
    *n_out = s->n_list;
    return LACE_OK;
}

lace_status lace_sampler_sample(lace_sampler *s, const float *logits, lace_token *out,
                                lace_error *err)
{
    *out = -1;
    const candidate *list;
    size_t n;
    TRY(sampler_distribution(s, logits, &list, &n, err));
    size_t i = 0;
    if (n > 1) {
        double left = random_unit(&s->random);
        /* Rounding may leave the sum of all just below the draw: then the last
         * possible one is it. */
        size_t last = 0;
        for (i = 0; i < n && left >= list[i].p; i++) {
            left -= list[i].p;
            if (list[i].p > 0)
                last = i;
        }
        if (i == n)
            i = last;
    }
    *out = list[i].token;
    if (has_mirostat(&s->options))
        s->mu -= s->options.mirostat_eta * (-log2(list[i].p) - s->options.mirostat_tau);
    return LACE_OK;
}

void lace_sampler_accept(lace_sampler *s, lace_token token)
{
    if (s->dry && token >= 0 && token < s->n_vocab)
        dry_accept(s->dry, token);
    if (!s->recent || token < 0 || token >= s->n_vocab)
        return;
    if (s->n_recent == s->options.penalty_last_n)
        s->n_seen[s->recent[s->oldest]]--;
    else
        s->n_recent++;
    s->recent[s->oldest] = token;
    s->oldest = (s->oldest + 1) % s->options.penalty_last_n;
    s->n_seen[token]++;
}

/* ---- Other devices --------------------------------------------------------------------------- */

bool sampler_describe(const lace_sampler *s, sampler_rule *out)
{
    const lace_sampler_options *o = &s->options;
    if (has_penalties(o) || has_dry(o) || has_mirostat(o) || has_xtc(o) || has_typical_p(o))
        return false;
    bool is_short = s->list_capacity < (size_t)s->n_vocab;
    *out = (sampler_rule){.temperature = o->temperature,
                          .top_p = o->top_p,
                          .min_p = o->min_p,
                          .top_k = is_random(o) && is_short ? o->top_k : 0};
    memcpy(out->random, s->random.s, sizeof out->random);
    return true;
}

void sampler_skip_draw(lace_sampler *s)
{
    random_bits(&s->random);
}

/* ---- Lifetime -------------------------------------------------------------------------------- */

lace_status lace_sampler_create(const lace_sampler_options *options, int32_t n_vocab,
                                lace_sampler **out, lace_error *err)
{
    *out = NULL;
    TRY(check_options(options, err));
    if (n_vocab < 1)
        return error_set(err, LACE_E_ARG, "n_vocab is %d, expected 1 or more", n_vocab);
    lace_sampler *s = mem_calloc(1, sizeof *s);
    if (!s)
        return error_nomem(err, "a sampler");
    s->options = *options;
    s->n_vocab = n_vocab;
    random_init(&s->random, options->seed);

    s->mu = 2 * (double)options->mirostat_tau;

    bool is_short = options->top_k > 0 && options->top_k < n_vocab && options->mirostat == 0;
    s->list_capacity = is_greedy(options) ? 1 : (size_t)(is_short ? options->top_k : n_vocab);
    s->list = mem_calloc(s->list_capacity, sizeof *s->list);
    bool is_complete = s->list;
    if (has_penalties(options) || has_dry(options))
        s->penalized = mem_calloc((size_t)n_vocab, sizeof *s->penalized);
    if (has_dry(options)) {
        dry_create(options, n_vocab, &s->dry, NULL);
        is_complete = is_complete && s->dry && s->penalized;
    }
    s->options.dry_breakers = NULL; /* copied */
    if (has_penalties(options)) {
        s->n_seen = mem_calloc((size_t)n_vocab, sizeof *s->n_seen);
        s->recent = mem_calloc((size_t)options->penalty_last_n, sizeof *s->recent);
        is_complete = is_complete && s->penalized && s->n_seen && s->recent;
    }
    if (!is_complete) {
        lace_sampler_free(s);
        return error_nomem(err, "a sampler");
    }
    *out = s;
    return LACE_OK;
}

void lace_sampler_free(lace_sampler *s)
{
    if (!s)
        return;
    dry_free(s->dry);
    mem_free_all(s->list, s->penalized, s->n_seen, s->recent, s);
}
