/* Activation sparsity: thresholds from sizes, their text, and what models compute with them. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "compress/sparsify.h"
#include "formats/weights.h"
#include "data.h"
#include "command.h"
#include "tap.h"
#include "tiny_model.h"

/* ---- Sizes ----------------------------------------------------------------------------------- */

static void a_threshold_leaves_out_the_share_asked_for(void)
{
    sizes *s = calloc(1, sizeof *s);
    for (int i = 1; i <= 1000; i++)
        sizes_add(s, i % 2 ? (float)i : (float)-i);
    for (int share = 0; share <= 90; share += 10) {
        float t = sizes_threshold(s, share / 100.0);
        double found = sizes_share(s, t);
        /* Sizes are counted in steps of 1/256, and no more goes than was asked for. */
        CHECK(found <= share / 100.0 && found >= share / 100.0 - 0.005);
        double energy = 0;
        for (int i = 1; i <= 1000; i++)
            energy += (float)i < t ? (double)i * i / 1000 : 0;
        CHECK(fabs(sizes_energy(s, t) - energy) <= 0.005 * energy);
    }
    CHECK(sizes_threshold(s, 0) == 0 || sizes_share(s, sizes_threshold(s, 0)) == 0);
    free(s);
}

static void zeros_and_infinities_are_counted_too(void)
{
    sizes *s = calloc(1, sizeof *s);
    CHECK(sizes_threshold(s, 0.5) == 0);
    for (int i = 0; i < 10; i++)
        sizes_add(s, i < 4 ? 0 : INFINITY);
    CHECK(sizes_share(s, 1) == 0.4);
    CHECK(isfinite(sizes_threshold(s, 0.9)));
    free(s);
}

/* ---- The text -------------------------------------------------------------------------------- */

static tiny_options tiny_shape(void)
{
    tiny_options o = tiny_options_default();
    o.n_embd = 64;
    o.n_heads = 2;
    o.n_ff = 160;
    return o;
}

static buf tiny; /* the model of the cases below */

static model *open_model(lace_error *err)
{
    weights *files;
    model *m = NULL;
    if (weights_open_memory((span){(const uint8_t *)tiny.data, tiny.size}, "tiny", &files, err) !=
            LACE_OK ||
        model_create(files, "cpu", &(device_options){.level = cpu_level_detect()}, &m, err) !=
            LACE_OK ||
        model_use_sparsity(m, false, err) != LACE_OK) {
        model_free(m);
        return NULL;
    }
    return m;
}

/* The tiny model's text with one threshold for all inputs; the caller frees. */
static char *text_with(float threshold)
{
    lace_error err;
    model *m = open_model(&err);
    buf out;
    buf_init(&out, 1 << 16);
    for (int32_t i = 0; i < m->config.n_layers * SPARSITY_INPUTS; i++)
        m->sparsities[i].threshold = threshold;
    CHECK(sparsity_write(m, &(sparsity_note){0.4, 0.01}, &out, &err) == LACE_OK);
    char *made = strndup(out.data, out.size);
    buf_deinit(&out);
    model_free(m);
    return made;
}

static lace_status read_text(const char *source, lace_error *err)
{
    model *m = open_model(err);
    lace_status status = sparsity_read(m, (span){(const uint8_t *)source, strlen(source)}, err);
    model_free(m);
    return status;
}

static void what_is_written_is_read_back(void)
{
    lace_error err;
    model *m = open_model(&err), *other = open_model(&err);
    buf out;
    buf_init(&out, 1 << 16);
    for (int32_t i = 0; i < m->config.n_layers * SPARSITY_INPUTS; i++)
        m->sparsities[i].threshold = 0.1f / (float)(i + 3);
    CHECK(sparsity_write(m, &(sparsity_note){-1, -1}, &out, &err) == LACE_OK);
    CHECK(sparsity_read(other, (span){(const uint8_t *)out.data, out.size}, &err) == LACE_OK);
    for (int32_t i = 0; i < m->config.n_layers * SPARSITY_INPUTS; i++)
        CHECK(other->sparsities[i].threshold == m->sparsities[i].threshold);
    buf_deinit(&out);
    model_free(m);
    model_free(other);
}

static void an_input_without_a_threshold_keeps_small_activations(void)
{
    lace_error err;
    model *m = open_model(&err);
    char *whole = text_with(0.5f), *layers = strstr(whole, "\"layers\""), source[2048];
    snprintf(source, sizeof source, "%.*s\"layers\": [{\"o\": 1}, {}]}", (int)(layers - whole),
             whole);
    CHECK(sparsity_read(m, (span){(const uint8_t *)source, strlen(source)}, &err) == LACE_OK);
    CHECK(m->layers[0].wo.sparsity && m->layers[0].wo.sparsity->threshold == 1);
    CHECK(!m->layers[0].wq.sparsity && !m->layers[0].down.sparsity && !m->layers[1].wo.sparsity);
    free(whole);
    model_free(m);
}

