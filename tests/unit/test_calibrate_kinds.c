/*
 * Importance matrices and calibrated quantizing of models that are no plain decoders: mixtures,
 * recurrent layers, latent attention, layers of different shapes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/calibrate.h"
#include "compress/imatrix_collect.h"
#include "golden_file.h"
#include "lace.h"
#include "ops/op_info.h"
#include "scratch.h"
#include "status_check.h"
#include "tap.h"
#include "tiny_model.h"

enum { N_TOKENS = 24, N_WINDOW = 32 };

static const char text_to_read[] =
    "A small house stood at the end of the lane. Nobody had lived in it for years, and the garden "
    "had grown over the windows. One day a child found the key under a stone. It was old and heavy "
    "and it fitted the lock. Inside there was a table, a chair, and a clock that still went.";

typedef struct kind {
    const char *architecture;
    int n_experts;
    int n_sharing; /* layers at the end that have the keys and values of earlier ones */
} kind;

static bool write_model(const kind *k)
{
    tiny_options o = tiny_options_default();
    o.architecture = k->architecture;
    o.n_experts = k->n_experts;
    o.n_layers = 4;
    o.n_embd = o.n_ff = 64;
    o.type = DTYPE_F32;
    gguf_writer *w = NULL;
    lace_error err;
    char key[64];
    snprintf(key, sizeof key, "%s.attention.shared_kv_layers", k->architecture);
    bool is_written =
        CHECK(is_ok(tiny_model_create(&o, &w, &err), &err)) &&
        (k->n_sharing == 0 ||
         CHECK(is_ok(gguf_writer_add_int(w, key, GGUF_U32, k->n_sharing, &err), &err))) &&
        CHECK(is_ok(gguf_writer_to_file(w, scratch_path("in.gguf"), NULL, NULL, &err), &err));
    gguf_writer_free(w);
    return is_written;
}

/*
 * Logits of a file's model after the first tokens of the text; for the caller to free(). NULL if it
 * does not run.
 */
static float *logits_of(const char *name, int32_t *n_vocab)
{
    lace_model *m = NULL;
    lace_session *session = NULL;
    lace_error err;
    lace_session_options o = lace_session_options_default();
    lace_token tokens[400];
    lace_item items[N_TOKENS];
    size_t n = 0;
    float *out = NULL;
    o.n_outputs = N_TOKENS;
    if (CHECK(is_ok(lace_model_open(scratch_path(name), NULL, &m, &err), &err)) &&
        CHECK(is_ok(lace_tokenize(m, text_to_read, strlen(text_to_read), LACE_TOKENIZE_ADD_SPECIAL,
                                  tokens, 400, &n, &err),
                    &err)) &&
        CHECK(n >= N_TOKENS) && CHECK(is_ok(lace_session_create(m, &o, &session, &err), &err))) {
        lace_model_info info;
        lace_model_describe(m, &info);
        *n_vocab = info.n_vocab;
        size_t row = (size_t)info.n_vocab;
        for (int i = 0; i < N_TOKENS; i++)
            items[i] = (lace_item){tokens[i], 0, true};
        bool is_run = CHECK(is_ok(lace_session_eval(session, items, N_TOKENS, &err), &err));
        out = is_run ? malloc(sizeof *out * row * N_TOKENS) : NULL;
        for (size_t i = 0; out && i < N_TOKENS; i++)
            memcpy(out + i * row, lace_session_logits(session, i), row * sizeof *out);
    }
    lace_session_free(session);
    lace_model_close(m);
    return out;
}

/* How far the logits of a file are from those of the original. */
static double error_of(const char *name)
{
    int32_t n = 0;
    float *want = logits_of("in.gguf", &n), *got = logits_of(name, &n);
    double error = want && got ? nmse(got, want, (size_t)n * N_TOKENS) : NAN;
    free(want);
    free(got);
    return error;
}

static bool quantize_to(const char *name, const quantize_options *q)
{
    lace_error err;
    return CHECK(
        is_ok(quantize_model(scratch_path("in.gguf"), scratch_path(name), q, NULL, &err), &err));
}

