/* lace imatrix: which inputs of a model's matrices are large, over a text. */
#include "compress/imatrix_collect.h"

#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/progress.h"

typedef struct imatrix_args {
    const char *file, *output;
    int32_t n_context, n_windows, n_threads;
    bool force;
} imatrix_args;

/* clang-format off */
static const arg_option options[] = {
    {"file", 'f', ARG_TEXT, offsetof(imatrix_args, file), .value = "TEXT",
     .help = "the text to read, like what the model will be used for; - is standard input", .is_needed = true},
    {"output", 'o', ARG_TEXT, offsetof(imatrix_args, output), .value = "OUT",
     .help = "the file to write; it appears when complete", .is_needed = true},
    CLI_WINDOW_OPTION(imatrix_args),
    CLI_WINDOWS_OPTION(imatrix_args, "read only N windows, spread over the text"),
    CLI_THREADS_OPTION(imatrix_args),
    OUTPUT_FORCE_OPTION(imatrix_args),
};
/* clang-format on */

static lace_status report(const imatrix_args *a, const imatrix *m, int64_t n_windows,
                          lace_error *err)
{
    buf line;
    buf_init(&line, 8192);
    lace_status status =
        buf_printf(&line, "%s: inputs of %zu matrices over %lld windows of %d tokens\n", a->output,
                   imatrix_count(m), (long long)n_windows, a->n_context);
    if (status == LACE_OK)
        status = cli_write(line.data, line.size, err);
    buf_deinit(&line);
    return status;
}

/* A check of file_rules: it can be read again. */
static lace_status check_readable(void *user, span bytes, lace_error *err)
{
    imatrix *m;
    (void)user;
    TRY(imatrix_parse(bytes, &m, err));
    imatrix_free(m);
    return LACE_OK;
}

static lace_status collect(const imatrix_args *a, const output *made, const char *path,
                           const buf *source, progress *bar, lace_error *err)
{
    walk_options o = walk_options_default();
    o.n_context = a->n_context;
    o.n_threads = a->n_threads;
    o.use_int8 = true;
    o.on_progress = progress_report;
    o.progress_user = bar;
    weights *files;
    walk *w;
    token_list tokens = {0};
    imatrix *m = NULL;
    int64_t n_windows = 0;
    TRY(weights_open(path, &files, err));
    TRY(walk_open(files, &o, &w, err));
    lace_status status =
        walk_tokenize(w, source->data ? source->data : "", source->size, &tokens, err);
    imatrix_options collecting = {
        .n_windows = a->n_windows, .on_progress = progress_report, .progress_user = bar};
    if (status == LACE_OK)
        status = imatrix_collect(w, tokens.data, tokens.size, &collecting, &m, &n_windows, err);
    progress_end(bar);
    if (status == LACE_OK)
        status = imatrix_write(m, made->path, &made->rules, a->file, n_windows, a->n_context, err);
    if (status == LACE_OK)
        status = report(a, m, n_windows, err);
    imatrix_free(m);
    token_list_deinit(&tokens);
    walk_close(w);
    return status;
}

static lace_status imatrix_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    imatrix_args a = {.n_context = 512};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    output made;
    const char *const inputs[] = {words.at[0], a.file};
    TRY(output_begin(&made, a.output, a.force, inputs, 2, err));
    made.rules.check = check_readable;
    cli_catch_stop();
    progress bar;
    progress_init(&bar, &cli_stop);
    buf source;
    buf_init(&source, CLI_MAX_TEXT);
    lace_status status = file_read(a.file, &source, err);
    if (status == LACE_OK)
        status = collect(&a, &made, words.at[0], &source, &bar, err);
    progress_end(&bar);
    buf_deinit(&source);
    return status;
}

VERB(imatrix, "imatrix", "MODEL -f TEXT -o OUT [options]",
     "measure which inputs matter, for lace quantize", 1, 1,
     .description = "The file is llama.cpp's GGUF form: llama-quantize reads it too.\n",
     .examples =
         "  lace imatrix model-f16.gguf -f calibration.txt -o model.imatrix\n"
         "  lace quantize model-f16.gguf model.gguf --type q4_k_m --imatrix model.imatrix\n")