/* The text with `from` replaced is refused with a line that says `part`. */
static void check_refused(const char *from, const char *to, const char *part)
{
    lace_error err = {0};
    char *whole = text_with(0.25f), *at = strstr(whole, from);
    CHECK(at != NULL);
    char source[4096];
    snprintf(source, sizeof source, "%.*s%s%s", (int)(at - whole), whole, to, at + strlen(from));
    CHECK(read_text(source, &err) != LACE_OK);
    if (!strstr(err.text, part)) {
        tap_note("\"%s\" does not say \"%s\"", err.text, part);
        CHECK(!"the message names the mistake");
    }
    free(whole);
}

static void texts_of_other_models_and_broken_ones_are_refused(void)
{
    check_refused("\"llama\"", "\"qwen2\"",
                  "another model: qwen2 with 2 layers; this model is llama with 2");
    check_refused("{\"qkv\"", "{}, {\"qkv\"", "llama with 3 layers; this model is llama with 2");
    check_refused("\"fingerprint\": \"", "\"fingerprint\": \"0",
                  "another model: its fingerprint is 0");
    check_refused("0.25", "-0.25", "layers[0].qkv is out of range");
    check_refused("0.25", "1e31", "layers[0].qkv is out of range");
    check_refused("0.25", "NaN", "JSON, at byte");
    check_refused("0.25", "\"0.25\"", "layers[0].qkv is a string");
    check_refused("\"qkv\"", "\"kqv\"", "layers[0].kqv: expected qkv, o, gate_up or down");
    check_refused("\"lace.activation_sparsity\": 1", "\"x\": 1",
                  "lace.activation_sparsity is missing");
    check_refused("\"lace.activation_sparsity\": 1", "\"lace.activation_sparsity\": 2", "is not 1");
    check_refused("\"layers\": [", "\"layers\": 5, \"more\": [", "layers is an integer");
    char *whole = text_with(0.25f);
    lace_error err;
    for (size_t n = 0; n + 2 < strlen(whole); n += 7) { /* the last two: } and line feed */
        char *cut = strndup(whole, n);
        CHECK(read_text(cut, &err) != LACE_OK);
        free(cut);
    }
    free(whole);
}

/* ---- Models ---------------------------------------------------------------------------------- */

typedef struct asked {
    const char *thresholds; /* NULL: dense */
    bool in_batches;
    bool at_once; /* all tokens in one evaluation */
    bool is_exact;
    int n_threads;
    const char *path; /* of a model; NULL: the tiny one */
} asked;

enum { N_TOKENS = 9, N_VOCAB = 320 }; /* of larger vocabularies, the first */

/* Logits of the last of some tokens. */
static bool logits_of(asked a, int first_token, float out[N_VOCAB])
{
    lace_model *m = NULL;
    lace_session *s = NULL;
    lace_error err = {0};
    lace_model_options mo = lace_model_options_default();
    mo.activation_sparsity = a.thresholds;
    mo.sparse_in_batches = a.in_batches;
    mo.use_exact = a.is_exact;
    lace_session_options o = lace_session_options_default();
    o.n_threads = a.n_threads ? a.n_threads : 1;
    o.n_context = 64;
    lace_item items[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++)
        items[i] =
            (lace_item){i ? 3 + 29 * i % 300 : first_token, .want_logits = i + 1 == N_TOKENS};
    bool ok =
        (a.path ? lace_model_open(a.path, &mo, &m, &err)
                : lace_model_open_memory(tiny.data, tiny.size, "tiny", &mo, &m, &err)) == LACE_OK &&
        lace_session_create(m, &o, &s, &err) == LACE_OK;
    for (int i = 0; i < (a.at_once ? 1 : N_TOKENS) && ok; i++)
        ok = lace_session_eval(s, items + i, a.at_once ? N_TOKENS : 1, &err) == LACE_OK;
    if (ok)
        memcpy(out, lace_session_logits(s, 0), N_VOCAB * sizeof *out);
    else
        tap_note("%s", err.text);
    lace_session_free(s);
    lace_model_close(m);
    return ok;
}

