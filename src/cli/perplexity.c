/*
 * lace perplexity: how well a model predicts a text, by the method that llama.cpp made common, so
 * that numbers compare: the text is cut into tokens once and into windows of -c tokens; a window
 * begins with BOS in place of its first token, if the model wants one; the second half is scored.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/threads.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "compress/quality.h"

typedef struct perplexity_args {
    const char *file;
    const char *against;
    int32_t n_context;
    int32_t n_windows; /* 0: all */
    int32_t n_batch;
    int32_t n_threads;
    int32_t kv_type;
    int32_t output; /* of OUTPUTS */
    bool exact;
    bool mmap;
} perplexity_args;

#define OUTPUTS "text|json"
enum { OUTPUT_TEXT, OUTPUT_JSON };

/* clang-format off */
static const arg_option options[] = {
    {"file", 'f', ARG_TEXT, offsetof(perplexity_args, file), .value = "TEXT",
     .help = "the text to predict; - is standard input (required)"},
    {"ctx-size", 'c', ARG_INT, offsetof(perplexity_args, n_context), .low = 4,
     .high = CLI_MAX_CONTEXT, .value = "N", .help = "tokens of a window (default 512)"},
    {"windows", 0, ARG_INT, offsetof(perplexity_args, n_windows), .low = 1, .high = INT32_MAX,
     .value = "N", .help = "use the first N windows (default: all whole ones)"},
    {"against", 0, ARG_TEXT, offsetof(perplexity_args, against), .value = "MODEL",
     .help = "run this model too, and measure how far the first is from it (KL divergence)"},
    {"batch", 'b', ARG_INT, offsetof(perplexity_args, n_batch), .low = 1, .high = CLI_MAX_BATCH,
     .value = "N", .help = "tokens computed together (default 512)"},
    {"threads", 't', ARG_INT, offsetof(perplexity_args, n_threads), .low = 1,
     .high = CLI_MAX_THREADS, .value = "N", .help = "threads (default: one per core)"},
    {"kv-type", 0, ARG_CHOICE, offsetof(perplexity_args, kv_type), .value = CLI_KV_TYPES,
     .help = "numbers of the KV cache (default f16)"},
    {"exact", 0, ARG_FLAG, offsetof(perplexity_args, exact),
     .help = "f32 activations for quantized weights too; slow"},
    {"mmap", 0, ARG_FLAG, offsetof(perplexity_args, mmap),
     .help = "run from the files' own blocks: slower, less memory"},
    {"output", 'o', ARG_CHOICE, offsetof(perplexity_args, output), .value = OUTPUTS,
     .help = "lines for people, or one JSON object (default text)"},
};
/* clang-format on */

/* A model at work. */
typedef struct side {
    lace_model *model;
    lace_session *session;
    lace_token *tokens; /* [n_tokens] the whole text */
    size_t n_tokens;
    lace_token bos; /* in place of each window's first token; -1: none */
} side;

