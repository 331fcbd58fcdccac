/* Measuring models over a text: tokens, windows, scores. */
#include "compress/measure.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/threads.h"

measure_options measure_options_default(void)
{
    return (measure_options){
        .n_context = 512, .n_batch = 512, .kv_type = LACE_KV_F16, .v_type = LACE_KV_SAME};
}

/* A model at work. */
typedef struct side {
    lace_model *model; /* the caller's */
    lace_session *session;
    lace_token *tokens; /* [n_tokens] the whole text */
    size_t n_tokens;
    lace_token bos; /* in place of each window's first token; -1: none */
} side;

typedef struct measurement {
    const measure_options *args;
    side tested, base; /* base.model is NULL without one */
    pool *workers;
    int32_t n_windows, n_batch, n_vocab;
    lace_item *items;      /* [n_batch] */
    quality_score *scores; /* [n_batch] of one evaluation */
    const lace_token *targets;
    int32_t n_scores;
    quality q;
} measurement;

/* ---- Models and text ------------------------------------------------------------------------- */

/* The token that the model's metadata wants before every text, or -1. */
static lace_status find_bos(side *s, lace_error *err)
{
    lace_model_info info;
    lace_token special[4];
    size_t n;
    lace_model_describe(s->model, &info);
    TRY(lace_tokenize(s->model, "", 0, LACE_TOKENIZE_ADD_SPECIAL, special, 4, &n, err));
    s->bos = n > 0 && special[0] == info.bos ? info.bos : -1;
    return LACE_OK;
}

/* All tokens of the text. */
static lace_status tokenize(side *s, text source, lace_error *err)
{
    const char *data = source.data ? source.data : "";
    size_t capacity, n_bytes;
    s->n_tokens = source.size + 2; /* enough for nearly every text */
    do {
        capacity = s->n_tokens;
        mem_free(s->tokens);
        s->tokens = mem_mul(capacity, sizeof *s->tokens, &n_bytes) ? mem_alloc(n_bytes) : NULL;
        if (!s->tokens)
            return error_nomem(err, "tokens");
        TRY(lace_tokenize(s->model, data, source.size, LACE_TOKENIZE_ADD_SPECIAL, s->tokens,
                          capacity, &s->n_tokens, err));
    } while (s->n_tokens > capacity);
    return LACE_OK;
}

static lace_status open_side(side *s, lace_model *model, text source, lace_error *err)
{
    s->model = model;
    TRY(find_bos(s, err));
    return tokenize(s, source, err);
}

static lace_status start_side(side *s, const measurement *m, lace_error *err)
{
    int32_t n_scored = m->args->n_context - m->args->n_context / 2;
    lace_session_options o = lace_session_options_default();
    o.n_context = m->args->n_context;
    o.n_batch = m->n_batch;
    o.n_outputs = n_scored < m->n_batch ? n_scored : m->n_batch;
    o.n_threads = m->args->n_threads;
    if (s == &m->tested || m->args->kv_type == LACE_KV_F32) {
        o.kv_type = m->args->kv_type;
        o.v_type = m->args->v_type;
    }
    o.on_progress = m->args->watch.on_progress;
    o.progress_user = m->args->watch.user;
    return lace_session_create(s->model, &o, &s->session, err);
}

static void end_side(side *s)
{
    lace_session_free(s->session);
    mem_free(s->tokens);
}

/* Positions are compared one by one, so both models must see the same tokens. */
static lace_status check_same_tokens(const measurement *m, lace_error *err)
{
    lace_model_info a, b;
    lace_model_describe(m->tested.model, &a);
    lace_model_describe(m->base.model, &b);
    if (a.n_vocab != b.n_vocab)
        return error_set(
            err, LACE_E_VOCAB,
            "the models cannot be compared: one has a vocabulary of %d tokens, %s one of %d",
            a.n_vocab, m->args->base_name, b.n_vocab);
    if (m->tested.n_tokens != m->base.n_tokens || m->tested.bos != m->base.bos ||
        memcmp(m->tested.tokens, m->base.tokens, m->tested.n_tokens * sizeof(lace_token)) != 0)
        return error_set(err, LACE_E_VOCAB,
                         "the models cannot be compared: %s splits the text into other tokens",
                         m->args->base_name);
    return LACE_OK;
}

