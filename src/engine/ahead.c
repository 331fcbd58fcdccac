/* Working ahead on a device that chooses tokens. */
#include "engine/ahead.h"

#include <assert.h>
#include <string.h>

#include "base/numbers.h"

enum {
    AHEAD = 8,        /* tokens that the device may be ahead; more only delays the end */
    LONGEST_TURN = 64 /* tokens that the host chooses before the device is asked again */
};

bool session_rule(const lace_sampler *sampler, choice_rule *out)
{
    sampler_rule rule = {.temperature = 0};
    if (sampler && (!sampler_describe(sampler, &rule) || rule.top_k > CHOICE_MAX_TOP_K))
        return false;
    *out = (choice_rule){.temperature = rule.temperature,
                         .top_p = rule.top_p,
                         .min_p = rule.min_p,
                         .top_k = rule.top_k};
    memcpy(out->random, rule.random, sizeof out->random);
    return true;
}

bool ahead_is_possible(const lace_session *s)
{
    return program_works_ahead(s->runner->program) && !s->trace && !s->predictor;
}

bool ahead_is_hosts_turn(ahead *a)
{
    if (a->n_by_host == 0)
        return false;
    a->n_by_host--;
    return true;
}

lace_status ahead_begin(ahead *a, lace_token token, const choice_rule *rule, int32_t n,
                        lace_error *err)
{
    lace_session *s = a->session;
    assert(!a->is_under_way && n > 0);
    a->length = s->kv->sequences[a->sequence].n_tokens;
    a->n_most = (int32_t)min_i64(
        n, min_i64(AHEAD_MOST, s->options.n_batch)); /* a window's pages hold that */
    a->n_queued = a->n_taken = 0;
    a->is_under_way = true;
    ahead_start start = runner_ahead_start(s->runner, token, a->length, a->sequence);
    return program_begin(s->runner->program, &start, rule, err);
}

void ahead_hold(ahead *a)
{
    a->n_most = a->n_queued;
}

bool ahead_is_spent(const ahead *a)
{
    return a->n_taken == a->n_most;
}

static lace_status queue_one(ahead *a, lace_error *err)
{
    lace_session *s = a->session;
    const int32_t *pages[STATES_MAX_GROUPS];
    TRY(states_reserve(s->kv, a->sequence, a->n_queued + 1, err));
    for (int32_t g = 0; g < s->kv->n_groups; g++)
        pages[g] = s->kv->sequences[a->sequence].tables[g];
    TRY(program_ahead(s->runner->program, pages, a->sequence, a->length + a->n_queued, err));
    a->n_queued++;
    return LACE_OK;
}

/*
 * A device that refuses has computed the tokens behind for nothing; where it does so again and
 * again, the host takes longer and longer turns.
 */
static void give_turn(ahead *a)
{
    bool is_rare = a->turn == 0 || a->n_taken > AHEAD;
    a->n_by_host = a->turn = is_rare ? 1 : (int32_t)min_i64(2 * a->turn, LONGEST_TURN);
}

lace_status ahead_next(ahead *a, int32_t *word, lace_error *err)
{
    assert(a->is_under_way && !ahead_is_spent(a));
    while (a->n_queued < a->n_most && a->n_queued - a->n_taken < AHEAD)
        TRY(queue_one(a, err));
    TRY(program_next(a->session->runner->program, word, err));
    if (*word == CHOICE_REFUSED)
        give_turn(a);
    else
        a->n_taken++;
    return LACE_OK;
}

lace_status ahead_end(ahead *a, lace_error *err)
{
    if (!a->is_under_way)
        return LACE_OK;
    a->is_under_way = false;
    /* What was computed ahead must be over before its pages go to somebody else. */
    lace_status status = queue_wait(a->session->runner->queue, err);
    states *kv = a->session->kv;
    states_set_length(kv, a->sequence, states_reach(kv, a->sequence, a->length + a->n_taken));
    return status;
}
