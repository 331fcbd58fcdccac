/* lace fit: a model that meets a goal of size, speed or loss, and the curve that it lies on. */
#include "compress/fit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/file_write.h"
#include "cli/as_gguf.h"
#include "cli/cli.h"
#include "cli/fit_chart.h"
#include "cli/fit_text.h"
#include "cli/measure.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "compress/calibrate.h"

typedef struct fit_args {
    uint64_t size;
    float speed;
    float loss;
    const char *output;
    const char *calibrate;
    const char *file;
    const char *curve;
    int32_t family;
    int32_t n_calibrate;
    int32_t n_windows;
    int32_t n_tries;
    int32_t n_threads;
    bool is_plain;
    bool force;
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
     .help = "the file to write; it appears when complete (required)"},
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
    {"plain", 0, ARG_FLAG, offsetof(fit_args, is_plain),
     .help = "round each value to the nearest, without error feedback; much faster, more loss"},
    {"windows", 0, ARG_INT, offsetof(fit_args, n_windows), .low = 1, .high = INT32_MAX,
     .value = "N", .help = "windows of 512 tokens for the final measurement (default 20)"},
    {"exchanges", 0, ARG_INT, offsetof(fit_args, n_tries), .low = 0, .high = 10000, .value = "N",
     .help = "how many exchanges of types between two tensors to try and measure (default 16)"},
    {"threads", 't', ARG_INT, offsetof(fit_args, n_threads), .value = "N", .low = 1,
     .high = CLI_MAX_THREADS, .help = "threads (default: one per core)"},
    OUTPUT_FORCE_OPTION(fit_args),
};
/* clang-format on */

enum { MAX_CONTEXT = 512, N_OWN_TEXTS = 32, N_TIMED = 32, N_WARM = 4, MAX_ROUNDS = 4, N_CURVE = 9 };

/* A fit at work. */
typedef struct work {
    const fit_args *a;
    output made, curve; /* where they go */
    const char *name;   /* of the model, as it was given */
    const char *input;  /* the GGUF file that is read */
    lace_model *original;
    int32_t n_context;         /* tokens of a window */
    buf calibration, held_out; /* texts */
    progress bar;
    fit *f;
    double other_us; /* of a token outside of matrices */
    fit_dot dots[64];
    size_t n_dots;
} work;

/* ---- Speed ----------------------------------------------------------------------------------- */

/* Microseconds of one token after the other: the median of single evaluations. */
static lace_status time_token(const work *k, lace_model *of, double *out, lace_error *err)
{
    lace_session *session;
    lace_session_options o = lace_session_options_default();
    uint64_t ns[N_TIMED];
    o.n_context = N_WARM + N_TIMED;
    o.n_threads = k->a->n_threads;
    TRY(lace_session_create(of, &o, &session, err));
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
    *out = status == LACE_OK ? (double)ns[N_TIMED / 2] * 1e-3 : 0;
    return status;
}

static double speed_of(const work *k, double us)
{
    return 1e6 / (us + k->other_us);
}

/* ---- Texts ----------------------------------------------------------------------------------- */

static lace_status get_texts(work *k, lace_error *err)
{
    const fit_args *a = k->a;
    if (a->calibrate)
        TRY(measure_read_text(a->calibrate, &k->calibration, err));
    else
        TRY(fit_text_write(k->original, N_OWN_TEXTS, k->n_context, a->n_threads, &k->calibration,
                           err));
    if (a->file)
        return measure_read_text(a->file, &k->held_out, err);
    /* The last fifth is kept for the judge. */
    size_t n = k->calibration.size / 5;
    if (k->calibration.size == 0)
        return error_set(err, LACE_E_ARG, "%s: is empty", a->calibrate ? a->calibrate : "the text");
    TRY(buf_append(&k->held_out, k->calibration.data + k->calibration.size - n, n));
    k->calibration.size -= n;
    return LACE_OK;
}

/* ---- Making and judging ---------------------------------------------------------------------- */

