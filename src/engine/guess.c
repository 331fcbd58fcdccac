/* Where guesses come from: the text itself, a layer that predicts, a draft that reads along. */
#include "engine/guess.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

enum {
    LONGEST_MATCH = 4, /* tokens that must stand before, from the longest to the shortest */
    SHORTEST_MATCH = 2,
    /*
     * Tokens that a draft reads at most before it guesses, with a plan: what it costs to find out
     * whether its guesses are of use must not be much.
     */
    READ_MOST = 128,
};

guesses guess_none(void)
{
    return (guesses){.reader = -1, .last_at = -1};
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* A token of one model must mean the same to the other. */
static lace_status check_vocabulary(const lace_model *a, const lace_model *b, lace_error *err)
{
    int32_t n_a = a->n_vocab, n_b = b->n_vocab;
    if (!a->tokens || !b->tokens) {
        if (n_a == n_b)
            return LACE_OK;
        return error_set(
            err, LACE_E_VOCAB,
            "the draft model computes %d tokens, the model %d: it cannot be a draft for this model",
            n_b, n_a);
    }
    size_t n = tokenizer_n_tokens(a->tokens);
    if (n != tokenizer_n_tokens(b->tokens))
        return error_set(
            err, LACE_E_VOCAB,
            "the draft model has %zu tokens, the model %zu: it cannot be a draft for this model",
            tokenizer_n_tokens(b->tokens), n);
    for (lace_token i = 0; (size_t)i < n; i++) {
        text x = tokenizer_token_bytes(a->tokens, i), y = tokenizer_token_bytes(b->tokens, i);
        if (!text_equals(x, y))
            return error_set(err, LACE_E_VOCAB,
                             "the draft model has another vocabulary: its token %d is \"%.*s\", "
                             "the model's \"%.*s\"",
                             i, text_width(y), y.data, text_width(x), x.data);
    }
    return LACE_OK;
}

static bool allocate(guess_source *s)
{
    size_t n = (size_t)s->n_readers;
    s->readers = mem_calloc(n, sizeof *s->readers);
    s->items = mem_calloc(n * (size_t)s->draft->options.n_batch, sizeof *s->items);
    for (size_t i = 0; s->readers && i < n; i++) {
        s->readers[i].held =
            mem_calloc((size_t)s->draft->options.n_context, sizeof *s->readers[i].held);
        if (!s->readers[i].held)
            return false;
    }
    return s->readers && s->items;
}

lace_status guess_source_init(guess_source *s, const lace_model *lm, lace_session *draft,
                              int32_t n_readers, bool use_lookup, int32_t n_most, lace_error *err)
{
    *s = (guess_source){.draft = draft,
                        .model = lm,
                        .use_lookup = use_lookup,
                        .n_most = n_most,
                        .n_vocab = lm->n_vocab,
                        .n_readers = draft ? n_readers : 0};
    assert(n_most >= 1 && n_most <= GUESS_MOST);
    if (!draft)
        return LACE_OK;
    TRY(check_vocabulary(lm, draft->model, err));
    if (!allocate(s)) {
        guess_source_deinit(s);
        return error_nomem(err, "guesses");
    }
    return LACE_OK;
}

void guess_source_deinit(guess_source *s)
{
    for (int32_t i = 0; s->readers && i < s->n_readers; i++)
        mem_free(s->readers[i].held);
    mem_free(s->readers);
    mem_free(s->items);
    *s = (guess_source){0};
}

/* ---- The text itself ------------------------------------------------------------------------- */

/* What followed the last place where the text's last tokens stood before. */
static void look_up(const guess_request *r)
{
    const lace_token *t = r->text;
    int32_t longest = LONGEST_MATCH < r->n_text - 1 ? LONGEST_MATCH : r->n_text - 1;
    for (int32_t n = longest; n >= SHORTEST_MATCH; n--) {
        const lace_token *last = t + r->n_text - n;
        for (int32_t at = r->n_text - n - 1; at >= 0; at--) {
            if (t[at] != last[0] || memcmp(t + at, last, (size_t)n * sizeof *t) != 0)
                continue;
            int32_t from = at + n, count = r->n_text - from;
            r->to->n = count < r->most ? count : r->most;
            memcpy(r->to->tokens, t + from, (size_t)r->to->n * sizeof *t);
            return;
        }
    }
}

/* ---- The layer that predicts ----------------------------------------------------------------- */

/* Take the guess of row i, and ask for what comes behind it, if another one is wanted. */
static bool take_prediction(const guess_source *s, const guess_request *r, int32_t i,
                            predictor_row *next)
{
    lace_token guess = best_token(predictor_logits(s->predictor, i), s->n_vocab);
    r->to->tokens[r->to->n++] = guess;
    *next = (predictor_row){.sequence = r->sequence,
                            .position = r->n_text - 1 + r->to->n,
                            .token = guess,
                            .before = predictor_hidden(s->predictor, i)};
    return r->to->n < r->most && !lace_token_is_end(s->model, guess);
}

/* One token of all texts in each evaluation, for those whose text says nothing. */
static lace_status guess_by_predictor(guess_source *s, const guess_request *requests, size_t n,
                                      lace_error *err)
{
    const guess_request *asked[GUESS_MOST];
    predictor_row rows[GUESS_MOST];
    int32_t n_asked = 0;
    for (size_t i = 0; i < n; i++) {
        const guess_request *r = &requests[i];
        if (r->to->n > 0 || r->most < 1 ||
            states_reserve_pages(s->predictor->r->states, r->sequence, r->most, NULL) != LACE_OK)
            continue;
        asked[n_asked] = r;
        rows[n_asked++] = (predictor_row){
            .sequence = r->sequence, .position = r->n_text - 1, .token = r->text[r->n_text - 1]};
    }
    while (n_asked > 0) {
        uint64_t begin = s->plan ? guess_plan_clock(s->plan) : 0;
        TRY(predictor_ask(s->predictor, rows, n_asked, err));
        if (s->plan)
            guess_plan_note_draft(s->plan, n_asked, guess_plan_clock(s->plan) - begin);
        int32_t n_left = 0;
        for (int32_t i = 0; i < n_asked; i++)
            if (take_prediction(s, asked[i], i, &rows[n_left]))
                asked[n_left++] = asked[i];
        n_asked = n_left;
    }
    return LACE_OK;
}

/* ---- The draft ------------------------------------------------------------------------------- */

/* The token of a text that a reader holds, or would hold, at place i. */
static lace_token text_at(const guess_reader *d, const guess_request *r, int32_t i)
{
    return r->text[i == 0 ? 0 : d->start + i];
}

/* How much of what a reader holds is of use to a text: all but its last token may be. */
static int32_t count_common(const guess_reader *d, const guess_request *r)
{
    int32_t n = 0;
    while (n < d->n_held && d->start + n < r->n_text - 1 && d->held[n] == text_at(d, r, n))
        n++;
    return n;
}

static int32_t count_unread(const guess_source *s, const guess_request *r)
{
    const guess_reader *d = r->to->reader >= 0 ? &s->readers[r->to->reader] : NULL;
    int32_t n = d ? r->n_text - d->start - count_common(d, r) : r->n_text;
    return n < READ_MOST ? n : READ_MOST;
}

static lace_status eval_draft(guess_source *s, size_t n_items, lace_error *err)
{
    uint64_t begin = s->plan ? guess_plan_clock(s->plan) : 0;
    TRY(lace_session_eval(s->draft, s->items, n_items, err));
    if (s->plan && n_items <= INT32_MAX)
        guess_plan_note_draft(s->plan, (int32_t)n_items, guess_plan_clock(s->plan) - begin);
    return LACE_OK;
}

/* The free reader that knows most of the text, if the text has none yet. False: there is none. */
static bool find_reader(guess_source *s, const guess_request *r)
{
    int32_t most = -1, best = -1;
    if (r->to->reader >= 0)
        return true;
    for (int32_t i = 0; i < s->n_readers; i++) {
        int32_t n = s->readers[i].is_used ? -1 : count_common(&s->readers[i], r);
        if (n > most) {
            most = n;
            best = i;
        }
    }
    r->to->reader = best;
    if (best >= 0)
        s->readers[best].is_used = true;
    return best >= 0;
}

/* With a plan, a text of which much is unread, or which is too long, is read from near its end on. */
static void choose_start(const guess_source *s, guess_reader *d, const guess_request *r,
                         int32_t *from)
{
    if (*from <= 1)
        d->start = 0;
    int32_t unread = r->n_text - d->start - *from;
    bool is_long = r->n_text - d->start + r->most > s->draft->options.n_context;
    if (!s->plan || r->n_text <= READ_MOST || (unread <= READ_MOST && !is_long))
        return;
    d->start = r->n_text - READ_MOST;
    *from = 0;
}

/*
 * Items that let a reader hold the text, at most a batch of them. *is_done: that is all, and the
 * last one says what comes next. Returns how many.
 */
static lace_status catch_up(guess_source *s, const guess_request *r, size_t *n_items, bool *is_done,
                            lace_error *err)
{
    guess_reader *d = &s->readers[r->to->reader];
    int32_t from = states_reach(s->draft->kv, r->to->reader, count_common(d, r));
    choose_start(s, d, r, &from);
    TRY(lace_session_truncate(s->draft, r->to->reader, from, err));
    int32_t last = r->n_text - d->start, n = last - from, n_batch = s->draft->options.n_batch;
    *is_done = n <= n_batch;
    n = *is_done ? n : n_batch;
    for (int32_t i = from; i < from + n; i++) {
        d->held[i] = text_at(d, r, i);
        s->items[(*n_items)++] = (lace_item){
            .token = d->held[i], .sequence = r->to->reader, .want_logits = i + 1 == last};
    }
    d->n_held = from + n;
    return LACE_OK;
}

/* Take the guess of a row, and ask for what comes behind it, if another one is wanted. */
static bool take_guess(guess_source *s, const guess_request *r, size_t row, lace_item *next)
{
    lace_token guess =
        best_token(lace_session_logits(s->draft, row), s->draft->model->m->config.n_vocab);
    if (guess >= s->n_vocab)
        return false; /* padding that only the draft has */
    r->to->tokens[r->to->n++] = guess;
    if (r->to->n == r->most || lace_token_is_end(s->draft->model, guess))
        return false;
    guess_reader *d = &s->readers[r->to->reader];
    d->held[d->n_held++] = guess;
    *next = (lace_item){.token = guess, .sequence = r->to->reader, .want_logits = true};
    return true;
}

/* One token of all texts in each evaluation; asked: [n] requests whose rows are in this order. */
static lace_status ask_draft(guess_source *s, const guess_request **asked, size_t n,
                             lace_error *err)
{
    while (n > 0) {
        size_t n_left = 0;
        for (size_t i = 0; i < n; i++)
            if (take_guess(s, asked[i], i, &s->items[n_left]))
                asked[n_left++] = asked[i];
        n = n_left;
        if (n > 0)
            TRY(eval_draft(s, n, err));
    }
    return LACE_OK;
}

/* The draft guesses for those whose text says nothing. */
static lace_status guess_by_draft(guess_source *s, const guess_request *requests, size_t n,
                                  lace_error *err)
{
    const guess_request *asked[GUESS_MOST];
    size_t n_asked = 0, n_items = 0;
    for (size_t i = 0; i < n && n_asked < GUESS_MOST; i++) {
        const guess_request *r = &requests[i];
        bool is_done, has_room = (s->plan && READ_MOST + r->most <= s->draft->options.n_context) ||
                                 r->n_text + r->most <= s->draft->options.n_context;
        if (r->to->n > 0 || r->most < 1 || !has_room || !find_reader(s, r))
            continue;
        TRY(catch_up(s, r, &n_items, &is_done, err));
        if (is_done)
            asked[n_asked++] = r;
    }
    if (n_items > 0)
        TRY(eval_draft(s, n_items, err));
    for (size_t i = 0; i < n_asked; i++)
        session_mark(s->draft, asked[i]->to->reader);
    return ask_draft(s, asked, n_asked, err);
}

/* What the draft's sequences hold is not known any more. */
static void forget(guess_source *s)
{
    for (int32_t i = 0; i < s->n_readers; i++) {
        s->readers[i].n_held = s->readers[i].start = 0;
        lace_session_truncate(s->draft, i, 0, NULL);
    }
}

/* ---- Guesses --------------------------------------------------------------------------------- */

/* At first half of the most. */
static int32_t count_next(const guess_source *s, const guesses *g)
{
    return g->n_next ? g->n_next : (s->n_most + 1) / 2;
}

/* Which of its two kinds of guesses a text has, and how many. What the text says is in r->to. */
static void plan_guesses(guess_source *s, guess_request *requests, size_t n)
{
    guess_chance chances[GUESS_MOST];
    for (size_t i = 0; i < n; i++) {
        guess_request *r = &requests[i];
        guesses *to = r->to;
        bool has_model = s->draft || s->predictor;
        to->kind = to->n > 0 ? GUESS_BY_TEXT : GUESS_BY_MODEL;
        if (to->n > 0 && has_model &&
            guess_plan_likely(s->plan, GUESS_BY_TEXT, &to->records[GUESS_BY_TEXT]) <
                guess_plan_likely(s->plan, GUESS_BY_MODEL, &to->records[GUESS_BY_MODEL]))
            to->kind = GUESS_BY_MODEL;
        if (to->last_at < 0 || to->last_at > r->n_text)
            to->last_at = r->n_text;
        chances[i] = (guess_chance){
            .kind = to->kind,
            .record = &to->records[to->kind],
            .most = to->kind == GUESS_BY_TEXT ? to->n
                    : has_model               ? r->most
                                              : 0,
            .n_idle = r->n_text - to->last_at,
            .n_unread = s->draft ? count_unread(s, r) : 1,
        };
    }
    guess_plan_choose(s->plan, chances, (int32_t)n);
    for (size_t i = 0; i < n; i++) {
        guesses *to = requests[i].to;
        requests[i].most = chances[i].n;
        to->n = to->kind == GUESS_BY_TEXT ? chances[i].n : 0;
        if (chances[i].n > 0)
            to->last_at = requests[i].n_text;
    }
}

lace_status guess_make(guess_source *s, const guess_request *requests, size_t n, lace_error *err)
{
    guess_request now[GUESS_MOST];
    n = n < GUESS_MOST ? n : GUESS_MOST;
    for (size_t i = 0; i < n; i++) {
        guesses *to = requests[i].to;
        int32_t n_next = s->plan ? s->n_most : count_next(s, to);
        now[i] = requests[i];
        now[i].most = now[i].most < n_next ? now[i].most : n_next;
        to->n = to->n_right = 0;
        if (s->use_lookup && now[i].most > 0)
            look_up(&now[i]);
    }
    if (s->plan)
        plan_guesses(s, now, n);
    lace_status status = s->predictor ? guess_by_predictor(s, now, n, err) : LACE_OK;
    if (status == LACE_OK && s->draft)
        status = guess_by_draft(s, now, n, err);
    if (status == LACE_OK)
        return LACE_OK;
    forget(s);
    for (size_t i = 0; i < n; i++)
        requests[i].to->n = 0;
    return status == LACE_E_CONTEXT ? LACE_OK : status; /* its cache is full: it begins anew */
}

lace_token guess_next(const guesses *g)
{
    return g->n_right < g->n ? g->tokens[g->n_right] : -1;
}

int32_t guess_judge(guess_source *s, guesses *g, bool is_wrong)
{
    int32_t n_judged = is_wrong ? g->n : g->n_right;
    if (s->plan)
        guess_plan_note_guesses(s->plan, g->kind, &g->records[g->kind], n_judged, g->n_right);
    if (n_judged > 0) {
        int32_t n_next = g->n_right == g->n ? count_next(s, g) + 2 : g->n_right + 1;
        g->n_next = n_next < s->n_most ? n_next : s->n_most;
    }
    g->n = g->n_right = 0;
    return n_judged;
}

void guess_release(guess_source *s, guesses *g)
{
    if (g->reader >= 0)
        s->readers[g->reader].is_used = false;
    g->reader = -1;
    g->n = g->n_right = 0;
}