lace_status measure_read_text(const char *path, buf *out, lace_error *err)
{
    TRY(file_read(path, out, err));
    if (out->size > 0 && out->data[out->size - 1] == '\n')
        out->size--; /* as llama.cpp does */
    return LACE_OK;
}

/* ---- Windows --------------------------------------------------------------------------------- */

/* The rows of both models' last evaluation, shared among the workers. */
static void judge_rows(void *arg, int worker, int n_workers)
{
    measurement *m = arg;
    int64_t begin, end;
    pool_share(m->n_scores, 1, worker, n_workers, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const float *base =
            m->base.session ? lace_session_logits(m->base.session, (size_t)i) : NULL;
        m->scores[i] = quality_judge(lace_session_logits(m->tested.session, (size_t)i), base,
                                     m->n_vocab, m->targets[i]);
    }
}

/* Tokens [from, from + n) of a window: evaluate them, and score those in the second half. */
static lace_status eval_part(measurement *m, const lace_token *window, int32_t from, int32_t n,
                             lace_error *err)
{
    int32_t first = m->args->n_context / 2, last = m->args->n_context - 2;
    m->n_scores = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t at = from + i;
        bool is_scored = at >= first && at <= last;
        bool is_bos = at == 0 && m->tested.bos >= 0;
        if (is_scored && m->n_scores++ == 0)
            m->targets = window + at + 1;
        m->items[i] =
            (lace_item){.token = is_bos ? m->tested.bos : window[at], .want_logits = is_scored};
    }
    TRY(lace_session_eval(m->tested.session, m->items, (size_t)n, err));
    if (m->base.session)
        TRY(lace_session_eval(m->base.session, m->items, (size_t)n, err));
    if (m->n_scores > 0)
        pool_run(m->workers, judge_rows, m);
    for (int32_t i = 0; i < m->n_scores; i++) {
        const quality_score *s = &m->scores[i];
        if (!isfinite(s->nll) || !isfinite(s->nll_base))
            return error_set(err, LACE_E_NUMERIC, "%s computes logits that are not finite numbers",
                             !isfinite(s->nll) ? m->args->tested_name : m->args->base_name);
        quality_add(&m->q, s);
    }
    return LACE_OK;
}

static lace_status report(const measurement *m, int32_t n_done, double part)
{
    const measure_watch *watch = &m->args->watch;
    measure_state s = {.n_done = n_done,
                       .n_windows = m->n_windows,
                       .part = part,
                       .has_base = m->base.model != NULL};
    quality_estimate_now(&m->q, &s.now);
    return !watch->on_window || watch->on_window(watch->user, &s) ? LACE_OK : LACE_E_CANCELLED;
}

