/* lace prune: take weights out of a model, measure what that costs, and write what is left. */
#include "compress/prune.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/file_write.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/measure_bar.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/surgery_run.h"

typedef struct prune_args {
    const char *config, *sparsity, *pattern, *method, *store, *imatrix, *calibrate, *file;
    int32_t n_windows, n_calibrate, n_threads;
    bool accept_loss, force;
} prune_args;

/* clang-format off */
static const arg_option options[] = {
    {"config", 0, ARG_TEXT, offsetof(prune_args, config), .value = "FILE",
     .help = "the rules; docs/compression.md has the language"},
    {"sparsity", 0, ARG_TEXT, offsetof(prune_args, sparsity), .value = "SHARE",
     .help = "in place of rules: the share of the layers' weights to remove, 0 to 1"},
    {"pattern", 0, ARG_TEXT, offsetof(prune_args, pattern), .value = "N:M",
     .help = "in place of rules: keep N of each M weights, like 2:4"},
    {"method", 0, ARG_TEXT, offsetof(prune_args, method), .value = "NAME",
     .help = "magnitude, wanda (default), ria, sparsegpt, heads or neurons"},
    {"store", 0, ARG_TEXT, offsetof(prune_args, store), .value = "NAME",
     .help = "same (default: zeros in the model's own type), m4, m8, n24 or csr"},
    {"imatrix", 0, ARG_TEXT, offsetof(prune_args, imatrix), .value = "FILE",
     .help = "which inputs matter: a file of lace imatrix or llama-imatrix"},
    {"calibrate", 0, ARG_TEXT, offsetof(prune_args, calibrate), .value = "TEXT",
     .help = "text to measure it on now, in place of --imatrix"},
    {"calibrate-windows", 0, ARG_INT, offsetof(prune_args, n_calibrate), .low = 1,
     .high = INT32_MAX, .value = "N", .help = "windows of 512 tokens, spread over that text (default: 128)"},
    {"file", 'f', ARG_TEXT, offsetof(prune_args, file), .value = "TEXT",
     .help = "held-out text on which the loss is measured"},
    CLI_WINDOWS_OPTION(prune_args, "windows of the held-out text (default: 20, or as many as it has)"),
    {"accept-loss", 0, ARG_FLAG, offsetof(prune_args, accept_loss),
     .help = "write the file even if the loss is above the limit of the rules, or not measured"},
    CLI_THREADS_OPTION(prune_args),
    OUTPUT_FORCE_OPTION(prune_args),
};
/* clang-format on */

/* ---- Rules ----------------------------------------------------------------------------------- */

static lace_status simple_rule(const verb *v, const prune_args *a, surgery **out, lace_error *err)
{
    prune_method method = PRUNE_WANDA;
    prune_store store = STORE_SAME;
    int32_t keep = 0, out_of = 0;
    char *end = NULL;
    double sparsity = a->sparsity ? strtod(a->sparsity, &end) : 0;
    if (!a->sparsity == !a->pattern)
        return args_error(v, err, "give --config FILE, or one of --sparsity and --pattern");
    if (a->sparsity && (end == a->sparsity || *end || !(sparsity >= 0 && sparsity < 1)))
        return args_error(v, err, "--sparsity %s: expected 0 or more and less than 1", a->sparsity);
    if (a->pattern)
        TRY(surgery_pattern(text_of(a->pattern), &keep, &out_of, err));
    if (a->method && !prune_method_find(text_of(a->method), &method))
        return args_error(
            v, err, "--method %s: expected magnitude, wanda, ria, sparsegpt, heads or neurons",
            a->method);
    if (a->store && !prune_store_find(text_of(a->store), &store))
        return args_error(v, err, "--store %s: expected same, m4, m8, n24 or csr", a->store);
    if (store == STORE_N24 && !(keep == 2 && out_of == 4))
        return args_error(v, err, "--store n24 needs --pattern 2:4");
    if (prune_method_is_structured(method) && (a->pattern || store != STORE_SAME))
        return args_error(v, err, "--method %s takes neither --pattern nor --store", a->method);
    return surgery_simple(method, sparsity, keep, out_of, store, out, err);
}

/* ---- Reports --------------------------------------------------------------------------------- */