/* The sums of every matrix, and a model that was quantized with them. */
static void importance(void)
{
    weights *files = NULL;
    walk *w = NULL;
    token_list tokens = {0};
    imatrix *sums = NULL;
    int64_t n_windows = 0;
    walk_options o = walk_options_default();
    imatrix_options options = {0};
    quantize_options q = quantize_options_default();
    lace_error err;
    o.n_context = N_WINDOW;
    if (CHECK(is_ok(weights_open(scratch_path("in.gguf"), &files, &err), &err)) &&
        CHECK(is_ok(walk_open(files, &o, &w, &err), &err)) &&
        CHECK(is_ok(walk_tokenize(w, text_to_read, strlen(text_to_read), &tokens, &err), &err)) &&
        CHECK(is_ok(imatrix_collect(w, tokens.data, tokens.size, &options, &sums, &n_windows, &err),
                    &err))) {
        CHECK(n_windows > 1);
        q.mix = mix_find("q4_0");
        q.importance = sums;
        if (quantize_to("weighed.gguf", &q)) {
            double error = error_of("weighed.gguf");
            tap_note("with an importance matrix: nmse %.2g", error);
            CHECK(error < 0.7);
        }
    }
    imatrix_free(sums);
    token_list_deinit(&tokens);
    walk_close(w);
}

/* A window that was left before a matrix goes on as if it had not been left. */
static void walked_in_parts(void)
{
    weights *files = NULL;
    walk *w = NULL;
    token_list tokens = {0};
    walk_options o = walk_options_default();
    lace_error err;
    o.n_context = N_WINDOW;
    if (!CHECK(is_ok(weights_open(scratch_path("in.gguf"), &files, &err), &err)) ||
        !CHECK(is_ok(walk_open(files, &o, &w, &err), &err)) ||
        !CHECK(is_ok(walk_tokenize(w, text_to_read, strlen(text_to_read), &tokens, &err), &err)))
        return;
    size_t n = (size_t)w->m->config.n_vocab;
    float *whole = malloc(n * sizeof *whole);
    CHECK(is_ok(walk_begin(w, tokens.data, &err), &err));
    walk_run(w, 0, walk_end(w));
    memcpy(whole, walk_logits(w, N_WINDOW - 1), n * sizeof *whole);
    for (int32_t i = walk_next_matrix(w, 0); i < walk_end(w); i = walk_next_matrix(w, i + 1)) {
        uint8_t *state = malloc((size_t)walk_state_bytes(w, i));
        CHECK(is_ok(walk_begin(w, tokens.data, &err), &err));
        walk_run(w, 0, i);
        walk_save(w, i, state);
        CHECK(is_ok(walk_begin(w, tokens.data + N_WINDOW, &err), &err));
        walk_run(w, 0, walk_end(w));
        CHECK(is_ok(walk_begin(w, tokens.data, &err), &err));
        walk_restore(w, i, state);
        walk_run(w, i, walk_end(w));
        const step *s = &w->p->steps[i];
        if (!CHECK(memcmp(whole, walk_logits(w, N_WINDOW - 1), n * sizeof *whole) == 0))
            tap_note("left before %s of layer %d", op_describe(s->op)->name, s->layer);
        free(state);
    }
    free(whole);
    walk_close(w);
    token_list_deinit(&tokens);
}

/* What is calibrated is nearer to the original on its text than what is not. */
static void calibrated(void)
{
    quantize_made *made = NULL;
    calibrate_options o = calibrate_options_default();
    quantize_options q = quantize_options_default();
    lace_error err;
    o.mix = q.mix = mix_find("s4");
    o.text = text_to_read;
    o.n_bytes = strlen(text_to_read);
    o.n_context = N_WINDOW;
    bool is_made = quantize_to("plain.gguf", &q) &&
                   CHECK(is_ok(calibrate_model(scratch_path("in.gguf"), &o, &made, &err), &err));
    q.made = made;
    if (is_made && quantize_to("calibrated.gguf", &q)) {
        double plain = error_of("plain.gguf"), error = error_of("calibrated.gguf");
        tap_note("plain: nmse %.2g, calibrated: %.2g", plain, error);
        CHECK(error < 0.95 * plain);
    }
    quantize_made_free(made);
}

static void both(void *arg)
{
    if (CHECK(scratch_create() != NULL) && write_model(arg)) {
        importance();
        walked_in_parts();
        calibrated();
    }
    scratch_remove();
}

int main(void)
{
    static kind kinds[] = {
        {"qwen3moe", 4, 0},       {"qwen35", 0, 0},    {"qwen35moe", 4, 0},     {"deepseek2", 4, 0},
        {"gemma3n", 0, 0},        {"gemma4", 0, 2},    {"granitehybrid", 4, 0}, {"lfm2", 0, 0},
        {"nemotron_h_moe", 4, 0}, {"falcon-h1", 0, 0}, {"mamba2", 0, 0},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        tap_case_arg(kinds[i].architecture, both, &kinds[i]);
    return tap_end();
}