static lace_status eval_window(measurement *m, int32_t w, lace_error *err)
{
    int32_t n_context = m->args->n_context;
    const lace_token *window = m->tested.tokens + (size_t)w * (size_t)n_context;
    TRY(lace_session_truncate(m->tested.session, 0, 0, err));
    if (m->base.session)
        TRY(lace_session_truncate(m->base.session, 0, 0, err));
    for (int32_t from = 0; from < n_context; from += m->n_batch) {
        int32_t n = n_context - from < m->n_batch ? n_context - from : m->n_batch;
        TRY(eval_part(m, window, from, n, err));
        TRY(report(m, w, (double)(from + n) / n_context));
    }
    return LACE_OK;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static lace_status prepare(measurement *m, lace_model *tested, lace_model *base, text source,
                           lace_error *err)
{
    const measure_options *a = m->args;
    lace_model_info info;
    TRY(open_side(&m->tested, tested, source, err));
    lace_model_describe(m->tested.model, &info);
    m->n_vocab = info.n_vocab;
    size_t n_whole = m->tested.n_tokens / (size_t)a->n_context;
    if (n_whole == 0)
        return error_set(err, LACE_E_ARG,
                         "%s: the text has %zu token%s, fewer than one window of %d; a longer text "
                         "is needed, or smaller windows (-c)",
                         a->text_name, m->tested.n_tokens, m->tested.n_tokens == 1 ? "" : "s",
                         a->n_context);
    m->n_windows = n_whole < INT32_MAX ? (int32_t)n_whole : INT32_MAX;
    if (a->n_windows > m->n_windows)
        return error_set(err, LACE_E_ARG,
                         "%s: the text has %zu tokens, which make %d windows of %d, not %d: use "
                         "--windows %d, or a longer text",
                         a->text_name, m->tested.n_tokens, m->n_windows, a->n_context, a->n_windows,
                         m->n_windows);
    if (a->n_windows)
        m->n_windows = a->n_windows;
    if (base) {
        TRY(open_side(&m->base, base, source, err));
        TRY(check_same_tokens(m, err));
    }
    m->n_batch = a->n_batch < a->n_context ? a->n_batch : a->n_context;
    m->items = mem_calloc((size_t)m->n_batch, sizeof *m->items);
    m->scores = mem_calloc((size_t)m->n_batch, sizeof *m->scores);
    if (!m->items || !m->scores)
        return error_nomem(err, "a batch");
    uint64_t n_scored = (uint64_t)(a->n_context - a->n_context / 2 - 1);
    return quality_init(&m->q, n_scored * (uint64_t)m->n_windows, base != NULL, err);
}

static lace_status measure(measurement *m, lace_model *tested, lace_model *base, text source,
                           lace_error *err)
{
    TRY(prepare(m, tested, base, source, err));
    TRY(start_side(&m->tested, m, err));
    if (base)
        TRY(start_side(&m->base, m, err));
    TRY(pool_create(m->args->n_threads ? m->args->n_threads : cpu_count(), &m->workers, err));
    TRY(report(m, 0, 0));
    for (int32_t w = 0; w < m->n_windows; w++)
        TRY(eval_window(m, w, err));
    return LACE_OK;
}

lace_status measure_models(lace_model *tested, lace_model *base, text source,
                           const measure_options *options, quality_result *out, int32_t *n_windows,
                           lace_error *err)
{
    measurement m = {.args = options};
    lace_status status = measure(&m, tested, base, source, err);
    if (status == LACE_OK) {
        quality_summarize(&m.q, out);
        *n_windows = m.n_windows;
    }
    pool_free(m.workers);
    end_side(&m.tested);
    end_side(&m.base);
    mem_free_all(m.items, m.scores);
    quality_deinit(&m.q);
    return status;
}

/* ---- Time ------------------------------------------------------------------------------------ */

enum { N_WARM = 4, N_TIMED = 32 };

lace_status measure_token_time(lace_model *model, int32_t n_threads, double *us, lace_error *err)
{
    lace_session *session;
    lace_session_options o = lace_session_options_default();
    uint64_t ns[N_TIMED];
    o.n_context = N_WARM + N_TIMED;
    o.n_threads = n_threads;
    TRY(lace_session_create(model, &o, &session, err));
    lace_status status = LACE_OK;
    for (int i = 0; i < N_WARM + N_TIMED && status == LACE_OK; i++) {
        lace_item item = {.token = 1, .want_logits = true};
        uint64_t begin = clock_ns();
        status = lace_session_eval(session, &item, 1, err);
        uint64_t taken = clock_ns() - begin;
        int at = i - N_WARM;
        for (; at > 0 && ns[at - 1] > taken; at--) /* kept sorted */
            ns[at] = ns[at - 1];
        if (i >= N_WARM)
            ns[at] = taken;
    }
    lace_session_free(session);
    *us = status == LACE_OK ? (double)ns[N_TIMED / 2] * 1e-3 : 0;
    return status;
}
