/*
 * Choosing tokens on a GPU against the sampler: the same logits and seed must give the same token,
 * draw after draw, and what the card refuses must be what it may refuse.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_gpu.h"
#include "backend/cuda/token_ring.h"
#include "sampler/sampler.h"

/* Logits as models have them: normal, with a few that stand out. */
static void fill_logits(float *x, int32_t n, float spread)
{
    check_fill_f32(x, n, CHECK_NORMAL);
    for (int32_t i = 0; i < n; i++)
        x[i] *= spread;
    for (int i = 0; i < 5; i++)
        x[check_random_int(0, n - 1)] += (float)i * spread;
}

static choice_rule row_of(const lace_sampler *s)
{
    sampler_rule rule;
    check_true(sampler_describe(s, &rule), "a plain chain is described");
    choice_rule row = {.temperature = rule.temperature,
                       .top_p = rule.top_p,
                       .min_p = rule.min_p,
                       .top_k = rule.top_k};
    memcpy(row.random, rule.random, sizeof row.random);
    return row;
}

/* n_rows rows at once, several draws of each. Returns how many were refused. */
static int check_draws(const lace_sampler_options *o, int32_t n_vocab, int32_t n_rows, float spread)
{
    enum { N_DRAWS = 12, MOST_ROWS = 8 };
    gpu *card = check_gpu_card();
    int64_t stride = n_vocab + 3;
    lace_sampler *samplers[MOST_ROWS];
    choice_rule rows[MOST_ROWS];
    int32_t words[MOST_ROWS];
    int n_refused = 0;
    float *logits = check_alloc(4 * (uint64_t)stride * (uint64_t)n_rows);
    for (int32_t r = 0; r < n_rows; r++) {
        lace_sampler_options own = *o;
        own.seed += (uint64_t)r;
        check_true(lace_sampler_create(&own, n_vocab, &samplers[r], NULL) == LACE_OK, "a sampler");
        rows[r] = row_of(samplers[r]);
    }
    choice_rule *rows_card = check_gpu_copy(rows, sizeof *rows * (uint64_t)n_rows);
    int32_t *words_card = check_gpu_copy(words, sizeof words);
    for (int d = 0; d < N_DRAWS; d++) {
        fill_logits(logits, (int32_t)stride * n_rows, spread);
        sample_params p = {.logits =
                               check_gpu_copy(logits, 4 * (uint64_t)stride * (uint64_t)n_rows),
                           .stride = stride,
                           .n_vocab = n_vocab,
                           .rows = rows_card,
                           .words = words_card};
        check_gpu_must(gpu_sample(card, check_gpu_queue(), &p, n_rows, NULL));
        check_gpu_fetch(words, words_card, sizeof *words * (uint64_t)n_rows);
        for (int32_t r = 0; r < n_rows; r++) {
            if (words[r] == CHOICE_REFUSED) {
                n_refused++;
                continue;
            }
            sampler_rule before, after;
            lace_token want;
            sampler_describe(samplers[r], &before);
            lace_sampler_sample(samplers[r], logits + r * stride, &want, NULL);
            sampler_describe(samplers[r], &after);
            bool drew = memcmp(before.random, after.random, sizeof before.random) != 0;
            int32_t got = (words[r] & CHOICE_TOKEN) - 1;
            if (!check_true(got == want, "the token is the sampler's"))
                printf("# row %d, draw %d: %d, the sampler has %d\n", r, d, got, want);
            check_true(drew == ((words[r] & CHOICE_DREW) != 0), "a draw is told of");
        }
    }
    for (int32_t r = 0; r < n_rows; r++)
        lace_sampler_free(samplers[r]);
    gpu_step_release();
    return n_refused;
}

static void check_refusals(void)
{
    enum { N = 4096 };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        check_shape("bad logits %d", i);
        float *logits = check_alloc(4 * N);
        fill_logits(logits, N, 1);
        for (int k = 0; k < N; k++)
            logits[k] = i == 2 || k == 3000 ? bad[i] : logits[k];
        choice_rule row = {.random = {1, 2, 3, 4}, .temperature = 1, .top_p = 0.9f, .top_k = 40};
        int32_t word = 0;
        sample_params p = {.logits = check_gpu_copy(logits, 4 * N),
                           .n_vocab = N,
                           .rows = check_gpu_copy(&row, sizeof row),
                           .words = check_gpu_copy(&word, sizeof word)};
        check_gpu_must(gpu_sample(check_gpu_card(), check_gpu_queue(), &p, 1, NULL));
        check_gpu_fetch(&word, p.words, sizeof word);
        check_true(word == CHOICE_REFUSED, "logits that are no numbers are left to the host");
        gpu_step_release();
    }
}

void check_gpu_sample(void)
{
    static const int32_t sizes[] = {5, 300, 2048, 4097, 32000, 128256, 256000};
    /* clang-format off */
    static const struct { float temperature; int32_t top_k; float top_p, min_p; } rules[] = {
        {0, 40, 0.95f, 0.05f},   {0.8f, 40, 0.95f, 0.05f}, {1, 40, 1, 0},      {1.5f, 1, 1, 0},
        {1, 1000, 0.9f, 0},      {1, 0, 1, 0},             {0.7f, 0, 1, 0.1f}, {1, 0, 0.5f, 0},
        {0.9f, 0, 0.6f, 0.02f},  {2, 7, 0.3f, 0},
    };
    /* clang-format on */
    if (!gpu_can_sample(check_gpu_card(), 256000) || !check_begin("gpu_sample", NULL, sizes))
        return;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t k = 0; k < sizeof rules / sizeof rules[0]; k++) {
            lace_sampler_options o = lace_sampler_options_default();
            o.temperature = rules[k].temperature;
            o.top_k = rules[k].top_k;
            o.top_p = rules[k].top_p;
            o.min_p = rules[k].min_p;
            o.seed = 7 + i;
            int32_t n_rows = k % 3 == 2 ? 8 : 1;
            check_shape("%d logits, temperature %g, top-k %d, top-p %g, min-p %g, %d rows",
                        sizes[i], (double)o.temperature, o.top_k, (double)o.top_p, (double)o.min_p,
                        n_rows);
            /* As wide as models' logits are. Top-p alone may ask for more than 2048 of many. */
            int n_refused = check_draws(&o, sizes[i], n_rows, 4);
            if (o.top_k > 0 || o.top_p >= 1 || sizes[i] < 100000)
                check_true(n_refused == 0, "nothing of this is refused");
        }
    check_refusals();
    check_end();
}