static lace_status print_plan(const surgery *s, const prune_result *r, lace_error *err)
{
    buf line;
    buf_init(&line, 1 << 20);
    lace_status status = buf_printf(&line, "%-28s %-10s %8s %8s  %s\n", "rule", "method", "takes",
                                    "tensors", "stored as");
    for (int32_t i = 0; i < s->n_rules && status == LACE_OK; i++) {
        const surgery_rule *rule = &s->rules[i];
        char amount[32];
        if (rule->out_of)
            snprintf(amount, sizeof amount, "%d of %d", rule->out_of - rule->keep, rule->out_of);
        else
            snprintf(amount, sizeof amount, "%.1f %%", 100 * rule->sparsity);
        status = buf_printf(&line, "%-28.28s %-10s %8s %8zu  %s\n", rule->tensors[0],
                            prune_method_name(rule->method), amount, r->rows[i].n_tensors,
                            prune_store_name(rule->store));
    }
    if (status == LACE_OK)
        status = cli_write(line.data, line.size, err);
    buf_deinit(&line);
    return status;
}

static lace_status print_result(const char *path, const prune_result *r, const surgery *s,
                                lace_error *err)
{
    char before[32], after[32];
    uint64_t n = 0, gone = 0;
    for (int32_t i = 0; i < s->n_rules; i++) {
        n += r->rows[i].n_weights;
        gone += r->rows[i].n_gone;
    }
    buf line;
    buf_init(&line, 8192);
    lace_status status = buf_printf(
        &line, "%s: %s to %s in tensors; %.1f %% of %" PRIu64 " weights are gone\n", path,
        cli_format_bytes(r->bytes_before, before), cli_format_bytes(r->bytes_after, after),
        n ? 100 * (double)gone / (double)n : 0, n);
    if (status == LACE_OK)
        status = cli_write(line.data, line.size, err);
    buf_deinit(&line);
    return status;
}

/* ---- Judging --------------------------------------------------------------------------------- */

/* How far the pruned model is from the original. */
static lace_status measure_loss(const char *input, const buf *made, const prune_args *a,
                                quality_result *out, lace_error *err)
{
    lace_model *pruned = NULL, *original = NULL;
    buf source;
    buf_init(&source, CLI_MAX_TEXT);
    measure_options o = measure_options_default();
    o.n_windows = a->n_windows ? a->n_windows : 0;
    o.n_threads = a->n_threads;
    o.text_name = a->file;
    o.tested_name = "the pruned model";
    o.base_name = input;
    int32_t n_windows = 0;
    lace_status status = measure_read_text(a->file, &source, err);
    if (status == LACE_OK && !a->n_windows) {
        enum { DEFAULT_BYTES = 20 * 512 * 4 }; /* about 20 windows of text */
        if (source.size > DEFAULT_BYTES)
            source.size = DEFAULT_BYTES;
    }
    if (status == LACE_OK)
        status =
            lace_model_open_memory(made->data, made->size, "the pruned model", NULL, &pruned, err);
    if (status == LACE_OK)
        status = cli_open_model(input, NULL, &original, err);
    if (status == LACE_OK)
        status = measure_models_shown(pruned, original, &source, &o, out, &n_windows, err);
    lace_model_close(pruned);
    lace_model_close(original);
    buf_deinit(&source);
    return status;
}

static lace_status judge(const char *input, const buf *made, const surgery *s, const prune_args *a,
                         lace_error *err)
{
    /* A rule among others was judged alone before. */
    double limit = s->max_kld;
    if (s->n_rules == 1 && s->rules[0].max_kld < limit)
        limit = s->rules[0].max_kld;
    if (!a->file)
        return LACE_OK;
    quality_result q;
    TRY(measure_loss(input, made, a, &q, err));
    char out[256];
    int n =
        snprintf(out, sizeof out,
                 "KLD %.6f +- %.6f, perplexity %.4f (was %.4f), same top %.2f %%, %llu tokens\n",
                 q.kld.mean, q.kld.error, q.perplexity.mean, q.perplexity_base.mean,
                 100 * q.same_top.mean, (unsigned long long)q.n);
    TRY(cli_write(out, (size_t)n, err));
    if (!(q.kld.mean <= limit) && !a->accept_loss)
        return error_set(err, LACE_E_LIMIT,
                         "the KLD is %.6f, above the limit of %g: nothing was written; prune less, "
                         "or use --accept-loss",
                         q.kld.mean, limit);
    return LACE_OK;
}

/* Limits that nobody can check are not kept: say so before the work begins. */
static lace_status check_measurable(const surgery *s, const prune_args *a, lace_error *err)
{
    double limit = s->max_kld;
    for (int32_t i = 0; i < s->n_rules; i++)
        limit = s->rules[i].max_kld < limit ? s->rules[i].max_kld : limit;
    if (isinf(limit) || a->file || a->accept_loss)
        return LACE_OK;
    return error_set(err, LACE_E_ARG,
                     "the rules allow a KLD of %g: give -f TEXT to measure it, or --accept-loss",
                     limit);
}