/* The square of the distance of two results, as a share of the first one's square. */
static double distance(asked a, asked b)
{
    float x[N_VOCAB], y[N_VOCAB];
    double error = 0, square = 0;
    if (!logits_of(a, 7, x) || !logits_of(b, 7, y))
        return INFINITY;
    for (int i = 0; i < N_VOCAB; i++) {
        error += pow((double)x[i] - y[i], 2);
        square += pow(x[i], 2);
    }
    return error / square;
}

/*
 * Sums of f32 in another order: 2^-24 of each term, squared, with some layers behind it. A key or a
 * value between two numbers of f16 may become the other one, which is 2^-11 of it (1.8e-9 was seen).
 */
#define ROUNDING 1e-8

static void with_thresholds_of_0_logits_are_the_dense_ones(void)
{
    char *zero = text_with(0);
    CHECK(distance((asked){0}, (asked){.thresholds = zero}) < ROUNDING);
    CHECK(distance((asked){0}, (asked){.thresholds = zero, .n_threads = 3}) < ROUNDING);
    free(zero);
}

static void single_tokens_give_what_batches_measure(void)
{
    char *some = text_with(0.3f);
    double loss = distance((asked){0}, (asked){.thresholds = some});
    tap_note("lost %g", loss);
    CHECK(loss > 1e-4 && loss < 1);
    asked together = {.thresholds = some, .in_batches = true, .at_once = true};
    asked single = {.thresholds = some, .in_batches = true};
    asked decoded = {.thresholds = some};
    /* Batches of f16 are multiplied in fixed point, of 13 bits. */
    CHECK(distance(together, decoded) < 0.001 * loss);
    CHECK(distance(single, decoded) < ROUNDING);
    together.is_exact = decoded.is_exact = true;
    CHECK(distance(together, decoded) < 0.001 * loss); /* keys and values are rounded to f16 */
    CHECK(distance(single, decoded) < ROUNDING);
    free(some);
}

static void prompts_are_computed_as_ever(void)
{
    char *some = text_with(0.3f);
    CHECK(distance((asked){.at_once = true}, (asked){.thresholds = some, .at_once = true}) == 0);
    free(some);
}

static void results_do_not_depend_on_threads(void)
{
    char *some = text_with(0.2f);
    for (int n = 2; n <= 4; n++)
        CHECK(distance((asked){.thresholds = some}, (asked){.thresholds = some, .n_threads = n}) ==
              0);
    free(some);
}

static void with_all_inputs_gone_the_past_does_not_matter(void)
{
    char *all = text_with(1e29f);
    float x[N_VOCAB], y[N_VOCAB];
    CHECK(logits_of((asked){.thresholds = all}, 7, x) &&
          logits_of((asked){.thresholds = all}, 200, y));
    CHECK(memcmp(x, y, sizeof x) == 0);
    CHECK(logits_of((asked){0}, 7, x) && logits_of((asked){0}, 200, y));
    CHECK(memcmp(x, y, sizeof x) != 0);
    free(all);
}

static void types_without_kernels_are_named(void)
{
    tiny_options o = tiny_shape();
    buf whole = tiny;
    lace_model *m;
    lace_error err;
    char *zero = text_with(0);
    o.type = DTYPE_F32;
    tiny = tiny_model_bytes(o);
    lace_model_options mo = lace_model_options_default();
    mo.activation_sparsity = zero;
    CHECK(lace_model_open_memory(tiny.data, tiny.size, "tiny", &mo, &m, &err) ==
          LACE_E_UNSUPPORTED);
    CHECK(strstr(err.text, "blk.0.attn_q.weight is f32"));
    mo.sparse_in_batches = true; /* measuring works with all types */
    CHECK(lace_model_open_memory(tiny.data, tiny.size, "tiny", &mo, &m, &err) == LACE_OK);
    lace_model_close(m);
    free(zero);
    buf_deinit(&tiny);
    tiny = whole;
}

/* ---- The program ----------------------------------------------------------------------------- */

static const char *tales, *calib, *test;

static void the_verb_reaches_the_share_and_says_what_it_costs(void)
{
    command_run("sparsify %s $dir/t --sparsity 0.3 --calibrate %s --calibrate-windows 3 -f %s "
                "--windows 2",
                tales, calib, test);
    CHECK(ran.code == 0);
    double all = 0, kld = -1, own = -1, uniform = -1;
    const char *at = strstr(ran.out, "  all");
    CHECK(at && sscanf(at, " all %lf", &all) == 1);
    CHECK(fabs(all - 30) < 3); /* another text, and few windows */
    at = strstr(ran.out, "calibration text: ");
    CHECK(at && sscanf(at, "calibration text: %lf, and %lf", &own, &uniform) == 2);
    CHECK(own <= uniform);
    at = strstr(ran.out, "\nKLD 0");
    CHECK(at && sscanf(at, "\nKLD %lf", &kld) == 1);
    CHECK(kld > 0 && kld < 0.3);
    command_run("perplexity %s --activation-sparsity $dir/t -f %s --windows 2 --against %s -o json",
                tales, test, tales);
    CHECK(ran.code == 0);
    double again = -1;
    at = strstr(ran.out, "\"kld_mean\": ");
    CHECK(at && sscanf(at, "\"kld_mean\": %lf", &again) == 1);
    CHECK(fabs(again - kld) < 1e-5 + 1e-3 * kld);
}