typedef struct measurement {
    const perplexity_args *args;
    side tested, base; /* base.model is NULL without --against */
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

static lace_status open_side(side *s, const char *path, const perplexity_args *a, const buf *source,
                             lace_error *err)
{
    lace_model_options o = lace_model_options_default();
    o.use_exact = a->exact;
    o.use_mmap = a->mmap;
    TRY(cli_open_model(path, &o, &s->model, err));
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
    o.kv_type = (lace_kv_type)m->args->kv_type;
    o.on_progress = progress_report;
    o.progress_user = &bar;
    lace_status status = lace_session_create(s->model, &o, &s->session, err);
    progress_end(&bar);
    return status;
}

static void end_side(side *s)
{
    lace_session_free(s->session);
    lace_model_close(s->model);
    mem_free(s->tokens);
}

/* Positions are compared one by one, so both models must see the same tokens. */
static lace_status check_same_tokens(const measurement *m, lace_error *err)
{
    lace_model_info a, b;
    lace_model_describe(m->tested.model, &a);
    lace_model_describe(m->base.model, &b);
    if (a.n_vocab != b.n_vocab)
        return error_set(err, LACE_E_VOCAB,
                         "the models cannot be compared: one knows %d tokens, %s knows %d",
                         a.n_vocab, m->args->against, b.n_vocab);
    if (m->tested.n_tokens != m->base.n_tokens || m->tested.bos != m->base.bos ||
        memcmp(m->tested.tokens, m->base.tokens, m->tested.n_tokens * sizeof(lace_token)) != 0)
        return error_set(err, LACE_E_VOCAB,
                         "the models cannot be compared: %s cuts the text into other tokens",
                         m->args->against);
    return LACE_OK;
}

static lace_status read_text(const char *path, buf *out, lace_error *err)
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
    for (int32_t i = 0; i < m->n_scores; i++)
        quality_add(&m->q, &m->scores[i]);
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

/* ---- Results --------------------------------------------------------------------------------- */

/* A number for JSON, which has no word for infinity. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static void set_estimate(json_t *o, const char *key, const char *error_key, quality_estimate e)
{
    json_object_set_new(o, key, number(e.mean));
    json_object_set_new(o, error_key, number(e.error));
}

static lace_status print_json(const measurement *m, const quality_result *r, lace_error *err)
{
    json_t *o = json_object();
    set_estimate(o, "perplexity", "perplexity_error", r->perplexity);
    json_object_set_new(o, "tokens", json_integer((json_int_t)r->n));
    json_object_set_new(o, "windows", json_integer(m->n_windows));
    json_object_set_new(o, "context", json_integer(m->args->n_context));
    if (m->base.model) {
        set_estimate(o, "perplexity_base", "perplexity_base_error", r->perplexity_base);
        set_estimate(o, "ln_ppl_ratio", "ln_ppl_ratio_error", r->ln_ratio);
        set_estimate(o, "kld_mean", "kld_mean_error", r->kld);
        json_object_set_new(o, "kld_median", number(r->kld_median));
        json_object_set_new(o, "kld_p99", number(r->kld_p99));
        json_object_set_new(o, "kld_p999", number(r->kld_p999));
        json_object_set_new(o, "kld_max", number(r->kld_max));
        set_estimate(o, "same_top", "same_top_error", r->same_top);
    }
    char *dump = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(o);
    if (!dump)
        return error_nomem(err, "JSON");
    lace_status status = cli_write(dump, strlen(dump), err);
    if (status == LACE_OK)
        status = cli_write("\n", 1, err);
    free(dump);
    return status;
}

static lace_status print_text(const measurement *m, const quality_result *r, lace_error *err)
{
    char out[1024];
    int n = snprintf(out, sizeof out, "perplexity %.4f +- %.4f (%llu tokens in %d windows of %d)\n",
                     r->perplexity.mean, r->perplexity.error, (unsigned long long)r->n,
                     m->n_windows, m->args->n_context);
    if (m->base.model)
        n += snprintf(out + n, sizeof out - (size_t)n,
                      "against    %.4f +- %.4f (%.160s)\n"
                      "ln(ratio)  %.6f +- %.6f\n"
                      "KLD mean   %.6f +- %.6f\n"
                      "    median %.6f\n"
                      "    99 %%   %.6f\n"
                      "    99.9 %% %.6f\n"
                      "    most   %.6f\n"
                      "same top   %.3f %% +- %.3f %%\n",
                      r->perplexity_base.mean, r->perplexity_base.error, m->args->against,
                      r->ln_ratio.mean, r->ln_ratio.error, r->kld.mean, r->kld.error, r->kld_median,
                      r->kld_p99, r->kld_p999, r->kld_max, 100 * r->same_top.mean,
                      100 * r->same_top.error);
    return cli_write(out, (size_t)n, err);
}

/* ---- The verb -------------------------------------------------------------------------------- */

static lace_status prepare(measurement *m, const char *path, const buf *source, lace_error *err)
{
    const perplexity_args *a = m->args;
    lace_model_info info;
    TRY(open_side(&m->tested, path, a, source, err));
    lace_model_describe(m->tested.model, &info);
    m->n_vocab = info.n_vocab;
    size_t n_whole = m->tested.n_tokens / (size_t)a->n_context;
    if (n_whole == 0)
        return error_set(err, LACE_E_ARG, "%s: %zu tokens, fewer than one window of %d", a->file,
                         m->tested.n_tokens, a->n_context);
    m->n_windows = n_whole < INT32_MAX ? (int32_t)n_whole : INT32_MAX;
    if (a->n_windows > m->n_windows)
        return error_set(err, LACE_E_ARG, "%s: %zu tokens are %d windows of %d, fewer than %d",
                         a->file, m->tested.n_tokens, m->n_windows, a->n_context, a->n_windows);
    if (a->n_windows)
        m->n_windows = a->n_windows;
    if (a->against) {
        TRY(open_side(&m->base, a->against, a, source, err));
        TRY(check_same_tokens(m, err));
    }
    m->n_batch = a->n_batch < a->n_context ? a->n_batch : a->n_context;
    m->items = mem_calloc((size_t)m->n_batch, sizeof *m->items);
    m->scores = mem_calloc((size_t)m->n_batch, sizeof *m->scores);
    if (!m->items || !m->scores)
        return error_nomem(err, "a batch");
    uint64_t n_scored = (uint64_t)(a->n_context - a->n_context / 2 - 1);
    return quality_init(&m->q, n_scored * (uint64_t)m->n_windows, a->against != NULL, err);
}

static lace_status measure(measurement *m, const char *path, const buf *source, lace_error *err)
{
    TRY(prepare(m, path, source, err));
    TRY(start_side(&m->tested, m, err));
    if (m->base.model)
        TRY(start_side(&m->base, m, err));
    TRY(pool_create(m->args->n_threads ? m->args->n_threads : cpu_count(), &m->workers, err));
    TRY(eval_windows(m, err));
    quality_result r;
    quality_summarize(&m->q, &r);
    return m->args->output == OUTPUT_JSON ? print_json(m, &r, err) : print_text(m, &r, err);
}

static lace_status perplexity_run(const verb *v, int argc, char **argv, lace_error *err)
{
    perplexity_args a = {.n_context = 512, .n_batch = 512, .kv_type = LACE_KV_F16};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    if (!a.file)
        return args_error(v, err, "-f TEXT is missing");
    cli_catch_stop();
    measurement m = {.args = &a};
    buf source;
    buf_init(&source, CLI_MAX_TEXT);
    lace_status status = read_text(a.file, &source, err);
    if (status == LACE_OK)
        status = measure(&m, words.at[0], &source, err);
    pool_free(m.workers);
    end_side(&m.tested);
    end_side(&m.base);
    mem_free(m.items);
    mem_free(m.scores);
    quality_deinit(&m.q);
    buf_deinit(&source);
    return status;
}

const verb verb_perplexity = {
    .name = "perplexity",
    .summary = "measure how well a model predicts a text, alone or against another",
    .usage = "[MODEL] -f TEXT [options]",
    .description =
        "By llama.cpp's method, so that numbers compare: windows of -c tokens, the second half\n"
        "scored. With --against both models run in lock-step, and the divergence of the first\n"
        "from the second is measured: that is what a compression has cost.\n",
    .examples = "  lace perplexity model.gguf -f wiki.test.raw\n"
                "  lace perplexity model-q4_k.gguf -f wiki.test.raw --against model-f16.gguf\n"
                "  lace perplexity model.gguf -f book.txt -c 2048 --windows 20 -o json\n",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .max_positional = 1,
    .run = perplexity_run,
};
