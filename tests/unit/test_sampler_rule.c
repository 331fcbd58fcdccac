/* What a device is told of a sampler chooses what the sampler does; backend/choice.h. */
#include <math.h>
#include <string.h>

#include "backend/ref/choose_ref.h"
#include "base/random.h"
#include "sampler/sampler.h"
#include "tap.h"

static lace_sampler *create(lace_sampler_options o, int32_t n_vocab)
{
    lace_sampler *s = NULL;
    CHECK(lace_sampler_create(&o, n_vocab, &s, NULL) == LACE_OK);
    return s;
}

static void a_plain_chain_is_described_and_others_are_not(void)
{
    lace_sampler_options o = lace_sampler_options_default();
    sampler_rule rule, after;
    lace_sampler *s = create(o, 100), *same = create(o, 100);
    CHECK(sampler_describe(s, &rule) && rule.top_k == 40 && rule.temperature == o.temperature &&
          rule.top_p == o.top_p && rule.min_p == o.min_p);
    /* Skipping a draw is what drawing does to the generator. */
    float logits[100] = {0};
    lace_token token;
    CHECK(lace_sampler_sample(s, logits, &token, NULL) == LACE_OK);
    sampler_skip_draw(same);
    CHECK(sampler_describe(s, &rule) && sampler_describe(same, &after) &&
          memcmp(&rule, &after, sizeof rule) == 0);
    lace_sampler_free(s);
    lace_sampler_free(same);
    s = create(o, 30); /* fewer tokens than top_k: all of them, as they come */
    CHECK(sampler_describe(s, &rule) && rule.top_k == 0);
    lace_sampler_free(s);
    lace_sampler_options others[5] = {o, o, o, o, o};
    others[0].repeat_penalty = 1.1f;
    others[1].dry_multiplier = 1;
    others[2].typical_p = 0.9f;
    others[3].xtc_probability = 0.5f;
    others[4].mirostat = 2;
    for (int i = 0; i < 5; i++) {
        s = create(others[i], 100);
        CHECK(!sampler_describe(s, &rule));
        lace_sampler_free(s);
    }
}

/*
 * What a device is told of a chain chooses the same tokens, one draw after the other; with edits,
 * what the chain chooses from edited logits.
 */
static void the_rule_of_a_plain_chain_chooses_what_the_chain_does(void)
{
    enum { N = 500, N_DRAWS = 200, N_EDITS = CHOICE_MAX_EDITS };
    static float logits[N], edited[N];
    static choice_edit list[N];
    random_state noise;
    random_init(&noise, 5);
    for (int which = 0; which < 7; which++) {
        lace_sampler_options o = lace_sampler_options_default();
        o.seed = 17 + (uint64_t)which;
        o.temperature = which == 0 ? 0 : 0.6f + 0.2f * (float)which;
        o.top_k = which == 1 || which == 5 ? 40 : 0;
        o.top_p = which == 2 || which == 5 ? 0.9f : 1;
        o.min_p = which == 3 || which == 5 ? 0.05f : 0;
        lace_sampler *s = create(o, N);
        sampler_rule told;
        CHECK(sampler_describe(s, &told));
        choice_rule rule = {.temperature = told.temperature,
                            .top_p = told.top_p,
                            .min_p = told.min_p,
                            .top_k = told.top_k,
                            .n_edits = which % 2 ? N_EDITS : 0};
        memcpy(rule.random, told.random, sizeof rule.random);
        int n_same = 0;
        for (int i = 0; i < N_DRAWS; i++) {
            for (int t = 0; t < N; t++)
                edited[t] = logits[t] = 12 * (float)random_unit(&noise);
            for (int e = 0; e < rule.n_edits; e++) {
                float bias = e % 3 ? 6 * (float)random_unit(&noise) - 3 : -INFINITY;
                rule.edits[e] = (choice_edit){(int32_t)(random_bits(&noise) % N), bias};
                edited[rule.edits[e].token] += bias;
            }
            lace_token want;
            CHECK(lace_sampler_sample(s, edited, &want, NULL) == LACE_OK);
            int32_t word = choose_ref(&rule, logits, N, list);
            n_same += word != CHOICE_REFUSED && (word & CHOICE_TOKEN) - 1 == want;
        }
        CHECK(n_same == N_DRAWS);
        CHECK(sampler_describe(s, &told) &&
              memcmp(told.random, rule.random, sizeof told.random) == 0);
        lace_sampler_free(s);
    }
}

static void a_rule_refuses_what_only_the_host_can_choose(void)
{
    choice_edit list[3];
    float good[3] = {1, 2, 0.5f}, bad[3] = {1, NAN, 0}, none[3] = {-INFINITY, -INFINITY, -INFINITY};
    choice_rule rule = {.temperature = 0, .top_p = 1};
    CHECK(choose_ref(&rule, good, 3, list) == 2 &&
          choose_ref(&rule, bad, 3, list) == CHOICE_REFUSED);
    CHECK(choose_ref(&rule, none, 3, list) == CHOICE_REFUSED);
    rule.n_edits = 2;
    rule.edits[0] = (choice_edit){1, -INFINITY};
    rule.edits[1] = (choice_edit){2, 0.75f};
    CHECK(choose_ref(&rule, good, 3, list) == 3);
    rule.temperature = -1;
    CHECK(choose_ref(&rule, good, 3, list) == CHOICE_REFUSED);
}

int main(void)
{
    CASE(a_plain_chain_is_described_and_others_are_not);
    CASE(the_rule_of_a_plain_chain_chooses_what_the_chain_does);
    CASE(a_rule_refuses_what_only_the_host_can_choose);
    return tap_end();
}