/* Each rule with a limit of its own is judged alone. */
static lace_status judge_rules(const char *input, const surgery *s, const surgery_stats *stats,
                               const prune_args *a, lace_error *err)
{
    for (int32_t i = 0; i < s->n_rules && s->n_rules > 1; i++) {
        if (isinf(s->rules[i].max_kld) || !a->file)
            continue;
        surgery alone = *s;
        alone.rules = s->rules + i;
        alone.n_rules = 1;
        alone.max_kld = HUGE_VAL;
        prune_options o = prune_options_default();
        o.importance = stats->importance;
        o.hessians = stats->hessians;
        o.n_threads = a->n_threads;
        prune_result r;
        buf made;
        buf_init(&made, SIZE_MAX / 2);
        lace_status status = prune_model(input, &alone, &o, &made, &r, err);
        if (status == LACE_OK) {
            char head[64];
            int n = snprintf(head, sizeof head, "rule of line %d alone: ", s->rules[i].line);
            status = cli_write(head, (size_t)n, err);
            prune_result_deinit(&r);
        }
        if (status == LACE_OK)
            status = judge(input, &made, &alone, a, err);
        buf_deinit(&made);
        TRY(status);
    }
    return LACE_OK;
}

/* ---- The verb -------------------------------------------------------------------------------- */

static lace_status prune(const char *input, const output *to, const surgery *s, const prune_args *a,
                         lace_error *err)
{
    surgery_stats stats = {0};
    prune_result r = {0};
    buf made;
    buf_init(&made, SIZE_MAX / 2);
    lace_status status = prune_plan(input, s, &r, err);
    if (status == LACE_OK)
        status = print_plan(s, &r, err);
    prune_result_deinit(&r);
    surgery_inputs inputs = {a->imatrix, a->calibrate, a->n_calibrate, a->n_threads};
    if (status == LACE_OK)
        status = surgery_read_inputs(input, s, &inputs, &stats, err);
    if (status == LACE_OK)
        status = judge_rules(input, s, &stats, a, err);
    if (status == LACE_OK)
        status = surgery_apply(input, s, &stats, a->n_threads, &made, &r, err);
    if (status == LACE_OK)
        status = judge(input, &made, s, a, err);
    if (status == LACE_OK)
        status = file_write_whole(to->path, &to->rules, made.data, made.size, err);
    if (status == LACE_OK)
        status = print_result(to->path, &r, s, err);
    prune_result_deinit(&r);
    surgery_stats_deinit(&stats);
    buf_deinit(&made);
    return status;
}

static lace_status prune_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    prune_args a = {.n_calibrate = 128};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    if (a.config && (a.sparsity || a.pattern || a.method || a.store))
        return args_error(v, err, "--config excludes --sparsity, --pattern, --method and --store");
    output to;
    const char *const inputs[] = {words.at[0], a.config, a.imatrix, a.calibrate, a.file};
    TRY(output_begin(&to, words.at[1], a.force, inputs, 5, err));
    output_must_run(&to, false);
    cli_catch_stop();
    surgery *s = NULL;
    lace_status status = a.config ? surgery_read(a.config, &s, err) : simple_rule(v, &a, &s, err);
    if (status == LACE_OK)
        status = check_measurable(s, &a, err);
    if (status == LACE_OK)
        status = prune(words.at[0], &to, s, &a, err);
    surgery_free(s);
    return status;
}

VERB(
    prune, "prune", "IN OUT (--config FILE | --sparsity SHARE | --pattern N:M) [options]",
    "remove weights from a model, and measure what that costs", 2, 2,
    .description =
        "Rules say which weights may go, by which method, how many, and what it may cost; the\n"
        "plan is shown, the loss measured on held-out text (-f), and nothing is written past the\n"
        "limit. heads and neurons make matrices smaller; the other methods make zeros, which\n"
        "m4, m8, n24 and csr do not store.\n",
    .examples =
        "  lace prune model-f16.gguf half.gguf --sparsity 0.5 --calibrate calib.txt --store m4 \\\n"
        "      -f test.txt\n"
        "  lace prune model-f16.gguf small.gguf --config surgery.conf --imatrix model.imatrix\n"
        "  lace prune model-f16.gguf narrow.gguf --method neurons --sparsity 0.1 \\\n"
        "      --calibrate calib.txt\n")
