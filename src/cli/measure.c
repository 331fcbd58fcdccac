/* Measuring models over a text: tokens, windows, scores. */
#include "cli/measure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/threads.h"
#include "cli/cli.h"
#include "cli/progress.h"

measure_options measure_options_default(void)
{
    return (measure_options){.n_context = 512, .n_batch = 512, .kv_type = LACE_KV_F16};
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

static lace_status open_side(side *s, lace_model *model, const buf *source, lace_error *err)
{
    s->model = model;
    TRY(find_bos(s, err));
    return cli_tokenize(s->model, source->data ? source->data : "", source->size,
                        LACE_TOKENIZE_ADD_SPECIAL, &s->tokens, &s->n_tokens, err);
}

static lace_status start_side(side *s, const measurement *m, lace_error *err)
{
    progress bar;
    progress_init(&bar, &cli_stop);
    int32_t n_scored = m->args->n_context - m->args->n_context / 2;
    lace_session_options o = lace_session_options_default();
    o.n_context = m->args->n_context;
    o.n_batch = m->n_batch;
    o.n_outputs = n_scored < m->n_batch ? n_scored : m->n_batch;
    o.n_threads = m->args->n_threads;
    o.kv_type = m->args->kv_type;
    o.on_progress = progress_report;
    o.progress_user = &bar;
    lace_status status = lace_session_create(s->model, &o, &s->session, err);
    progress_end(&bar);
    return status;
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

static bool report(progress *bar, const measurement *m, int32_t n_done, double part)
{
    quality_result now;
    char what[96];
    quality_estimate_now(&m->q, &now);
    if (now.n == 0)
        snprintf(what, sizeof what, "window 1 of %d", m->n_windows);
    else if (m->base.model)
        snprintf(what, sizeof what, "window %d of %d: ppl %.3f +- %.3f, kld %.5f", n_done + 1,
                 m->n_windows, now.perplexity.mean, now.perplexity.error, now.kld.mean);
    else
        snprintf(what, sizeof what, "window %d of %d: perplexity %.4f +- %.4f", n_done + 1,
                 m->n_windows, now.perplexity.mean, now.perplexity.error);
    return progress_report(bar, what, (n_done + part) / m->n_windows);
}

static lace_status eval_windows(measurement *m, lace_error *err)
{
    int32_t n_context = m->args->n_context;
    progress bar;
    progress_init(&bar, &cli_stop);
    progress_show(&bar, "window 1");
    lace_status status = LACE_OK;
    for (int32_t w = 0; w < m->n_windows && status == LACE_OK; w++) {
        const lace_token *window = m->tested.tokens + (size_t)w * (size_t)n_context;
        status = lace_session_truncate(m->tested.session, 0, 0, err);
        if (status == LACE_OK && m->base.session)
            status = lace_session_truncate(m->base.session, 0, 0, err);
        for (int32_t from = 0; from < n_context && status == LACE_OK; from += m->n_batch) {
            int32_t n = n_context - from < m->n_batch ? n_context - from : m->n_batch;
            status = eval_part(m, window, from, n, err);
            if (status == LACE_OK && !report(&bar, m, w, (double)(from + n) / n_context))
                status = LACE_E_CANCELLED;
        }
    }
    progress_end(&bar);
    return status;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static lace_status prepare(measurement *m, lace_model *tested, lace_model *base, const buf *source,
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
                         "%s: the text has %zu tokens, fewer than one window of %d", a->text_name,
                         m->tested.n_tokens, a->n_context);
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

static lace_status measure(measurement *m, lace_model *tested, lace_model *base, const buf *source,
                           lace_error *err)
{
    TRY(prepare(m, tested, base, source, err));
    TRY(start_side(&m->tested, m, err));
    if (base)
        TRY(start_side(&m->base, m, err));
    TRY(pool_create(m->args->n_threads ? m->args->n_threads : cpu_count(), &m->workers, err));
    return eval_windows(m, err);
}

lace_status measure_models(lace_model *tested, lace_model *base, const buf *source,
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
    mem_free(m.items);
    mem_free(m.scores);
    quality_deinit(&m.q);
    return status;
}
