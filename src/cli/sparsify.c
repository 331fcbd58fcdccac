/* lace sparsify: thresholds for activation sparsity, and what they cost. */
#include "compress/sparsify.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/file_write.h"
#include "cli/cli.h"
#include "cli/measure_bar.h"
#include "cli/output.h"
#include "cli/progress.h"

typedef struct sparsify_args {
    float sparsity;
    const char *calibrate, *file;
    int32_t n_calibrate, n_windows, n_threads;
    bool uniform, force;
} sparsify_args;

/* clang-format off */
static const arg_option options[] = {
    {"sparsity", 0, ARG_FLOAT, offsetof(sparsify_args, sparsity), .low = 0, .is_low_open = true,
     .high = 0.9, .value = "SHARE",
     .help = "share of the layers' weights that a token skips (default 0.4)"},
    {"calibrate", 0, ARG_TEXT, offsetof(sparsify_args, calibrate), .value = "TEXT",
     .help = "a text like what the model will be used for; - is standard input", .is_needed = true},
    {"calibrate-windows", 0, ARG_INT, offsetof(sparsify_args, n_calibrate), .low = 1,
     .high = INT32_MAX, .value = "N",
     .help = "windows of 512 tokens to read, spread over the text (default 32)"},
    {"uniform", 0, ARG_FLAG, offsetof(sparsify_args, uniform),
     .help = "the same share for every input, without measuring what each costs"},
    {"file", 'f', ARG_TEXT, offsetof(sparsify_args, file), .value = "TEXT",
     .help = "held-out text: measure the KL divergence from the dense model on it"},
    CLI_WINDOWS_OPTION(sparsify_args, "windows of the held-out text (default 20)"),
    CLI_THREADS_OPTION(sparsify_args),
    OUTPUT_FORCE_OPTION(sparsify_args),
};
/* clang-format on */

/* ---- Thresholds ------------------------------------------------------------------------------ */

/* Thresholds by the calibration text, and the shares that they leave out of the held-out one. */
static lace_status calibrate(walk *w, const buf *source, const buf *held_out,
                             const sparsify_args *a, progress *bar, sparsify_result *out,
                             lace_error *err)
{
    sparsify_options o = {.sparsity = (double)a->sparsity,
                          .is_uniform = a->uniform,
                          .n_windows = a->n_calibrate,
                          .on_progress = progress_report,
                          .progress_user = bar};
    token_list tokens = {0};
    lace_status status =
        walk_tokenize(w, source->data ? source->data : "", source->size, &tokens, err);
    if (status == LACE_OK)
        status = sparsify(w, tokens.data, tokens.size, &o, out, err);
    token_list_deinit(&tokens);
    if (status != LACE_OK || !a->file)
        return status;
    status = walk_tokenize(w, held_out->data ? held_out->data : "", held_out->size, &tokens, err);
    if (status == LACE_OK)
        status = sparsify_count(w, tokens.data, tokens.size, 8, out, err);
    token_list_deinit(&tokens);
    return status;
}

static lace_status print_shares(const sparsify_result *r, const sparsify_args *a, lace_error *err)
{
    static const char *const names[SPARSITY_INPUTS] = {"q k v", "o", "gate up", "down"};
    buf out;
    buf_init(&out, 4096);
    lace_status status = buf_printf(&out, "inputs of       weights    left out   by layer (%s)\n",
                                    a->file ? "held-out text" : "calibration text");
    for (int i = 0; i < SPARSITY_INPUTS && status == LACE_OK; i++) {
        const sparsify_row *row = &r->rows[i];
        if (row->n_weights)
            status = buf_printf(&out, "  %-9s %12llu     %5.1f %%   %4.1f to %.1f %%\n", names[i],
                                (unsigned long long)row->n_weights, 100 * row->mean,
                                100 * row->least, 100 * row->most);
    }
    if (status == LACE_OK)
        status = buf_printf(&out, "  all                        %5.1f %%\n", 100 * r->sparsity);
    if (status == LACE_OK && r->kld >= 0)
        status = buf_printf(&out,
                            "KLD on 4 windows of the calibration text: %.6f, and %.6f with the "
                            "same share for all\n",
                            r->kld, r->kld_uniform);
    if (status == LACE_OK)
        status = cli_write(out.data, out.size, err);
    buf_deinit(&out);
    return status;
}

/* ---- What it costs --------------------------------------------------------------------------- */

static lace_status measure(const char *path, const buf *thresholds, const buf *held_out,
                           const sparsify_args *a, double *kld, lace_error *err)
{
    lace_model *sparse = NULL, *dense = NULL;
    lace_model_options o = lace_model_options_default();
    measure_options how = measure_options_default();
    how.n_windows = a->n_windows;
    how.n_threads = a->n_threads;
    how.text_name = a->file;
    how.tested_name = "with thresholds";
    how.base_name = path;
    quality_result q;
    int32_t n_windows;
    lace_status status = cli_open_model(path, &o, &dense, err);
    o.activation_sparsity = thresholds->data;
    o.sparse_in_batches = true;
    if (status == LACE_OK)
        status = cli_open_model(path, &o, &sparse, err);
    if (status == LACE_OK)
        status = measure_models_shown(sparse, dense, held_out, &how, &q, &n_windows, err);
    lace_model_close(sparse);
    lace_model_close(dense);
    if (status != LACE_OK)
        return status;
    char out[256];
    int n = snprintf(out, sizeof out,
                     "KLD %.6f +- %.6f, perplexity %.4f (was %.4f), same top %.2f %%, %llu tokens "
                     "of %s\n",
                     q.kld.mean, q.kld.error, q.perplexity.mean, q.perplexity_base.mean,
                     100 * q.same_top.mean, (unsigned long long)q.n, a->file);
    *kld = q.kld.mean;
    return cli_write(out, (size_t)n < sizeof out ? (size_t)n : sizeof out - 1, err);
}

