/* lace quantize: a smaller file of a model. */
#include "compress/calibrate.h"

#include <string.h>

#include "base/file.h"
#include "cli/as_gguf.h"
#include "cli/cli.h"
#include "cli/progress.h"

typedef struct quantize_args {
    const char *type;
    const char *imatrix;
    const char *calibrate;
    uint64_t size;
    int32_t n_windows;
    bool requantize;
    int32_t n_threads;
} quantize_args;

/* clang-format off */
static const arg_option options[] = {
    {"type", 't', ARG_TEXT, offsetof(quantize_args, type), .value = "TYPE",
     .help = "of most matrices: q8_0 q6_k q5_k_m q5_k_s q5_1 q5_0 q4_k_m q4_k_s q4_1 "
             "q4_0 iq4_nl iq4_xs mxfp4 q3_k_l q3_k_m q3_k_s q2_k q2_k_s; lace's own: s8 s6 s5 s4 s3 s2 t5 t4 t3 t2"},
    {"imatrix", 0, ARG_TEXT, offsetof(quantize_args, imatrix), .value = "FILE",
     .help = "which inputs matter: a file of lace imatrix or llama-imatrix"},
    {"calibrate", 0, ARG_TEXT, offsetof(quantize_args, calibrate), .value = "TEXT",
     .help = "let the model read this text, and change its predictions least; slow, much better"},
    {"size", 0, ARG_BYTES, offsetof(quantize_args, size), .value = "BYTES",
     .help = "with --calibrate: the size of the file; each matrix gets the type, s2 to s6 or "
             "t2 to t5, that its share of the predictions is worth"},
    {"windows", 0, ARG_INT, offsetof(quantize_args, n_windows), .value = "N", .low = 1,
     .high = INT32_MAX,
     .help = "with --calibrate: windows of 512 tokens to read (default 128; 32 for large models)"},
    {"requantize", 0, ARG_FLAG, offsetof(quantize_args, requantize),
     .help = "also take a model that is quantized already"},
    {"threads", 0, ARG_INT, offsetof(quantize_args, n_threads), .value = "N", .low = 1,
     .high = CLI_MAX_THREADS, .help = "default: one per core"},
};
/* clang-format on */

static lace_status report(const char *path, const quantize_args *a, const quantize_result *r,
                          lace_error *err)
{
    char before[32], after[32];
    buf line;
    buf_init(&line, 8192);
    double bits = 8 * (double)r->bytes_after / (double)r->n_parameters;
    lace_status status = buf_printf(
        &line, "%s: %s to %s in tensors, %.2f bits a weight, %zu of %zu tensors quantized\n", path,
        cli_format_bytes(r->bytes_before, before), cli_format_bytes(r->bytes_after, after), bits,
        r->n_quantized, r->n_tensors);
    if (status == LACE_OK && r->n_without_importance > 0)
        status = buf_printf(&line, "%s does not know %zu of them\n", a->imatrix,
                            r->n_without_importance);
    if (status == LACE_OK)
        status = cli_write(line.data, line.size, err);
    buf_deinit(&line);
    return status;
}

static lace_status calibrate(const quantize_args *a, const char *input, const quantize_options *q,
                             quantize_made **out, lace_error *err)
{
    calibrate_options o = calibrate_options_default();
    buf source;
    buf_init(&source, CLI_MAX_TEXT);
    lace_status status = file_read(a->calibrate, &source, err);
    o.mix = q->mix;
    o.size = a->size;
    o.text = source.data ? source.data : "";
    o.n_bytes = source.size;
    o.n_threads = a->n_threads;
    if (a->n_windows)
        o.n_windows = a->n_windows;
    o.on_progress = q->on_progress;
    o.progress_user = q->progress_user;
    if (status == LACE_OK)
        status = calibrate_model(input, &o, out, err);
    buf_deinit(&source);
    return status;
}

static lace_status quantize_run(const verb *v, int argc, char **argv, lace_error *err)
{
    quantize_args a = {0};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    if (words.count < 2)
        return args_error(v, err, "%s is missing", words.count ? "OUT" : "IN");
    if (a.type && words.count == 3)
        return args_error(v, err, "--type and the argument \"%.40s\" exclude each other",
                          words.at[2]);
    if (!a.type)
        a.type = words.at[2];
    if (!a.type)
        return args_error(v, err, "TYPE is missing");
    if (a.size && !a.calibrate)
        return args_error(v, err, "--size needs --calibrate TEXT");
    if (a.calibrate && a.imatrix)
        return args_error(v, err, "--calibrate and --imatrix exclude each other");
    quantize_options o = quantize_options_default();
    o.mix = mix_find(a.type);
    if (!o.mix)
        return args_error(v, err, "--type %.40s: no such type", a.type);
    imatrix *importance = NULL;
    if (a.imatrix)
        TRY(imatrix_read(a.imatrix, &importance, err));
    cli_catch_stop();
    progress bar;
    progress_init(&bar, &cli_stop);
    o.importance = importance;
    o.importance_path = a.imatrix;
    o.allow_requantize = a.requantize;
    o.n_threads = a.n_threads;
    o.on_progress = progress_report;
    o.progress_user = &bar;
    quantize_result result;
    quantize_made *made = NULL;
    lace_status status = LACE_OK;
    as_gguf source = {.fd = -1};
    const char *input = words.at[0];
    if (a.calibrate) {
        status = as_gguf_open(input, words.at[1], &bar, &source, err);
        input = source.path;
    }
    if (a.calibrate && status == LACE_OK)
        status = calibrate(&a, input, &o, &made, err);
    o.made = made;
    if (status == LACE_OK)
        status = quantize_model(input, words.at[1], &o, &result, err);
    progress_end(&bar);
    as_gguf_close(&source);
    quantize_made_free(made);
    imatrix_free(importance);
    return status == LACE_OK ? report(words.at[1], &a, &result, err) : status;
}

const verb verb_quantize = {
    .name = "quantize",
    .summary = "make a model smaller: fewer bits for each weight",
    .usage = "IN OUT TYPE [options]",
    .description =
        "IN is a GGUF file or a Hugging Face directory. OUT appears when it is complete.\n"
        "TYPE, in small or capital letters, may also stand behind --type.\n"
        "lace perplexity OUT -f TEXT --against IN says what it has cost.\n",
    .examples =
        "  lace quantize model-f16.gguf model-q4.gguf --type q4_k_m\n"
        "  lace quantize models/smollm2 smollm2.gguf --type q6_k --imatrix smollm2.imatrix\n",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .max_positional = 3,
    .run = quantize_run,
};