/* The model with the types that are chosen now, in memory. */
static lace_status make(work *k, buf *made, lace_error *err)
{
    const fit_args *a = k->a;
    quantize_made *types = NULL, *blocks = NULL;
    quantize_options q = quantize_options_default();
    TRY(fit_types(k->f, &types, err));
    q.mix = fit_main_mix(k->f);
    q.n_threads = a->n_threads;
    calibrate_options c = calibrate_options_default();
    c.mix = q.mix;
    c.types = types;
    c.text = k->calibration.data;
    c.n_bytes = k->calibration.size;
    c.n_threads = a->n_threads;
    c.n_context = k->n_context;
    c.n_windows = a->n_calibrate;
    c.on_progress = progress_report;
    c.progress_user = &k->bar;
    lace_status status = LACE_OK;
    if (!a->is_plain)
        status = calibrate_model(k->input, &c, &blocks, err);
    /* What calibration does not make is only rounded. */
    if (blocks)
        quantize_made_take_blocks(types, blocks);
    q.made = types;
    buf_clear(made);
    if (status == LACE_OK)
        status = quantize_to_buf(k->input, made, &q, NULL, err);
    progress_end(&k->bar);
    quantize_made_free(types);
    quantize_made_free(blocks);
    return status;
}

typedef struct verdict {
    quality_result quality;
    double us;       /* of a token */
    char types[256]; /* that were chosen */
} verdict;

/* How many values each type got. */
static void name_types(const fit *f, char *out, size_t n_out)
{
    uint64_t n_values[DTYPE_COUNT] = {0}, total = 0;
    size_t at = 0;
    for (size_t i = 0; i < f->n_tensors; i++) {
        const fit_tensor *t = &f->tensors[i];
        n_values[t->choices[t->chosen].type] += t->t->n_values;
        total += t->t->n_values;
    }
    out[0] = 0;
    for (int i = 0; i < DTYPE_COUNT && at < n_out; i++)
        if (n_values[i])
            at += (size_t)snprintf(out + at, n_out - at, "%s%s %.0f %%", at ? ", " : "",
                                   dtype_describe((dtype)i)->name,
                                   100.0 * (double)n_values[i] / (double)total);
}

static lace_status judge(work *k, const buf *made, verdict *out, lace_error *err)
{
    lace_model *result;
    int32_t n_windows;
    measure_options o = measure_options_default();
    size_t n_tokens = 0;
    o.n_threads = k->a->n_threads;
    o.n_context = k->n_context;
    o.text_name = "the held-out text";
    o.tested_name = "the result";
    o.base_name = k->input;
    name_types(k->f, out->types, sizeof out->types);
    TRY(lace_model_open_memory(made->data, made->size, "the result", NULL, &result, err));
    lace_status status = lace_tokenize(result, k->held_out.data, k->held_out.size,
                                       LACE_TOKENIZE_ADD_SPECIAL, NULL, 0, &n_tokens, err);
    int32_t n_there = (int32_t)(n_tokens / (size_t)k->n_context);
    o.n_windows = n_there > 0 && n_there < k->a->n_windows ? n_there : k->a->n_windows;
    if (status == LACE_OK)
        status =
            measure_models(result, k->original, &k->held_out, &o, &out->quality, &n_windows, err);
    if (status == LACE_OK)
        status = time_token(k, result, &out->us, err);
    lace_model_close(result);
    return status;
}

/* ---- Goals ----------------------------------------------------------------------------------- */

static lace_status refuse_size(work *k, lace_error *err)
{
    double least, most;
    fit_range(k->f, FIT_BYTES, &least, &most);
    return error_set(err, LACE_E_LIMIT,
                     "--size %llu cannot be reached: the smallest types make a file of %.0f bytes",
                     (unsigned long long)k->a->size, least);
}

static lace_status refuse_speed(work *k, lace_error *err)
{
    double least, most;
    fit_range(k->f, FIT_TIME, &least, &most);
    return error_set(
        err, LACE_E_LIMIT,
        "--speed %g cannot be reached: the fastest types give %.1f tokens a second with "
        "these threads; the original has %.1f",
        (double)k->a->speed, speed_of(k, least), speed_of(k, k->f->original_us));
}

