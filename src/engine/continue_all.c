/*
 * Continuing several sequences together with the best token of each. A device that queues and chooses
 * is given the next step before the tokens of the one before are known.
 */
#include "base/mem.h"
#include "engine/engine.h"

/* What is being continued. */
typedef struct chorus {
    lace_session *session;
    int32_t n_sequences;
    lace_item *items;   /* [n_sequences] of the next step */
    choice_rule *rules; /* [n_sequences] */
    lace_token *tokens; /* [n_sequences] chosen last */
} chorus;

static void chorus_free(chorus *c)
{
    mem_free_all(c->items, c->rules, c->tokens);
}

static lace_status chorus_make(chorus *c, const lace_token *firsts, lace_error *err)
{
    size_t n = (size_t)c->n_sequences;
    c->items = mem_calloc(n, sizeof *c->items);
    c->rules = mem_calloc(n, sizeof *c->rules);
    c->tokens = mem_calloc(n, sizeof *c->tokens);
    if (!c->items || !c->rules || !c->tokens)
        return error_nomem(err, "sequences that are continued");
    for (int32_t i = 0; i < c->n_sequences; i++) {
        c->items[i] = (lace_item){.token = firsts[i], .sequence = i, .want_logits = true};
        session_rule(NULL, &c->rules[i]);
    }
    return LACE_OK;
}

/* The tokens of the step that was computed last: the device's choices, or the host's. */
static void take_tokens(chorus *c)
{
    const lace_session *s = c->session;
    for (int32_t i = 0; i < c->n_sequences; i++) {
        int32_t word = session_word(s, (size_t)i);
        c->tokens[i] = word == CHOICE_REFUSED ? best_token(lace_session_logits(s, (size_t)i),
                                                           s->model->m->config.n_vocab)
                                              : (word & CHOICE_TOKEN) - 1;
    }
}

/* The step behind has taken other tokens than these. */
static bool was_refused(const chorus *c)
{
    for (int32_t i = 0; i < c->n_sequences; i++)
        if (session_word(c->session, (size_t)i) == CHOICE_REFUSED)
            return true;
    return false;
}

/* The next step begins with the last tokens, or with those that the device is about to choose. */
static void set_items(chorus *c, bool is_known)
{
    for (int32_t i = 0; i < c->n_sequences; i++)
        c->items[i].token = is_known ? c->tokens[i] : -1;
}

/* The step that was queued without knowing these tokens has them. */
static void remember(chorus *c)
{
    for (int32_t i = 0; i < c->n_sequences; i++)
        session_remember(c->session, i, lace_session_length(c->session, i) - 1, c->tokens[i]);
}

/* Wait for a step that nobody wants, and forget it. */
static lace_status drop_step(chorus *c, lace_error *err)
{
    TRY(session_collect(c->session, c->n_sequences, err));
    for (int32_t i = 0; i < c->n_sequences; i++)
        TRY(lace_session_truncate(c->session, i, lace_session_length(c->session, i) - 1, err));
    return LACE_OK;
}

/* Computes the step of the items, and queues the one behind it if it is to come. */
static lace_status compute(chorus *c, bool *is_queued, bool is_last, lace_error *err)
{
    lace_session *s = c->session;
    size_t n = (size_t)c->n_sequences;
    bool queues = s->runner->program->queues && s->runner->program->chooses && !s->trace &&
                  n <= (size_t)s->options.n_batch;
    if (!queues) {
        TRY(session_eval_choosing(s, c->items, n, c->rules, err));
        take_tokens(c);
        return LACE_OK;
    }
    if (!*is_queued)
        TRY(session_submit(s, c->items, n, c->rules, err));
    *is_queued = false;
    lace_status status = LACE_OK;
    set_items(c, false);
    if (!is_last)
        status = session_submit(s, c->items, n, c->rules, err);
    lace_status ended = session_collect(s, c->n_sequences, status == LACE_OK ? err : NULL);
    if (status != LACE_OK || ended != LACE_OK)
        return status != LACE_OK ? status : ended;
    take_tokens(c);
    if (is_last)
        return LACE_OK;
    if (was_refused(c))
        return drop_step(c, err);
    *is_queued = true;
    remember(c);
    return LACE_OK;
}

static lace_status check(const lace_session *s, const lace_token *firsts, int32_t n_sequences,
                         int32_t n, lace_error *err)
{
    int32_t n_vocab = s->model->m->config.n_vocab;
    if (n_sequences < 1 || n_sequences > s->options.n_sequences ||
        n_sequences > s->options.n_outputs)
        return error_set(err, LACE_E_ARG, "%d sequences to continue, expected 1 to %d", n_sequences,
                         s->options.n_sequences < s->options.n_outputs ? s->options.n_sequences
                                                                       : s->options.n_outputs);
    for (int32_t i = 0; i < n_sequences; i++) {
        if (firsts[i] < 0 || firsts[i] >= n_vocab)
            return error_set(err, LACE_E_ARG, "sequence %d: token %d, expected 0 to %d", i,
                             firsts[i], n_vocab - 1);
        int32_t length = lace_session_length(s, i);
        if (n > s->options.n_context - length)
            return error_set(err, LACE_E_CONTEXT,
                             "sequence %d holds %d tokens, and %d more do not fit into its context "
                             "of %d",
                             i, length, n, s->options.n_context);
    }
    return LACE_OK;
}

lace_status lace_session_continue_all(lace_session *s, const lace_token *firsts,
                                      int32_t n_sequences, int32_t n,
                                      bool (*on_tokens)(void *user, const lace_token *tokens),
                                      void *user, lace_error *err)
{
    TRY(check(s, firsts, n_sequences, n, err));
    chorus c = {.session = s, .n_sequences = n_sequences};
    lace_status status = chorus_make(&c, firsts, err);
    bool is_queued = false, goes_on = true;
    for (int32_t i = 0; i < n && goes_on && status == LACE_OK; i++) {
        status = compute(&c, &is_queued, i + 1 == n, err);
        if (status != LACE_OK)
            break;
        goes_on = on_tokens(user, c.tokens);
        set_items(&c, true);
    }
    if (is_queued && status == LACE_OK)
        status = drop_step(&c, err);
    s->n_logits = 0;
    chorus_free(&c);
    return status;
}
