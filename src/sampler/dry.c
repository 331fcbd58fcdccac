/* DRY: penalties for tokens that go on with a repetition. */
#include "sampler/dry.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"

struct dry {
    float multiplier, base;
    int32_t allowed_length, last_n;
    int32_t n_vocab;
    bool *is_breaker; /* [n_vocab] no repetition goes over such a token */
    lace_token *ring; /* [last_n] the last tokens */
    int32_t n, oldest;
    lace_token *line;   /* [last_n] the same, newest first */
    int32_t *n_matched; /* [last_n] see count_matches */
    int32_t *longest;   /* [n_vocab] scratch: all 0 between calls */
};

lace_status dry_create(const lace_sampler_options *o, int32_t n_vocab, dry **out, lace_error *err)
{
    *out = NULL;
    size_t last_n = (size_t)o->dry_last_n;
    dry *d = mem_calloc(1, sizeof *d);
    bool ok = d && (d->is_breaker = mem_calloc((size_t)n_vocab, sizeof *d->is_breaker)) &&
              (d->ring = mem_calloc(last_n, sizeof *d->ring)) &&
              (d->line = mem_calloc(last_n, sizeof *d->line)) &&
              (d->n_matched = mem_calloc(last_n, sizeof *d->n_matched)) &&
              (d->longest = mem_calloc((size_t)n_vocab, sizeof *d->longest));
    if (!ok) {
        dry_free(d);
        return error_nomem(err, "a sampler");
    }
    d->multiplier = o->dry_multiplier;
    d->base = o->dry_base;
    d->allowed_length = o->dry_allowed_length;
    d->last_n = o->dry_last_n;
    d->n_vocab = n_vocab;
    for (size_t i = 0; i < o->n_dry_breakers; i++)
        if (o->dry_breakers[i] >= 0 && o->dry_breakers[i] < n_vocab)
            d->is_breaker[o->dry_breakers[i]] = true;
    *out = d;
    return LACE_OK;
}

void dry_free(dry *d)
{
    if (!d)
        return;
    mem_free_all(d->is_breaker, d->ring, d->line, d->n_matched, d->longest, d);
}

void dry_accept(dry *d, lace_token token)
{
    d->ring[d->oldest] = token;
    d->oldest = (d->oldest + 1) % d->last_n;
    if (d->n < d->last_n)
        d->n++;
}

/*
 * n_matched[i]: how many tokens from line[i] on, backwards in time, are those from line[0] on; at
 * most `limit`. This is the Z array of the line (Gusfield 1997), so it takes linear time.
 */
static void count_matches(dry *d, int32_t limit)
{
    int32_t from = 0,
            to = 0; /* the stretch [from, to) that reaches furthest and matches the start */
    for (int32_t i = 1; i < d->n; i++) {
        int32_t k = 0;
        if (i < to && i > from) {
            k = d->n_matched[i - from];
            if (k > to - i)
                k = to - i;
        }
        while (k < limit && i + k < d->n && d->line[k] == d->line[i + k])
            k++;
        d->n_matched[i] = k;
        if (i + k > to) {
            from = i;
            to = i + k;
        }
    }
}

void dry_apply(dry *d, float *logits)
{
    for (int32_t i = 0; i < d->n; i++)
        d->line[i] = d->ring[(d->oldest - 1 - i + 2 * d->last_n) % d->last_n];
    int32_t limit = 0; /* what may be repeated begins after the last breaker */
    while (limit < d->n && !d->is_breaker[d->line[limit]])
        limit++;
    if (limit < d->allowed_length)
        return;
    count_matches(d, limit);
    /* What came after the place that is repeated is line[i - 1]; the longest repetition counts. */
    for (int32_t i = 1; i < d->n; i++) {
        lace_token next = d->line[i - 1];
        if (d->n_matched[i] > d->longest[next])
            d->longest[next] = d->n_matched[i];
    }
    for (int32_t i = 1; i < d->n; i++) {
        lace_token next = d->line[i - 1];
        int32_t length = d->longest[next];
        d->longest[next] = 0; /* done, and clean for the next time */
        if (length < d->allowed_length || length == 0 || d->is_breaker[next])
            continue;
        double penalty = d->multiplier * pow(d->base, length - d->allowed_length);
        if (!(penalty < (double)FLT_MAX / 4))
            penalty = (double)FLT_MAX / 4;
        if (logits[next] > -INFINITY)
            logits[next] = fmaxf(-FLT_MAX, logits[next] - (float)penalty);
    }
}