static lace_status refuse_loss(work *k, double kld, bool is_largest, lace_error *err)
{
    return error_set(err, LACE_E_LIMIT, "--loss %g cannot be reached: %s the KLD is %.6f",
                     (double)k->a->loss,
                     is_largest ? "with the largest types" : "after several tries", kld);
}

/* Types for a budget, and exchanges. */
static lace_status choose(work *k, fit_unit unit, double budget, double *kld, lace_error *err)
{
    lace_status status = fit_exchange(k->f, unit, budget, k->a->n_tries, kld, err);
    progress_end(&k->bar);
    return status;
}

static lace_status meet_size(work *k, buf *made, verdict *v, lace_error *err)
{
    double kld;
    if (!fit_allocate(k->f, FIT_BYTES, (double)k->a->size))
        return refuse_size(k, err);
    TRY(choose(k, FIT_BYTES, (double)k->a->size, &kld, err));
    TRY(make(k, made, err));
    if (made->size > k->a->size)
        return error_set(err, LACE_E_LIMIT, "the file has %zu bytes, more than --size %llu",
                         made->size, (unsigned long long)k->a->size);
    return judge(k, made, v, err);
}

/* What kernels take alone is not quite what they take in a model: measure, and correct. */
static lace_status meet_speed(work *k, buf *made, verdict *v, lace_error *err)
{
    double wanted = 1e6 / (double)k->a->speed, kld, factor = 1;
    for (int round = 0; round < MAX_ROUNDS; round++) {
        double budget = (wanted - k->other_us) / factor;
        if (!fit_allocate(k->f, FIT_TIME, budget))
            return refuse_speed(k, err);
        TRY(choose(k, FIT_TIME, budget, &kld, err));
        TRY(make(k, made, err));
        TRY(judge(k, made, v, err));
        if (v->us <= wanted)
            return LACE_OK;
        factor *= v->us / wanted * 1.01;
    }
    return error_set(err, LACE_E_LIMIT,
                     "--speed %g cannot be reached: %d tries came to %.1f tokens a second",
                     (double)k->a->speed, MAX_ROUNDS, 1e6 / v->us);
}

/*
 * Predicted divergence is a sum of single ones before error feedback; how much the real one is less
 * is seen after the first try. A try that keeps the loss is kept, and the next asks for less bytes.
 */
static lace_status meet_loss(work *k, buf *made, verdict *v, lace_error *err)
{
    double wanted = (double)k->a->loss, ratio = 1;
    bool has_one = false, is_largest = false;
    buf next;
    lace_status status = LACE_OK;
    buf_init(&next, SIZE_MAX / 2);
    for (int round = 0; round < MAX_ROUNDS && status == LACE_OK; round++) {
        verdict now;
        is_largest = false;
        if (!fit_allocate_loss(k->f, wanted / ratio)) {
            double least, most;
            fit_range(k->f, FIT_BYTES, &least, &most);
            fit_allocate(k->f, FIT_BYTES, most);
            is_largest = true;
        }
        fit_point p = fit_now(k->f);
        status = make(k, &next, err);
        if (status == LACE_OK)
            status = judge(k, &next, &now, err);
        if (status != LACE_OK)
            break;
        double kld = now.quality.kld.mean;
        if (kld <= wanted && (!has_one || next.size < made->size)) {
            buf taken = *made;
            *made = next;
            next = taken;
            *v = now;
            has_one = true;
        } else if (!has_one) {
            *v = now;
        }
        if ((kld <= wanted && kld >= 0.93 * wanted) || (is_largest && kld > wanted))
            break;
        /* A little below the goal, so that the next one keeps it. */
        ratio = kld / p.kld * (kld <= wanted ? 1.02 : 1.1);
    }
    buf_deinit(&next);
    if (status == LACE_OK && !has_one)
        return refuse_loss(k, v->quality.kld.mean, is_largest, err);
    return status;
}

/* ---- The curve ------------------------------------------------------------------------------- */

