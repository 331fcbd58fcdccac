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

#include "cli/cli.h"
#include "cli/measure_bar.h"

typedef struct perplexity_args {
    const char *file, *against;
    int32_t n_context;
    int32_t n_windows; /* 0: all */
    int32_t n_batch, n_threads, kv_type, v_type;
    int32_t output; /* of OUTPUTS */
    bool exact, mmap, fast_prompts;
    const char *device, *activation_sparsity;
    cli_loras loras;
} perplexity_args;

#define OUTPUTS "text|json"
enum { OUTPUT_TEXT, OUTPUT_JSON };

/* clang-format off */
static const arg_option options[] = {
    {"file", 'f', ARG_TEXT, offsetof(perplexity_args, file), .value = "TEXT",
     .help = "the text to predict; - is standard input", .is_needed = true},
    CLI_WINDOW_OPTION(perplexity_args),
    CLI_WINDOWS_OPTION(perplexity_args, "use the first N windows (default: all whole ones)"),
    {"against", 0, ARG_TEXT, offsetof(perplexity_args, against), .value = "MODEL",
     .help = "run this model too, and measure how far the first is from it (KL divergence)"},
    {"batch", 'b', ARG_INT, offsetof(perplexity_args, n_batch), .low = 1, .high = CLI_MAX_BATCH,
     .value = "N", .help = "tokens computed together (default 512)"},
    CLI_THREADS_OPTION(perplexity_args),
    CLI_KV_TYPE_OPTION(perplexity_args, "f16"),
    CLI_EXACT_OPTION(perplexity_args),
    {"fast-prompts", 0, ARG_FLAG, offsetof(perplexity_args, fast_prompts),
     .help = "on a CUDA GPU: the first model in int8, as prompts of run, chat and serve with this option"},
    CLI_DEVICE_OPTION(perplexity_args),
    {"activation-sparsity", 0, ARG_TEXT, offsetof(perplexity_args, activation_sparsity),
     .value = "FILE",
     .help = "use these thresholds (lace sparsify) for the first model, for all its tokens as if each were computed alone"},
    CLI_MMAP_OPTION(perplexity_args),
    CLI_LORA_OPTIONS(offsetof(perplexity_args, loras)),
    {"output", 'o', ARG_CHOICE, offsetof(perplexity_args, output), .value = OUTPUTS,
     .help = "lines for people, or one JSON object (default text)"},
};
/* clang-format on */

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

static lace_status print_json(const perplexity_args *a, int32_t n_windows, const quality_result *r,
                              lace_error *err)
{
    json_t *o = json_object();
    set_estimate(o, "perplexity", "perplexity_error", r->perplexity);
    json_object_set_new(o, "tokens", json_integer((json_int_t)r->n));
    json_object_set_new(o, "windows", json_integer(n_windows));
    json_object_set_new(o, "context", json_integer(a->n_context));
    if (a->against) {
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

static lace_status print_text(const perplexity_args *a, int32_t n_windows, const quality_result *r,
                              lace_error *err)
{
    char out[1024];
    int n = snprintf(out, sizeof out, "perplexity %.4f +- %.4f (%llu tokens in %d windows of %d)\n",
                     r->perplexity.mean, r->perplexity.error, (unsigned long long)r->n, n_windows,
                     a->n_context);
    if (a->against)
        n += snprintf(out + n, sizeof out - (size_t)n,
                      "against    %.4f +- %.4f (%.160s)\n"
                      "ln(ratio)  %.6f +- %.6f\n"
                      "KLD mean   %.6f +- %.6f\n"
                      "    median %.6f\n"
                      "    99 %%   %.6f\n"
                      "    99.9 %% %.6f\n"
                      "    most   %.6f\n"
                      "same top   %.3f %% +- %.3f %%\n",
                      r->perplexity_base.mean, r->perplexity_base.error, a->against,
                      r->ln_ratio.mean, r->ln_ratio.error, r->kld.mean, r->kld.error, r->kld_median,
                      r->kld_p99, r->kld_p999, r->kld_max, 100 * r->same_top.mean,
                      100 * r->same_top.error);
    return cli_write(out, (size_t)n, err);
}

/* ---- The verb -------------------------------------------------------------------------------- */

static lace_status measure(const char *path, const perplexity_args *a, lace_model **tested,
                           lace_model **base, const buf *source, lace_error *err)
{
    lace_model_options o = lace_model_options_default();
    o.use_exact = a->exact;
    o.use_mmap = a->mmap;
    o.device = a->device;
    o.activation_sparsity = a->activation_sparsity;
    o.sparse_in_batches = true;
    o.fast_prompts = a->fast_prompts;
    TRY(cli_open_model(path, &o, tested, err));
    TRY(cli_add_loras(*tested, &a->loras, err));
    o.activation_sparsity = NULL;
    o.fast_prompts = false;
    if (a->against)
        TRY(cli_open_model(a->against, &o, base, err));
    measure_options how = {.n_context = a->n_context,
                           .n_windows = a->n_windows,
                           .n_batch = a->n_batch,
                           .n_threads = a->n_threads,
                           .kv_type = (lace_kv_type)a->kv_type,
                           .v_type = (lace_kv_type)a->v_type,
                           .text_name = a->file,
                           .tested_name = path,
                           .base_name = a->against};
    quality_result r;
    int32_t n_windows;
    TRY(measure_models_shown(*tested, *base, source, &how, &r, &n_windows, err));
    return a->output == OUTPUT_JSON ? print_json(a, n_windows, &r, err)
                                    : print_text(a, n_windows, &r, err);
}

static lace_status perplexity_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    perplexity_args a = {.n_context = 512,
                         .n_batch = 512,
                         .kv_type = LACE_KV_F16,
                         .v_type = LACE_KV_SAME,
                         .device = "auto"};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    cli_catch_stop();
    lace_model *tested = NULL, *base = NULL;
    buf source;
    buf_init(&source, CLI_MAX_TEXT);
    lace_status status = measure_read_text(a.file, &source, err);
    if (status == LACE_OK)
        status = measure(words.at[0], &a, &tested, &base, &source, err);
    lace_model_close(tested);
    lace_model_close(base);
    buf_deinit(&source);
    return status;
}

VERB(perplexity, "perplexity", "[MODEL] -f TEXT [options]",
     "measure how well a model predicts a text, alone or against another", 0, 1,
     .description =
         "By llama.cpp's method, so that numbers compare: windows of -c tokens, the second half\n"
         "scored. With --against both models run in lock-step, and the divergence of the first\n"
         "from the second is measured: that is what a compression has cost.\n",
     .examples = "  lace perplexity model.gguf -f wiki.test.raw\n"
                 "  lace perplexity model-q4_k.gguf -f wiki.test.raw --against model-f16.gguf\n"
                 "  lace perplexity model.gguf -f book.txt -c 2048 --windows 20 -o json\n")
