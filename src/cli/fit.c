/* lace fit: a model that meets a goal of size, speed or loss, and the curve that it lies on. */
#include "compress/fit_goal.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/file_write.h"
#include "cli/as_gguf.h"
#include "cli/cli.h"
#include "cli/fit_chart.h"
#include "cli/measure_bar.h"
#include "cli/output.h"
#include "cli/progress.h"

typedef struct fit_args {
    uint64_t size;
    float speed, loss;
    const char *output, *calibrate, *file, *curve;
    int32_t family, n_calibrate, n_windows, n_tries, n_threads;
    const char *device;
    bool is_plain, force;
} fit_args;

/* clang-format off */
static const arg_option options[] = {
    {.kind = ARG_HEADING, .help = "The goal, one of"},
    {"size", 0, ARG_BYTES, offsetof(fit_args, size), .value = "BYTES",
     .help = "size of the file, like 3.0GB, 12MB or 800M: the least loss that fits"},
    {"speed", 0, ARG_FLOAT, offsetof(fit_args, speed), .value = "N", .low = 0, .high = 1e9,
     .is_low_open = true, .help = "tokens a second on this machine: the least loss at that speed"},
    {"loss", 0, ARG_FLOAT, offsetof(fit_args, loss), .value = "KLD", .low = 0, .high = 100,
     .is_low_open = true, .help = "KL divergence from the original: the smallest file that stays below it"},
    {.kind = ARG_HEADING, .help = "Files"},
    {"output", 'o', ARG_TEXT, offsetof(fit_args, output), .value = "OUT",
     .help = "the file to write; it appears when complete", .is_needed = true},
    {"curve", 0, ARG_TEXT, offsetof(fit_args, curve), .value = "FILE.svg",
     .help = "draw size, loss and speed, with GGUF's types on the same axes; also here, in text"},
    {"calibrate", 0, ARG_TEXT, offsetof(fit_args, calibrate), .value = "TEXT",
     .help = "text to choose and to calibrate on (default: the model writes one)"},
    {"file", 'f', ARG_TEXT, offsetof(fit_args, file), .value = "TEXT",
     .help = "held-out text on which the loss is measured (default: the end of the other text)"},
    {.kind = ARG_HEADING, .help = "Work"},
    {"types", 0, ARG_CHOICE, offsetof(fit_args, family), .value = "lace|quick|gguf|all",
     .help = "to choose from: lace (default): s2 to s8, t2 to t5; quick: s2 to s8; files of "
             "gguf are read by llama.cpp too"},
    {"calibrate-windows", 0, ARG_INT, offsetof(fit_args, n_calibrate), .low = 1,
     .high = INT32_MAX, .value = "N", .help = "windows of 512 tokens for error feedback (default 64)"},
    {"device", 0, ARG_TEXT, offsetof(fit_args, device), .value = "cpu|auto|cuda[:N]|ref",
     .help = "where inputs are summed up and the sums factorized, for error feedback (default cpu)"},
    {"plain", 0, ARG_FLAG, offsetof(fit_args, is_plain),
     .help = "round each value to the nearest, without error feedback; much faster, more loss"},
    CLI_WINDOWS_OPTION(fit_args, "windows of 512 tokens for the final measurement (default 20)"),
    {"exchanges", 0, ARG_INT, offsetof(fit_args, n_tries), .low = 0, .high = 10000, .value = "N",
     .help = "how many exchanges of types between two tensors to try and measure (default 16)"},
    CLI_THREADS_OPTION(fit_args),
    OUTPUT_FORCE_OPTION(fit_args),
};
/* clang-format on */

/* A fit at work. */
typedef struct work {
    const fit_args *a;
    output made, curve; /* where they go */
    const char *name;   /* of the model, as it was given */
    const char *input;  /* the GGUF file that is read */
    lace_model *original;
    buf calibration, held_out; /* texts, if files are given */
    progress bar;
} work;

/* How many values each type got: "s3 40 %, s4 60 %". */
static void name_types(const fit_result *r, char *out, size_t n_out)
{
    uint64_t total = 0;
    size_t at = 0;
    for (int i = 0; i < DTYPE_COUNT; i++)
        total += r->n_values[i];
    out[0] = 0;
    for (int i = 0; i < DTYPE_COUNT && at < n_out; i++)
        if (r->n_values[i])
            at += (size_t)snprintf(out + at, n_out - at, "%s%s %.0f %%", at ? ", " : "",
                                   dtype_describe((dtype)i)->name,
                                   100.0 * (double)r->n_values[i] / (double)total);
}

static lace_status draw(work *k, const fit_result *r, lace_error *err)
{
    buf out;
    buf_init(&out, 1 << 20);
    const char *slash = strrchr(k->name, '/');
    lace_status status = fit_chart_svg(&out, slash ? slash + 1 : k->name, r->dots, r->n_dots);
    if (status == LACE_OK)
        status = file_write_whole(k->curve.path, &k->curve.rules, out.data, out.size, err);
    buf_clear(&out);
    if (status == LACE_OK)
        status = fit_chart_text(&out, r->dots, r->n_dots);
    if (status == LACE_OK)
        status = cli_write(out.data, out.size, err);
    buf_deinit(&out);
    return status;
}

