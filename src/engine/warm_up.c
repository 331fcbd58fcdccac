/*
 * Warming up: before the first request, a device beside the host computes a batch of every kind, so
 * that no kernel is loaded and nothing recorded while somebody waits.
 *
 * Kernels differ by how many rows a batch has, by whether they follow each other in a text, by how
 * long the texts are, and by how tokens are chosen. What was computed is forgotten.
 */
#include "base/mem.h"
#include "base/numbers.h"
#include "engine/ahead.h"

/* Batches of so many sequences, with so many tokens of each. */
typedef struct batch_kind {
    int32_t n_sequences, n_tokens;
    bool goes_on; /* behind what is there */
} batch_kind;

enum { EACH_UP_TO = 16, MOST_KINDS = 96, AHEAD_TOKENS = 3 };

typedef struct warming {
    lace_session *s;
    lace_item *items;   /* [n_batch] */
    choice_rule *rules; /* [n_outputs] */
    batch_kind kinds[MOST_KINDS];
    int32_t n_kinds;
} warming;

static void add(warming *w, batch_kind x)
{
    const lace_session_options *o = &w->s->options;
    int64_t n = (int64_t)x.n_sequences * x.n_tokens;
    bool fits = n <= o->n_batch && x.n_tokens <= o->n_context && x.n_sequences <= o->n_sequences &&
                x.n_sequences <= o->n_outputs;
    if (fits && w->n_kinds < MOST_KINDS)
        w->kinds[w->n_kinds++] = x;
}

/* Every small number, and doublings with what lies half way between. */
static int32_t next_size(int32_t n)
{
    if (n < EACH_UP_TO)
        return n + 1;
    return (n & (n - 1)) == 0 ? n + n / 2 : n / 3 * 4;
}

static void list_kinds(warming *w)
{
    const lace_session_options *o = &w->s->options;
    for (int32_t n = 1; n < o->n_batch; n = next_size(n)) {
        add(w, (batch_kind){.n_sequences = 1, .n_tokens = n});
        add(w, (batch_kind){.n_sequences = n, .n_tokens = 1});
    }
    /* The largest batch, and all kinds of small ones far into a text. */
    add(w, (batch_kind){.n_sequences = 1, .n_tokens = (int32_t)min_i64(o->n_batch, o->n_context)});
    add(w, (batch_kind){.n_sequences = 1, .n_tokens = 1, .goes_on = true});
    for (int32_t n = 2; n <= 4; n++) {
        add(w, (batch_kind){.n_sequences = 1, .n_tokens = n, .goes_on = true});
        add(w, (batch_kind){.n_sequences = n, .n_tokens = 1, .goes_on = true});
    }
}

static void clear(lace_session *s)
{
    for (int32_t i = 0; i < s->options.n_sequences; i++) {
        states_set_length(s->kv, i, 0);
        if (s->predictor)
            predictor_forget(s->predictor, i);
    }
}

/* A batch that has no room is left out. */
static lace_status run_kind(warming *w, const batch_kind *x, lace_error *err)
{
    size_t n = 0;
    if (!x->goes_on)
        clear(w->s);
    for (int32_t i = 0; i < x->n_sequences; i++)
        for (int32_t k = 0; k < x->n_tokens; k++)
            w->items[n++] = (lace_item){.sequence = i, .want_logits = k + 1 == x->n_tokens};
    lace_status status = session_eval_choosing(w->s, w->items, n, w->rules, err);
    return status == LACE_E_CONTEXT ? LACE_OK : status;
}

/* The best tokens, then drawn ones. */
static lace_status run_ahead(warming *w, lace_error *err)
{
    lace_status status = LACE_OK;
    for (int kind = 0; kind < 2 && status == LACE_OK; kind++) {
        ahead a = {.session = w->s};
        int32_t word = 0;
        status = ahead_begin(&a, 0, kind == 0 ? NULL : &w->rules[0], AHEAD_TOKENS, err);
        while (status == LACE_OK && !ahead_is_spent(&a) && word != CHOICE_REFUSED)
            status = ahead_next(&a, &word, err);
        lace_status ended = ahead_end(&a, status == LACE_OK ? err : NULL);
        status = status == LACE_OK ? ended : status;
    }
    return status == LACE_E_CONTEXT ? LACE_OK : status;
}

static lace_status run_all(warming *w, lace_error *err)
{
    const lace_session_options *o = &w->s->options;
    for (int32_t i = 0; i < w->n_kinds; i++) {
        TRY(run_kind(w, &w->kinds[i], err));
        double done = (double)(i + 1) / (double)(w->n_kinds + 1);
        if (o->on_progress && !o->on_progress(o->progress_user, "warming up", done))
            return error_set(err, LACE_E_CANCELLED, "warming up was cancelled");
    }
    TRY(session_settle(w->s, err));
    clear(w->s);
    if (ahead_is_possible(w->s))
        TRY(run_ahead(w, err));
    return program_warm_up(w->s->runner->program, err);
}

lace_status session_warm_up(lace_session *s, lace_error *err)
{
    const lace_session_options *o = &s->options;
    warming w = {.s = s,
                 .items = mem_calloc((size_t)o->n_batch, sizeof *w.items),
                 .rules = mem_calloc((size_t)o->n_outputs, sizeof *w.rules)};
    lace_status status = w.items && w.rules ? LACE_OK : error_nomem(err, "warming up");
    if (status == LACE_OK) {
        for (int32_t i = 0; i < o->n_outputs; i++)
            w.rules[i] = (choice_rule){.random = {1, 2, 3, 4},
                                       .temperature = i % 2 == 0 ? 1 : 0,
                                       .top_p = 0.95f,
                                       .top_k = 40};
        list_kinds(&w);
        status = run_all(&w, err);
        clear(s);
    }
    mem_free_all(w.items, w.rules);
    if (o->on_progress && status == LACE_OK)
        o->on_progress(o->progress_user, "warming up", 1);
    return status;
}
