/*
 * Continuing a sequence with the best tokens: on a GPU the tokens are chosen there and computed
 * ahead of the caller, who may stop at any of them; what was computed for nothing is forgotten.
 */
#include "engine/engine.h"

enum {
    AHEAD = 8,  /* tokens that the card may be ahead; more only delays the end */
    CHUNK = 256 /* tokens between two looks at the cache's windows */
};

static lace_token best_of(const float *logits, int32_t n)
{
    lace_token best = 0;
    for (lace_token i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static lace_status continue_by_eval(lace_session *s, int32_t sequence, lace_token token, int32_t n,
                                    bool (*on_token)(void *user, lace_token token), void *user,
                                    lace_error *err)
{
    for (int32_t i = 0; i < n; i++) {
        lace_item item = {.token = token, .sequence = sequence, .want_logits = true};
        TRY(lace_session_eval(s, &item, 1, err));
        token = best_of(lace_session_logits(s, 0), s->model->m->config.n_vocab);
        if (!on_token(user, token))
            break;
    }
    return LACE_OK;
}

/* Up to n tokens on the card. *n_done: how many were given to the caller; *token: the last of them.
 */
static lace_status continue_chunk(lace_session *s, int32_t sequence, int32_t n, lace_token *token,
                                  bool (*on_token)(void *user, lace_token token), void *user,
                                  int32_t *n_done, bool *goes_on, lace_error *err)
{
    int32_t position = s->kv->sequences[sequence].n_tokens, n_queued = 0;
    *n_done = 0;
    TRY(gpu_plan_begin(s->on_card, *token, position, sequence, err));
    while (*n_done < n && *goes_on) {
        for (; n_queued < n && n_queued - *n_done < AHEAD; n_queued++) {
            const int32_t *pages[KV_MAX_GROUPS];
            TRY(kv_reserve(s->kv, sequence, n_queued + 1, err));
            for (int32_t g = 0; g < s->kv->n_groups; g++)
                pages[g] = s->kv->sequences[sequence].tables[g];
            TRY(gpu_plan_ahead(s->on_card, pages, sequence, position + n_queued, err));
        }
        TRY(gpu_plan_next(s->on_card, token, err));
        ++*n_done;
        *goes_on = on_token(user, *token);
    }
    return LACE_OK;
}

lace_status lace_session_continue(lace_session *s, int32_t sequence, lace_token first, int32_t n,
                                  bool (*on_token)(void *user, lace_token token), void *user,
                                  lace_error *err)
{
    int32_t n_vocab = s->model->m->config.n_vocab;
    if (sequence < 0 || sequence >= s->options.n_sequences || first < 0 || first >= n_vocab)
        return error_set(err, LACE_E_ARG, "token %d of sequence %d, expected 0 to %d and 0 to %d",
                         first, sequence, n_vocab - 1, s->options.n_sequences - 1);
    int32_t length = lace_session_length(s, sequence), room = s->options.n_context - length;
    if (n > 0 && room == 0)
        return error_set(err, LACE_E_CONTEXT, "the context of %d tokens is full",
                         s->options.n_context);
    n = n < room ? n : room;
    s->n_logits = 0;
    if (!s->on_card || !gpu_plan_chooses(s->on_card) || s->trace)
        return continue_by_eval(s, sequence, first, n, on_token, user, err);
    lace_status status = LACE_OK;
    bool goes_on = true;
    while (n > 0 && goes_on && status == LACE_OK) {
        int32_t n_done;
        status = continue_chunk(s, sequence, n < CHUNK ? n : CHUNK, &first, on_token, user, &n_done,
                                &goes_on, err);
        length += n_done;
        n -= n_done;
        /* What was computed ahead must be over before its pages go to somebody else. */
        lace_status ended = gpu_plan_wait(s->on_card, status == LACE_OK ? err : NULL);
        status = status != LACE_OK ? status : ended;
        kv_set_length(s->kv, sequence, length);
    }
    return status;
}