static lace_status report(const work *k, const fit_result *r, lace_error *err)
{
    char types[256];
    buf out;
    buf_init(&out, 1 << 16);
    const quality_result *q = &r->quality;
    name_types(r, types, sizeof types);
    lace_status status = buf_printf(
        &out,
        "%s: %zu bytes, KLD %.6f +- %.6f, perplexity %.4f (was %.4f), %.1f tokens a second\n"
        "types: %s\n",
        k->a->output, r->made.size, q->kld.mean, q->kld.error, q->perplexity.mean,
        q->perplexity_base.mean, 1e6 / r->us, types);
    if (status == LACE_OK)
        status = cli_write(out.data, out.size, err);
    buf_deinit(&out);
    return status;
}

/* Write what was made, and say how it is. */
static lace_status hand_out(work *k, const fit_result *r, lace_error *err)
{
    TRY(file_write_whole(k->made.path, &k->made.rules, r->made.data, r->made.size, err));
    if (k->a->curve)
        TRY(draw(k, r, err));
    return report(k, r, err);
}

static lace_status do_fit(work *k, lace_error *err)
{
    const fit_args *a = k->a;
    fit_result result;
    TRY(cli_open_model(k->input, NULL, &k->original, err));
    if (a->calibrate)
        TRY(measure_read_text(a->calibrate, &k->calibration, err));
    if (a->file)
        TRY(measure_read_text(a->file, &k->held_out, err));
    fit_goal_options o = {.size = a->size,
                          .speed = (double)a->speed,
                          .loss = (double)a->loss,
                          .input = k->input,
                          .original = k->original,
                          .calibration = a->calibrate ? &k->calibration : NULL,
                          .calibration_name = a->calibrate,
                          .held_out = a->file ? &k->held_out : NULL,
                          .family = (fit_family)a->family,
                          .n_calibrate = a->n_calibrate,
                          .device = a->device,
                          .n_windows = a->n_windows,
                          .n_tries = a->n_tries,
                          .n_threads = a->n_threads,
                          .is_plain = a->is_plain,
                          .wants_curve = a->curve != NULL,
                          .watch = measure_bar_watch(&k->bar)};
    lace_status status = fit_meet(&o, &result, err);
    progress_end(&k->bar);
    if (status == LACE_OK)
        status = hand_out(k, &result, err);
    buf_deinit(&result.made);
    return status;
}

/* Both files are refused now, and not after the work. */
static lace_status begin_outputs(const verb *v, work *k, lace_error *err)
{
    const fit_args *a = k->a;
    const char *const inputs[] = {k->name, a->calibrate, a->file};
    TRY(output_begin(&k->made, a->output, a->force, inputs, 3, err));
    output_must_run(&k->made, false);
    if (!a->curve)
        return LACE_OK;
    size_t n = strlen(a->curve);
    if (n < 4 || strcmp(a->curve + n - 4, ".svg") != 0)
        return args_error(v, err,
                          "--curve %.200s: the curve is an SVG file; its name must end in .svg",
                          a->curve);
    if (output_is_same(a->curve, a->output))
        return args_error(v, err, "--curve and -o name the same file");
    return output_begin(&k->curve, a->curve, a->force, inputs, 3, err);
}

static lace_status fit_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    fit_args a = {.n_calibrate = 64, .n_windows = 20, .n_tries = 16};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    if ((a.size != 0) + (a.speed > 0) + (a.loss > 0) != 1)
        return args_error(v, err, "give one goal: --size, --speed or --loss");
    as_gguf source;
    work k = {.a = &a, .name = words.at[0]};
    TRY(begin_outputs(v, &k, err));
    cli_catch_stop();
    buf_init(&k.calibration, CLI_MAX_TEXT);
    buf_init(&k.held_out, CLI_MAX_TEXT);
    progress_init(&k.bar, &cli_stop);
    lace_status status = as_gguf_open(k.name, a.output, &k.bar, &source, err);
    k.input = source.path;
    if (status == LACE_OK)
        status = do_fit(&k, err);
    progress_end(&k.bar);
    lace_model_close(k.original);
    as_gguf_close(&source);
    buf_deinit(&k.calibration);
    buf_deinit(&k.held_out);
    return status;
}

VERB(fit, "fit", "MODEL (--size BYTES | --speed N | --loss KLD) -o OUT [options]",
     "make the best model of a size, a speed or a loss", 1, 1,
     .description =
         "Measures what every type would cost every tensor in bytes, in time on this machine and "
         "in\n"
         "divergence from the original, and chooses. MODEL is a GGUF file in f16, bf16 or f32, or "
         "a\n"
         "Hugging Face directory. A goal that cannot be reached is refused, with the nearest that "
         "can.\n",
     .examples = "  lace fit model-f16.gguf --size 3.0GB -o model.gguf --calibrate calib.txt\n"
                 "  lace fit model-f16.gguf --speed 30 -o model.gguf\n"
                 "  lace fit model-f16.gguf --loss 0.05 -o model.gguf --curve curve.svg\n")