static void add_dot(work *k, fit_mark mark, const char *name, double n_bytes, double kld,
                    double speed)
{
    if (k->n_dots == sizeof k->dots / sizeof *k->dots || !(kld > 0))
        return;
    fit_dot *d = &k->dots[k->n_dots++];
    *d = (fit_dot){.mark = mark, .n_bytes = n_bytes, .kld = kld, .speed = speed};
    snprintf(d->name, sizeof d->name, "%s", name);
}

/* All before error feedback, each value to the nearest, so that they compare. */
static lace_status measure_curve(work *k, lace_error *err)
{
    static const char *const rivals[] = {"q2_k",   "q3_k_m", "iq4_xs", "q4_0",
                                         "q4_k_m", "q5_k_m", "q6_k",   "q8_0"};
    enum { N_RIVALS = sizeof rivals / sizeof *rivals, N_ALL = N_RIVALS + N_CURVE };
    double least, most;
    fit_range(k->f, FIT_BYTES, &least, &most);
    for (int i = 0; i < N_ALL; i++) {
        double kld, budget = least + (most - least) * i / (N_CURVE - 1);
        if (!progress_report(&k->bar, "drawing the curve", (double)i / N_ALL))
            return LACE_E_CANCELLED;
        if (i >= N_CURVE) {
            fit_point p;
            TRY(fit_mix(k->f, mix_find(rivals[i - N_CURVE]), &p, err));
            add_dot(k, FIT_RIVAL, rivals[i - N_CURVE], (double)p.n_bytes, p.kld, speed_of(k, p.us));
            continue;
        }
        fit_allocate(k->f, FIT_BYTES, budget + 1);
        fit_point p = fit_now(k->f);
        TRY(fit_measure(k->f, &kld, err));
        add_dot(k, FIT_CURVE, "fit", (double)p.n_bytes, kld, speed_of(k, p.us));
    }
    progress_end(&k->bar);
    return LACE_OK;
}

