/* Meeting a goal: choose types, make the model, measure it, and correct. */
#include "compress/fit_goal.h"

#include <stdio.h>
#include <string.h>

#include "compress/calibrate.h"
#include "compress/fit_impl.h"
#include "compress/fit_text.h"

enum { MAX_CONTEXT = 512, N_OWN_TEXTS = 32, MAX_ROUNDS = 4, N_CURVE = 9, MAX_TEXT = 256 << 20 };

/* A fit at work. */
typedef struct work {
    const fit_goal_options *o;
    int32_t n_context; /* tokens of a window */
    buf own_text;      /* if none was given */
    text calibration, held_out;
    fit *f;
    double other_us; /* of a token outside of matrices */
} work;

/* A model that was made, measured. */
typedef struct verdict {
    quality_result quality;
    double us; /* of a token */
    uint64_t n_values[DTYPE_COUNT];
} verdict;

fit_goal_options fit_goal_options_default(void)
{
    return (fit_goal_options){.n_calibrate = 64, .n_windows = 20, .n_tries = 16};
}

static double speed_of(const work *k, double us)
{
    return 1e6 / (us + k->other_us);
}

/* ---- Texts ----------------------------------------------------------------------------------- */

static lace_status get_texts(work *k, lace_error *err)
{
    const fit_goal_options *o = k->o;
    if (!o->calibration)
        TRY(fit_text_write(o->original, N_OWN_TEXTS, k->n_context, o->n_threads,
                           o->watch.on_progress, o->watch.user, &k->own_text, err));
    const buf *all = o->calibration ? o->calibration : &k->own_text;
    k->calibration = (text){all->data, all->size};
    if (o->held_out) {
        k->held_out = (text){o->held_out->data, o->held_out->size};
        return LACE_OK;
    }
    if (k->calibration.size == 0)
        return error_set(err, LACE_E_ARG, "%s: is empty",
                         o->calibration_name ? o->calibration_name : "the text");
    /* The last fifth is kept for the judge. */
    size_t n = k->calibration.size / 5;
    k->calibration.size -= n;
    k->held_out = (text){k->calibration.data + k->calibration.size, n};
    return LACE_OK;
}

/* ---- Making and judging ---------------------------------------------------------------------- */

/* The model with the types that are chosen now, in memory. */
static lace_status make(work *k, buf *made, lace_error *err)
{
    const fit_goal_options *o = k->o;
    quantize_made *types = NULL, *blocks = NULL;
    quantize_options q = quantize_options_default();
    TRY(fit_types(k->f, &types, err));
    q.mix = fit_main_mix(k->f);
    q.n_threads = o->n_threads;
    calibrate_options c = calibrate_options_default();
    c.mix = q.mix;
    c.types = types;
    c.text = k->calibration.data;
    c.n_bytes = k->calibration.size;
    c.n_threads = o->n_threads;
    c.n_context = k->n_context;
    c.n_windows = o->n_calibrate;
    c.device = o->device;
    c.on_progress = o->watch.on_progress;
    c.progress_user = o->watch.user;
    lace_status status = LACE_OK;
    if (!o->is_plain)
        status = calibrate_model(o->input, &c, &blocks, err);
    /* What calibration does not make is only rounded. */
    if (blocks)
        quantize_made_take_blocks(types, blocks);
    q.made = types;
    buf_clear(made);
    if (status == LACE_OK)
        status = quantize_to_buf(o->input, made, &q, NULL, err);
    quantize_made_free(types);
    quantize_made_free(blocks);
    return status;
}

static lace_status judge(work *k, const buf *made, verdict *out, lace_error *err)
{
    lace_model *result;
    int32_t n_windows;
    measure_options o = measure_options_default();
    size_t n_tokens = 0;
    o.n_threads = k->o->n_threads;
    o.n_context = k->n_context;
    o.text_name = "the held-out text";
    o.tested_name = "the result";
    o.base_name = k->o->input;
    o.watch = k->o->watch;
    choices_count_values(&k->f->list, out->n_values);
    TRY(lace_model_open_memory(made->data, made->size, "the result", NULL, &result, err));
    lace_status status = lace_tokenize(result, k->held_out.data, k->held_out.size,
                                       LACE_TOKENIZE_ADD_SPECIAL, NULL, 0, &n_tokens, err);
    int32_t n_there = (int32_t)(n_tokens / (size_t)k->n_context);
    o.n_windows = n_there > 0 && n_there < k->o->n_windows ? n_there : k->o->n_windows;
    if (status == LACE_OK)
        status =
            measure_models(result, k->o->original, k->held_out, &o, &out->quality, &n_windows, err);
    if (status == LACE_OK)
        status = measure_token_time(result, k->o->n_threads, &out->us, err);
    lace_model_close(result);
    return status;
}

