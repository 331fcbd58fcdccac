/*
 * Continuing a sequence: on a GPU the tokens are chosen there and computed ahead of the caller, who
 * may stop at any of them; what was computed for nothing is forgotten.
 */
#include <string.h>

#include "engine/engine.h"

enum {
    AHEAD = 8,        /* tokens that the card may be ahead; more only delays the end */
    CHUNK = 256,      /* tokens between two looks at the cache's windows */
    LONGEST_TURN = 64 /* tokens that the host chooses before the card is asked again */
};

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
    int32_t turn, n_by_host; /* how long the host chose last, and of that what is left */
} continuation;

bool session_rule(const lace_sampler *sampler, sample_row *out)
{
    sampler_rule rule = {.temperature = 0};
    if (sampler && (!sampler_describe(sampler, &rule) || rule.top_k > SAMPLE_MAX_TOP_K))
        return false;
    *out = (sample_row){.temperature = rule.temperature,
                        .top_p = rule.top_p,
                        .min_p = rule.min_p,
                        .top_k = rule.top_k};
    memcpy(out->random, rule.random, sizeof out->random);
    return true;
}

static lace_token best_of(const float *logits, int32_t n)
{
    lace_token best = 0;
    for (lace_token i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

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
        token = best_of(logits, s->model->m->config.n_vocab);
    give_token(c, token);
    return LACE_OK;
}

/* Up to n tokens on the card. *refused: the last of them is left to the host. */
static lace_status continue_chunk(continuation *c, const sample_row *rule, int32_t n,
                                  int32_t *n_done, bool *refused, lace_error *err)
{
    lace_session *s = c->session;
    int32_t position = s->kv->sequences[c->sequence].n_tokens, n_queued = 0;
    TRY(gpu_plan_begin(s->on_card, c->token, position, c->sequence, rule, err));
    while (*n_done < n && c->goes_on) {
        for (; n_queued < n && n_queued - *n_done < AHEAD; n_queued++) {
            const int32_t *pages[KV_MAX_GROUPS];
            TRY(kv_reserve(s->kv, c->sequence, n_queued + 1, err));
            for (int32_t g = 0; g < s->kv->n_groups; g++)
                pages[g] = s->kv->sequences[c->sequence].tables[g];
            TRY(gpu_plan_ahead(s->on_card, pages, c->sequence, position + n_queued, err));
        }
        int32_t word;
        TRY(gpu_plan_next(s->on_card, &word, err));
        if (word == SAMPLE_REFUSED) {
            *refused = true;
            return LACE_OK;
        }
        if (word & SAMPLE_DREW)
            sampler_skip_draw(c->sampler);
        ++*n_done;
        give_token(c, (word & SAMPLE_TOKEN) - 1);
    }
    return LACE_OK;
}

static lace_status continue_ahead(continuation *c, lace_error *err)
{
    lace_session *s = c->session;
    sample_row rule;
    int32_t n_done = 0, n = c->n_left < CHUNK ? c->n_left : CHUNK;
    int32_t length = lace_session_length(s, c->sequence);
    bool refused = false;
    session_rule(c->sampler, &rule);
    lace_status status =
        continue_chunk(c, rule.temperature > 0 ? &rule : NULL, n, &n_done, &refused, err);
    /* What was computed ahead must be over before its pages go to somebody else. */
    lace_status ended = gpu_plan_wait(s->on_card, status == LACE_OK ? err : NULL);
    kv_set_length(s->kv, c->sequence, length + n_done);
    TRY(status);
    TRY(ended);
    /*
     * A card that refuses has computed the tokens behind for nothing; where it does so again and
     * again, the host takes longer and longer turns.
     */
    int32_t longer = 2 * c->turn < LONGEST_TURN ? 2 * c->turn : LONGEST_TURN;
    if (refused)
        c->n_by_host = c->turn = c->turn == 0 || n_done > AHEAD ? 1 : longer;
    return LACE_OK;
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
    sample_row rule;
    bool is_ahead =
        s->on_card && gpu_plan_chooses(s->on_card) && !s->trace && session_rule(sampler, &rule);
    while (c.n_left > 0 && c.goes_on) {
        if (is_ahead && c.n_by_host == 0) {
            TRY(continue_ahead(&c, err));
            continue;
        }
        TRY(continue_by_eval(&c, err));
        c.n_by_host -= c.n_by_host > 0;
    }
    return LACE_OK;
}
