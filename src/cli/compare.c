/* lace compare: what smaller models cost and gain, in one table. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/measure_bar.h"
#include "cli/progress.h"

typedef struct compare_args {
    const char *file;
    int32_t n_context, n_windows, n_threads;
    const char *device;
} compare_args;

/* clang-format off */
static const arg_option options[] = {
    {"file", 'f', ARG_TEXT, offsetof(compare_args, file), .value = "TEXT",
     .help = "the text to predict", .is_needed = true},
    CLI_WINDOW_OPTION(compare_args),
    CLI_WINDOWS_OPTION(compare_args, "use the first N windows (default 20)"),
    CLI_THREADS_OPTION(compare_args),
    CLI_DEVICE_OPTION(compare_args),
};
/* clang-format on */

enum { MAX_NAME = 40 }; /* columns for the name of a file */

/* Tokens a second, one after the other. */
static lace_status time_decode(lace_model *model, const compare_args *a, double *out,
                               lace_error *err)
{
    double us;
    progress bar;
    progress_init(&bar, &cli_stop);
    progress_show(&bar, "timing");
    lace_status status = measure_token_time(model, a->n_threads, &us, err);
    progress_end(&bar);
    if (status == LACE_OK)
        *out = 1e6 / us;
    return status;
}

/* Measure a model, and append its line; `width` is that of the first column. */
static lace_status add_row(const char *path, lace_model *base, const buf *source,
                           const compare_args *a, int width, buf *row, lace_error *err)
{
    lace_model *model;
    lace_model_options o = lace_model_options_default();
    o.device = a->device;
    TRY(cli_open_model(path, &o, &model, err));
    lace_model_info info;
    quality_result r = {0};
    int32_t n_windows = 0;
    double speed = 0;
    measure_options m = measure_options_default();
    m.n_context = a->n_context;
    m.n_windows = a->n_windows;
    m.n_threads = a->n_threads;
    m.text_name = a->file;
    m.tested_name = path;
    m.base_name = "the first model";
    lace_model_describe(model, &info);
    lace_status status = measure_models_shown(model, base, source, &m, &r, &n_windows, err);
    if (status == LACE_OK)
        status = time_decode(model, a, &speed, err);
    if (status == LACE_OK) {
        char kld[32] = "-", top[32] = "-";
        if (base) {
            snprintf(kld, sizeof kld, "%.5f", r.kld.mean);
            snprintf(top, sizeof top, "%.1f %%", 100 * r.same_top.mean);
        }
        const char *slash = strrchr(path, '/');
        status =
            buf_printf(row, "%-*.*s %-8s %13llu %6.2f %11.4f %9s %8s %9.1f\n", width, MAX_NAME,
                       slash ? slash + 1 : path, info.type, (unsigned long long)info.weight_bytes,
                       8 * (double)info.weight_bytes / (double)info.n_parameters, r.perplexity.mean,
                       kld, top, speed);
    }
    lace_model_close(model);
    return status;
}

/* Columns for the names of the files. */
static int name_width(const positional *words)
{
    size_t width = strlen("model");
    for (int i = 0; i < words->count; i++) {
        const char *slash = strrchr(words->at[i], '/');
        size_t n = strlen(slash ? slash + 1 : words->at[i]);
        width = n > width ? n : width;
    }
    return width < MAX_NAME ? (int)width : MAX_NAME;
}

/* A line of the table is printed as soon as it is known. */
static lace_status compare_models(const positional *words, const buf *source, const compare_args *a,
                                  lace_error *err)
{
    lace_model *base;
    lace_model_options o = lace_model_options_default();
    o.device = a->device;
    buf line;
    int width = name_width(words);
    TRY(cli_open_model(words->at[0], &o, &base, err));
    buf_init(&line, 1 << 16);
    lace_status status =
        buf_printf(&line, "%-*s %-8s %13s %6s %11s %9s %8s %9s\n", width, "model", "type", "bytes",
                   "bits", "perplexity", "KLD", "same top", "tokens/s");
    for (int i = 0; i < words->count && status == LACE_OK; i++) {
        status = add_row(words->at[i], i ? base : NULL, source, a, width, &line, err);
        if (status == LACE_OK)
            status = cli_write(line.data, line.size, err);
        line.size = 0;
    }
    buf_deinit(&line);
    lace_model_close(base);
    return status;
}

static lace_status compare_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    compare_args a = {.n_context = 512, .n_windows = 20, .device = "auto"};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    if (words.count < 2)
        return args_error(v, err, "two models or more are needed");
    cli_catch_stop();
    buf source;
    buf_init(&source, CLI_MAX_TEXT);
    lace_status status = measure_read_text(a.file, &source, err);
    if (status == LACE_OK)
        status = compare_models(&words, &source, &a, err);
    buf_deinit(&source);
    return status;
}

VERB(compare, "compare", "BASE MODEL... -f TEXT [options]",
     "show size, quality and speed of models in one table", 0, 8,
     .description = "Each model's predictions are compared with those of BASE. Bytes and bits are\n"
                    "those of the tensors; speed is that of one token after the other.\n",
     .examples = "  lace compare model-f16.gguf model-q4.gguf model-s4.gguf -f test.txt\n")