/* ---- Goals ----------------------------------------------------------------------------------- */

static lace_status refuse_size(work *k, lace_error *err)
{
    double least, most;
    choices_range(&k->f->list, CHOICE_BYTES, &least, &most);
    return error_set(err, LACE_E_LIMIT,
                     "--size %llu cannot be reached: the smallest types make a file of %.0f bytes",
                     (unsigned long long)k->o->size, least);
}

static lace_status refuse_speed(work *k, lace_error *err)
{
    double least, most;
    choices_range(&k->f->list, CHOICE_TIME, &least, &most);
    return error_set(
        err, LACE_E_LIMIT,
        "--speed %g cannot be reached: the fastest types give %.1f tokens a second with "
        "these threads; the original has %.1f",
        k->o->speed, speed_of(k, least), speed_of(k, k->f->original_us));
}

static lace_status refuse_loss(work *k, double kld, bool is_largest, lace_error *err)
{
    return error_set(err, LACE_E_LIMIT, "--loss %g cannot be reached: %s the KLD is %.6f",
                     k->o->loss, is_largest ? "with the largest types" : "after several tries",
                     kld);
}

static lace_status meet_size(work *k, buf *made, verdict *v, lace_error *err)
{
    double kld;
    if (!choices_allocate(&k->f->list, CHOICE_BYTES, (double)k->o->size))
        return refuse_size(k, err);
    TRY(fit_exchange(k->f, CHOICE_BYTES, (double)k->o->size, k->o->n_tries, &kld, err));
    TRY(make(k, made, err));
    if (made->size > k->o->size)
        return error_set(err, LACE_E_LIMIT, "the file has %zu bytes, more than --size %llu",
                         made->size, (unsigned long long)k->o->size);
    return judge(k, made, v, err);
}

/* What kernels take alone is not quite what they take in a model: measure, and correct. */
static lace_status meet_speed(work *k, buf *made, verdict *v, lace_error *err)
{
    double wanted = 1e6 / k->o->speed, kld, factor = 1;
    for (int round = 0; round < MAX_ROUNDS; round++) {
        double budget = (wanted - k->other_us) / factor;
        if (!choices_allocate(&k->f->list, CHOICE_TIME, budget))
            return refuse_speed(k, err);
        TRY(fit_exchange(k->f, CHOICE_TIME, budget, k->o->n_tries, &kld, err));
        TRY(make(k, made, err));
        TRY(judge(k, made, v, err));
        if (v->us <= wanted)
            return LACE_OK;
        factor *= v->us / wanted * 1.01;
    }
    return error_set(err, LACE_E_LIMIT,
                     "--speed %g cannot be reached: %d tries came to %.1f tokens a second",
                     k->o->speed, MAX_ROUNDS, 1e6 / v->us);
}

/*
 * Predicted divergence is a sum of single ones before error feedback; how much the real one is less
 * is seen after the first try. A try that keeps the loss is kept, and the next asks for less bytes.
 */