static void quantized_models_use_the_same_thresholds(void)
{
    static const char *const types[] = {"q8_0", "q4_0"};
    for (int i = 0; i < 2; i++) {
        command_run("quantize %s $dir/m --type %s -y", tales, types[i]);
        CHECK(ran.code == 0);
        char path[512], zero[512];
        snprintf(path, sizeof path, "%s", command_path("m"));
        snprintf(zero, sizeof zero, "%s", command_path("zero"));
        double d = distance((asked){.path = path}, (asked){.path = path, .thresholds = zero});
        /* A rounding of sums may round an activation to the next of 127 steps. */
        tap_note("%s: %g off", types[i], d);
        CHECK(d < 1e-5);
        command_run("run $dir/m --temp 0 -n 40 -p Once --activation-sparsity $dir/t");
        CHECK(ran.code == 0 && ran.n_out > 0);
    }
}

/* The thresholds of the first case with every number of the layers 0. */
static void write_zeros(void)
{
    char source[65536], path[512];
    snprintf(path, sizeof path, "%s", command_path("t"));
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(source, 1, sizeof source - 1, f) : 0;
    source[n] = 0;
    if (f)
        fclose(f);
    snprintf(path, sizeof path, "%s", command_path("zero"));
    f = fopen(path, "w");
    const char *layers = strstr(source, "\"layers\"");
    for (const char *at = source; f && *at; at++) {
        fputc(*at, f);
        if (layers && at > layers && *at == ':' && at[1] == ' ' && at[2] != '[') {
            fputs(" 0", f);
            while (at[1] && at[1] != ',' && at[1] != '}')
                at++;
        }
    }
    if (f)
        fclose(f);
}

static void mistakes_are_named(void)
{
    command_run("sparsify %s", tales);
    command_check_error("OUT is missing");
    command_run("sparsify %s $dir/x", tales);
    command_check_error("--calibrate TEXT is missing");
    command_run("sparsify %s $dir/x --calibrate %s --sparsity 0.95", tales, calib);
    command_check_error("--sparsity");
    command_run("run --activation-sparsity $dir/t -n 1");
    command_check_error("these thresholds are for another model");
    command_run("run %s --activation-sparsity $dir/none -n 1", tales);
    command_check_error("none");
    command_run("serve %s --activation-sparsity $dir/t --deterministic", tales);
    command_check_error("exclude each other");
}

/* What stands for the cases that need test data and the program. */
static void the_data_is_there(void)
{
    CHECK(tales && calib && test);
}

int main(void)
{
    CASE(a_threshold_leaves_out_the_share_asked_for);
    CASE(zeros_and_infinities_are_counted_too);
    tiny = tiny_model_bytes(tiny_shape());
    CASE(what_is_written_is_read_back);
    CASE(an_input_without_a_threshold_keeps_small_activations);
    CASE(texts_of_other_models_and_broken_ones_are_refused);
    CASE(with_thresholds_of_0_logits_are_the_dense_ones);
    CASE(single_tokens_give_what_batches_measure);
    CASE(prompts_are_computed_as_ever);
    CASE(results_do_not_depend_on_threads);
    CASE(with_all_inputs_gone_the_past_does_not_matter);
    CASE(types_without_kernels_are_named);
    buf_deinit(&tiny);
    char *paths[] = {data_path("models/tales-4m-f16.gguf"), data_path("text/calib.txt"),
                     data_path("text/test.txt")};
    tales = paths[0];
    calib = paths[1];
    test = paths[2];
    if (tales && calib && test && command_begin()) {
        CASE(the_verb_reaches_the_share_and_says_what_it_costs);
        write_zeros();
        CASE(quantized_models_use_the_same_thresholds);
        CASE(mistakes_are_named);
        command_end();
    } else {
        CASE(the_data_is_there);
    }
    for (int i = 0; i < 3; i++)
        free(paths[i]);
    return tap_end();
}