/* ---- The verb -------------------------------------------------------------------------------- */

/*
 * A check of file_rules: the model runs with these thresholds. In exact arithmetic, which has them for
 * every type: they may be found on one that has no kernel for them, such as bf16, and used on another.
 */
static lace_status check_thresholds(void *user, span bytes, lace_error *err)
{
    const char *path = user;
    buf copy;
    lace_model *sparse = NULL;
    lace_model_options o = lace_model_options_default();
    buf_init(&copy, bytes.size + 1);
    lace_status status = buf_append(&copy, bytes.data, bytes.size);
    o.activation_sparsity = copy.data;
    o.use_vocab = false;
    o.use_exact = true;
    if (status == LACE_OK)
        status = cli_open_model(path, &o, &sparse, err);
    if (status == LACE_OK)
        status = output_run_once(sparse, path, err);
    lace_model_close(sparse);
    buf_deinit(&copy);
    return status == LACE_OK
               ? status
               : error_prefix(err, status, "the thresholds were not written, because with them");
}

static lace_status run(const char *model_path, const output *to, const buf *source,
                       const buf *held_out, const sparsify_args *a, progress *bar, lace_error *err)
{
    walk_options o = walk_options_default();
    o.n_threads = a->n_threads;
    o.use_int8 = true;
    o.uses_sparsity = true;
    o.on_progress = progress_report;
    o.progress_user = bar;
    weights *files;
    walk *w = NULL;
    sparsify_result r;
    buf made;
    TRY(weights_open(model_path, &files, err));
    TRY(walk_open(files, &o, &w, err));
    buf_init(&made, 64 << 20);
    lace_status status = calibrate(w, source, held_out, a, bar, &r, err);
    progress_end(bar);
    if (status == LACE_OK)
        status = print_shares(&r, a, err);
    sparsity_note note = {.sparsity = r.sparsity, .kld = -1};
    if (status == LACE_OK)
        status = sparsity_write(w->m, &note, &made, err);
    if (status == LACE_OK && a->file)
        status = measure(model_path, &made, held_out, a, &note.kld, err);
    if (status == LACE_OK) {
        buf_clear(&made);
        status = sparsity_write(w->m, &note, &made, err);
    }
    walk_close(w);
    if (status == LACE_OK)
        status = file_write_whole(to->path, &to->rules, made.data, made.size, err);
    buf_deinit(&made);
    return status;
}

static lace_status sparsify_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    sparsify_args a = {.sparsity = 0.4f, .n_calibrate = 32, .n_windows = 20};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    output to;
    const char *const inputs[] = {words.at[0], a.calibrate, a.file};
    TRY(output_begin(&to, words.at[1], a.force, inputs, 3, err));
    to.rules.check = check_thresholds;
    to.rules.user = (void *)(uintptr_t)words.at[0];
    cli_catch_stop();
    progress bar;
    progress_init(&bar, &cli_stop);
    buf source, held_out;
    buf_init(&source, CLI_MAX_TEXT);
    buf_init(&held_out, CLI_MAX_TEXT);
    lace_status status = file_read(a.calibrate, &source, err);
    if (status == LACE_OK && a.file)
        status = measure_read_text(a.file, &held_out, err);
    if (status == LACE_OK)
        status = run(words.at[0], &to, &source, &held_out, &a, &bar, err);
    progress_end(&bar);
    buf_deinit(&source);
    buf_deinit(&held_out);
    return status;
}

VERB(sparsify, "sparsify", "MODEL OUT --calibrate TEXT [--sparsity SHARE] [-f TEXT] [options]",
     "find thresholds for activation sparsity: single tokens read fewer weights", 2, 2,
     .description =
         "Activation sparsity (TEAL): inputs of matrices that are smaller than a threshold are\n"
         "taken as 0, and the weights that they would meet are skipped. OUT holds thresholds for\n"
         "this model in all its types. What it costs is measured on held-out text (-f). Turn it\n"
         "on with --activation-sparsity OUT in run, chat, serve, bench and perplexity: for f16,\n"
         "q8_0, q6_k, q4_k and q4_0 on the CPU, and for tokens that are computed one at a time;\n"
         "prompts and batches are computed in full.\n",
     .examples =
         "  lace sparsify model-f16.gguf model.sparse --sparsity 0.4 --calibrate calib.txt \\\n"
         "      -f test.txt\n"
         "  lace run model-q8_0.gguf --activation-sparsity model.sparse -p \"Once upon a time\"\n"
         "  lace perplexity model-q8_0.gguf --activation-sparsity model.sparse -f test.txt \\\n"
         "      --against model-q8_0.gguf\n")