static lace_status meet_loss(work *k, buf *made, verdict *v, lace_error *err)
{
    double wanted = k->o->loss, ratio = 1;
    bool has_one = false, is_largest = false;
    buf next;
    lace_status status = LACE_OK;
    buf_init(&next, SIZE_MAX / 2);
    for (int round = 0; round < MAX_ROUNDS && status == LACE_OK; round++) {
        verdict now;
        is_largest = false;
        if (!choices_allocate_loss(&k->f->list, wanted / ratio)) {
            double least, most;
            choices_range(&k->f->list, CHOICE_BYTES, &least, &most);
            choices_allocate(&k->f->list, CHOICE_BYTES, most);
            is_largest = true;
        }
        choice_point p = choices_now(&k->f->list);
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

static void add_dot(fit_result *r, fit_mark mark, const char *name, double n_bytes, double kld,
                    double speed)
{
    if (r->n_dots == FIT_MAX_DOTS || !(kld > 0))
        return;
    fit_dot *d = &r->dots[r->n_dots++];
    *d = (fit_dot){.mark = mark, .n_bytes = n_bytes, .kld = kld, .speed = speed};
    snprintf(d->name, sizeof d->name, "%s", name);
}

/* All before error feedback, each value to the nearest, so that they compare. */
static lace_status measure_curve(work *k, fit_result *out, lace_error *err)
{
    static const char *const rivals[] = {"q2_k",   "q3_k_m", "iq4_xs", "q4_0",
                                         "q4_k_m", "q5_k_m", "q6_k",   "q8_0"};
    enum { N_RIVALS = sizeof rivals / sizeof *rivals, N_ALL = N_RIVALS + N_CURVE };
    double least, most;
    choices_range(&k->f->list, CHOICE_BYTES, &least, &most);
    for (int i = 0; i < N_ALL; i++) {
        double kld, budget = least + (most - least) * i / (N_CURVE - 1);
        TRY(fit_advance(k->f, "drawing the curve", (double)i / N_ALL, err));
        if (i >= N_CURVE) {
            choice_point p;
            TRY(fit_mix(k->f, mix_find(rivals[i - N_CURVE]), &p, err));
            add_dot(out, FIT_RIVAL, rivals[i - N_CURVE], (double)p.n_bytes, p.kld,
                    speed_of(k, p.us));
            continue;
        }
        choices_allocate(&k->f->list, CHOICE_BYTES, budget + 1);
        choice_point p = choices_now(&k->f->list);
        TRY(fit_measure(k->f, &kld, err));
        add_dot(out, FIT_CURVE, "fit", (double)p.n_bytes, kld, speed_of(k, p.us));
    }
    return LACE_OK;
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* What a token takes besides its matrices: of a model of about the size that is wanted. */
static lace_status time_rest(work *k, lace_error *err)
{
    quantize_options q = quantize_options_default();
    lace_model *sample = NULL;
    buf made;
    double us = 0, matrices = 0;
    q.mix = fit_rest_mix(k->f);
    q.n_threads = k->o->n_threads;
    buf_init(&made, SIZE_MAX / 2);
    lace_status status = quantize_to_buf(k->o->input, &made, &q, NULL, err);
    if (status == LACE_OK)
        status = lace_model_open_memory(made.data, made.size, "a sample", NULL, &sample, err);
    if (status == LACE_OK)
        status = measure_token_time(sample, k->o->n_threads, &us, err);
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
    o.family = k->o->family;
    o.text = k->calibration.data;
    o.n_text = k->calibration.size;
    o.n_threads = k->o->n_threads;
    o.n_context = k->n_context;
    o.on_progress = k->o->watch.on_progress;
    o.progress_user = k->o->watch.user;
    TRY(fit_create(k->o->input, &o, &k->f, err));
    return time_rest(k, err);
}

static lace_status meet(work *k, fit_result *out, lace_error *err)
{
    lace_model_info info;
    verdict v = {0};
    lace_model_describe(k->o->original, &info);
    k->n_context = info.n_context < MAX_CONTEXT ? info.n_context : MAX_CONTEXT;
    TRY(get_texts(k, err));
    TRY(measure_choices(k, err));
    if (k->o->wants_curve)
        TRY(measure_curve(k, out, err));
    if (k->o->size)
        TRY(meet_size(k, &out->made, &v, err));
    else if (k->o->speed > 0)
        TRY(meet_speed(k, &out->made, &v, err));
    else
        TRY(meet_loss(k, &out->made, &v, err));
    out->quality = v.quality;
    out->us = v.us;
    memcpy(out->n_values, v.n_values, sizeof out->n_values);
    if (k->o->wants_curve)
        add_dot(out, FIT_RESULT, "written", (double)out->made.size, v.quality.kld.mean, 1e6 / v.us);
    return LACE_OK;
}

lace_status fit_meet(const fit_goal_options *options, fit_result *out, lace_error *err)
{
    work k = {.o = options};
    *out = (fit_result){0};
    buf_init(&out->made, SIZE_MAX / 2);
    buf_init(&k.own_text, MAX_TEXT);
    lace_status status = meet(&k, out, err);
    fit_free(k.f);
    buf_deinit(&k.own_text);
    return status;
}
