/*
 * Continuing a sequence: on a GPU the tokens are chosen there and computed ahead of the caller, who
 * may stop at any of them; what was computed for nothing is forgotten.
 */
#include "engine/ahead.h"

/* What is being continued. */
typedef struct continuation {
    lace_session *session;
    int32_t sequence;
    lace_token token; /* the newest, which is not computed yet */
    lace_sampler *sampler;
    bool (*on_token)(void *user, lace_token token);
    void *user;
    int32_t n_left;
    bool goes_on;
} continuation;

static void give_token(continuation *c, lace_token token)
{
    c->token = token;
    c->n_left--;
    if (c->sampler)
        lace_sampler_accept(c->sampler, token);
    c->goes_on = c->on_token(c->user, token);
}

/* One token, chosen by the host. */
static lace_status continue_by_eval(continuation *c, lace_error *err)
{
    lace_session *s = c->session;
    lace_item item = {.token = c->token, .sequence = c->sequence, .want_logits = true};
    TRY(lace_session_eval(s, &item, 1, err));
    const float *logits = lace_session_logits(s, 0);
    lace_token token = 0;
    if (c->sampler)
        TRY(lace_sampler_sample(c->sampler, logits, &token, err));
    else
        token = best_token(logits, s->model->m->config.n_vocab);
    give_token(c, token);
    return LACE_OK;
}

/* Tokens that the device chooses, until it refuses or there is a reason to look around. */
static lace_status take_chosen(continuation *c, ahead *a, lace_error *err)
{
    while (!ahead_is_spent(a) && c->goes_on) {
        int32_t word;
        session_remember(c->session, c->sequence, a->length + a->n_taken, c->token);
        TRY(ahead_next(a, &word, err));
        if (word == CHOICE_REFUSED)
            return LACE_OK;
        if (word & CHOICE_DREW)
            sampler_skip_draw(c->sampler);
        give_token(c, (word & CHOICE_TOKEN) - 1);
    }
    return LACE_OK;
}

static lace_status continue_ahead(continuation *c, ahead *a, lace_error *err)
{
    choice_rule rule;
    session_rule(c->sampler, &rule);
    lace_status status =
        ahead_begin(a, c->token, rule.temperature > 0 ? &rule : NULL, c->n_left, err);
    if (status == LACE_OK)
        status = take_chosen(c, a, err);
    lace_status ended = ahead_end(a, status == LACE_OK ? err : NULL);
    status = status == LACE_OK ? ended : status;
    if (status == LACE_OK)
        status = session_compute_again(c->session, c->sequence, a->length + a->n_taken, err);
    return status;
}

lace_status lace_session_continue(lace_session *s, int32_t sequence, lace_token first, int32_t n,
                                  lace_sampler *sampler,
                                  bool (*on_token)(void *user, lace_token token), void *user,
                                  lace_error *err)
{
    int32_t n_vocab = s->model->m->config.n_vocab;
    if (sequence < 0 || sequence >= s->options.n_sequences || first < 0 || first >= n_vocab)
        return error_set(err, LACE_E_ARG, "token %d of sequence %d, expected 0 to %d and 0 to %d",
                         first, sequence, n_vocab - 1, s->options.n_sequences - 1);
    int32_t room = s->options.n_context - lace_session_length(s, sequence);
    if (n > 0 && room == 0)
        return error_set(err, LACE_E_CONTEXT, "the context of %d tokens is full",
                         s->options.n_context);
    s->n_logits = 0;
    continuation c = {.session = s,
                      .sequence = sequence,
                      .token = first,
                      .sampler = sampler,
                      .on_token = on_token,
                      .user = user,
                      .n_left = n < room ? n : room,
                      .goes_on = true};
    ahead a = {.session = s, .sequence = sequence};
    choice_rule rule;
    bool is_ahead =
        ahead_is_possible(s) && session_rule(sampler, &rule) && session_follows(s, &rule);
    while (c.n_left > 0 && c.goes_on)
        TRY(is_ahead && !ahead_is_hosts_turn(&a) ? continue_ahead(&c, &a, err)
                                                 : continue_by_eval(&c, err));
    return LACE_OK;
}