static lace_status draw(work *k, lace_error *err)
{
    buf out;
    buf_init(&out, 1 << 20);
    const char *slash = strrchr(k->name, '/');
    lace_status status = fit_chart_svg(&out, slash ? slash + 1 : k->name, k->dots, k->n_dots);
    if (status == LACE_OK)
        status = file_write_whole(k->curve.path, &k->curve.rules, out.data, out.size, err);
    buf_clear(&out);
    if (status == LACE_OK)
        status = fit_chart_text(&out, k->dots, k->n_dots);
    if (status == LACE_OK)
        status = cli_write(out.data, out.size, err);
    buf_deinit(&out);
    return status;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static lace_status report(const work *k, const buf *made, const verdict *v, lace_error *err)
{
    buf out;
    buf_init(&out, 1 << 16);
    const quality_result *q = &v->quality;
    lace_status status = buf_printf(
        &out,
        "%s: %zu bytes, KLD %.6f +- %.6f, perplexity %.4f (was %.4f), %.1f tokens a second\n"
        "types: %s\n",
        k->a->output, made->size, q->kld.mean, q->kld.error, q->perplexity.mean,
        q->perplexity_base.mean, 1e6 / v->us, v->types);
    if (status == LACE_OK)
        status = cli_write(out.data, out.size, err);
    buf_deinit(&out);
    return status;
}

/* What a token takes besides its matrices: of a model of about the size that is wanted. */
static lace_status time_rest(work *k, lace_error *err)
{
    quantize_options q = quantize_options_default();
    lace_model *sample = NULL;
    buf made;
    double us = 0, matrices = 0;
    q.mix = mix_find(k->a->family == FIT_GGUF ? "q4_k_m" : "s4");
    q.n_threads = k->a->n_threads;
    buf_init(&made, SIZE_MAX / 2);
    lace_status status = quantize_to_buf(k->input, &made, &q, NULL, err);
    if (status == LACE_OK)
        status = lace_model_open_memory(made.data, made.size, "a sample", NULL, &sample, err);
    if (status == LACE_OK)
        status = time_token(k, sample, &us, err);
    if (status == LACE_OK)
        status = fit_mix_time(k->f, q.mix, &matrices, err);
    k->other_us = us > matrices ? us - matrices : 0;
    lace_model_close(sample);
    buf_deinit(&made);
    return status;
}

static lace_status measure_choices(work *k, lace_error *err)
{
    fit_options o = fit_options_default();
    o.family = (fit_family)k->a->family;
    o.text = k->calibration.data;
    o.n_text = k->calibration.size;
    o.n_threads = k->a->n_threads;
    o.n_context = k->n_context;
    o.on_progress = progress_report;
    o.progress_user = &k->bar;
    lace_status status = fit_create(k->input, &o, &k->f, err);
    progress_end(&k->bar);
    return status == LACE_OK ? time_rest(k, err) : status;
}

static lace_status do_fit(work *k, buf *made, lace_error *err)
{
    const fit_args *a = k->a;
    verdict v;
    lace_model_info info;
    TRY(cli_open_model(k->input, NULL, &k->original, err));
    lace_model_describe(k->original, &info);
    k->n_context = info.n_context < MAX_CONTEXT ? info.n_context : MAX_CONTEXT;
    TRY(get_texts(k, err));
    TRY(measure_choices(k, err));
    if (a->curve)
        TRY(measure_curve(k, err));
    if (a->size)
        TRY(meet_size(k, made, &v, err));
    else if (a->speed > 0)
        TRY(meet_speed(k, made, &v, err));
    else
        TRY(meet_loss(k, made, &v, err));
    TRY(file_write_whole(k->made.path, &k->made.rules, made->data, made->size, err));
    if (a->curve) {
        add_dot(k, FIT_RESULT, "written", (double)made->size, v.quality.kld.mean, 1e6 / v.us);
        TRY(draw(k, err));
    }
    return report(k, made, &v, err);
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

static lace_status fit_run(const verb *v, int argc, char **argv, lace_error *err)
{
    fit_args a = {.n_calibrate = 64, .n_windows = 20, .n_tries = 16};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    if (words.count == 0)
        return args_error(v, err, "MODEL is missing");
    if ((a.size != 0) + (a.speed > 0) + (a.loss > 0) != 1)
        return args_error(v, err, "give one goal: --size, --speed or --loss");
    if (!a.output)
        return args_error(v, err, "-o OUT is missing");
    as_gguf source;
    work k = {.a = &a, .name = words.at[0]};
    TRY(begin_outputs(v, &k, err));
    cli_catch_stop();
    buf made;
    buf_init(&made, SIZE_MAX / 2);
    buf_init(&k.calibration, CLI_MAX_TEXT);
    buf_init(&k.held_out, CLI_MAX_TEXT);
    progress_init(&k.bar, &cli_stop);
    lace_status status = as_gguf_open(k.name, a.output, &k.bar, &source, err);
    k.input = source.path;
    if (status == LACE_OK)
        status = do_fit(&k, &made, err);
    progress_end(&k.bar);
    fit_free(k.f);
    lace_model_close(k.original);
    as_gguf_close(&source);
    buf_deinit(&made);
    buf_deinit(&k.calibration);
    buf_deinit(&k.held_out);
    return status;
}

const verb verb_fit = {
    .name = "fit",
    .summary = "make the best model of a size, a speed or a loss",
    .usage = "MODEL (--size BYTES | --speed N | --loss KLD) -o OUT [options]",
    .description =
        "Measures what every type would cost every tensor in bytes, in time on this machine and "
        "in\n"
        "divergence from the original, and chooses. MODEL is a GGUF file in f16, bf16 or f32, or "
        "a\n"
        "Hugging Face directory. A goal that cannot be reached is refused, with the nearest that "
        "can.\n",
    .examples = "  lace fit model-f16.gguf --size 3.0GB -o model.gguf --calibrate calib.txt\n"
                "  lace fit model-f16.gguf --speed 30 -o model.gguf\n"
                "  lace fit model-f16.gguf --loss 0.05 -o model.gguf --curve curve.svg\n",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .max_positional = 1,
    .run = fit_run,
};
