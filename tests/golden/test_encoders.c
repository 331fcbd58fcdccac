/*
 * Encoders: tiny models whose hidden states, pooled vectors and scores were recorded with the
 * reference implementation in float32. lace must give the same from both formats and from its own
 * conversion, on any number of threads, alone and in a batch with texts of other lengths.
 * LACE_DEVICE=cuda lets them run on a GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/convert.h"
#include "data.h"
#include "golden_file.h"
#include "lace.h"
#include "scratch.h"
#include "tap.h"

/* As test_golden.c has them. */
static double tolerance(void)
{
    const char *device = getenv("LACE_DEVICE");
    return device && strncmp(device, "cuda", 4) == 0 ? 1e-6 : 1e-9;
}

typedef struct subject {
    lace_model *model;
    lace_model_info info;
    golden_encoder g;
} subject;

static lace_embedder *start(const subject *s, int32_t n_threads)
{
    lace_embedder_options o = lace_embedder_options_default();
    o.session.n_threads = n_threads;
    o.session.kv_type = LACE_KV_F32;
    o.session.n_context = s->g.n_tokens;
    o.session.n_batch = 3 * s->g.n_tokens;
    o.session.n_sequences = 6;
    lace_embedder *e;
    lace_error err;
    if (!CHECK(lace_embedder_create(s->model, &o, &e, &err) == LACE_OK))
        tap_note("%s", err.text);
    return e;
}

static void check_close(const char *what, const float *found, const float *expected, size_t n)
{
    double error = nmse(found, expected, n);
    if (!CHECK(error <= tolerance()))
        tap_note("%s: nmse %g", what, error);
}

/* The golden pooling where the file names none, which is that of the first token. */
static lace_pooling golden_pooling(const subject *s)
{
    return s->g.score ? LACE_POOLING_CLS : LACE_POOLING_MODEL;
}

/* The text alone: every token, the pooled vector, the score. */
static void alone(const subject *s, int32_t n_threads)
{
    lace_embedder *e = start(s, n_threads);
    size_t n = (size_t)s->g.n_tokens, width = (size_t)s->g.n_embd;
    float *all = calloc(n * width, sizeof *all), *pooled = calloc(width, sizeof *pooled);
    float score[1] = {0};
    lace_error err = {0};
    lace_embed_text texts[3] = {
        {.tokens = s->g.tokens, .n_tokens = n, .pooling = LACE_POOLING_NONE, .out = all},
        {.tokens = s->g.tokens, .n_tokens = n, .pooling = golden_pooling(s), .out = pooled},
        {.tokens = s->g.tokens, .n_tokens = n, .pooling = LACE_POOLING_RANK, .out = score},
    };
    if (e && !CHECK(lace_embedder_run(e, texts, s->g.score ? 3 : 2, &err) == LACE_OK))
        tap_note("%s", err.text);
    for (size_t i = 0; i < n; i++)
        check_close("hidden state", all + i * width, s->g.hidden + i * width, width);
    check_close("pooled vector", pooled, s->g.pooled, width);
    if (s->g.score)
        check_close("score", score, s->g.score, 1);
    free(all);
    free(pooled);
    lace_embedder_free(e);
}

static void alone_1_thread(void *arg)
{
    alone(arg, 1);
}

static void alone_2_threads(void *arg)
{
    alone(arg, 2);
}

static void alone_4_threads(void *arg)
{
    alone(arg, 4);
}

/*
 * Nine texts, of which more than one batch is made: parts of the golden one, and in their midst the
 * whole, twice.
 */
static void among_others(void *arg)
{
    const subject *s = arg;
    static const struct {
        int begin, n; /* n 0: the whole */
    } parts[] = {{3, 17}, {0, 0}, {50, 1}, {9, 64}, {0, 0}, {0, 33}, {80, 16}, {1, 95}, {40, 2}};
    enum { N = sizeof parts / sizeof *parts };
    lace_embedder *e = start(s, 2);
    size_t width = (size_t)s->g.n_embd;
    float *out = calloc(N * width, sizeof *out), *again = calloc(width, sizeof *again), scores[N];
    lace_embed_text texts[2 * N];
    lace_error err = {0};
    for (int i = 0; i < N; i++) {
        int n = parts[i].n ? parts[i].n : s->g.n_tokens;
        texts[i] = (lace_embed_text){.tokens = s->g.tokens + parts[i].begin,
                                     .n_tokens = (size_t)n,
                                     .pooling = golden_pooling(s),
                                     .out = out + (size_t)i * width};
        texts[N + i] = texts[i];
        texts[N + i].pooling = LACE_POOLING_RANK;
        texts[N + i].out = &scores[i];
    }
    if (e && !CHECK(lace_embedder_run(e, texts, s->g.score ? 2 * N : N, &err) == LACE_OK))
        tap_note("%s", err.text);
    for (int i = 0; e && i < N; i++) {
        if (parts[i].n == 0) {
            check_close("pooled vector", out + (size_t)i * width, s->g.pooled, width);
            if (s->g.score)
                check_close("score", &scores[i], s->g.score, 1);
            continue;
        }
        texts[i].out = again;
        CHECK(lace_embedder_run(e, &texts[i], 1, &err) == LACE_OK);
        check_close("part of the text", out + (size_t)i * width, again, width);
    }
    free(out);
    free(again);
    lace_embedder_free(e);
}

/* Vectors of length 1 have the direction of the others. */
static void normalized(void *arg)
{
    const subject *s = arg;
    lace_embedder *e = start(s, 1);
    size_t width = (size_t)s->g.n_embd;
    float *out = calloc(width, sizeof *out);
    lace_embed_text whole = {.tokens = s->g.tokens,
                             .n_tokens = (size_t)s->g.n_tokens,
                             .pooling = golden_pooling(s),
                             .normalize = true,
                             .out = out};
    CHECK(e && lace_embedder_run(e, &whole, 1, NULL) == LACE_OK);
    double square = 0, along = 0, golden_square = 0;
    for (size_t i = 0; i < width; i++) {
        square += (double)out[i] * out[i];
        along += (double)out[i] * s->g.pooled[i];
        golden_square += (double)s->g.pooled[i] * s->g.pooled[i];
    }
    CHECK(square > 0.999999 && square < 1.000001);
    CHECK(along * along > 0.999999 * golden_square);
    free(out);
    lace_embedder_free(e);
}

static const struct {
    const char *name;
    void (*run)(void *);
} ways[] = {
    {"alone, 1 thread", alone_1_thread},
    {"alone, 2 threads", alone_2_threads},
    {"alone, 4 threads", alone_4_threads},
    {"among other texts", among_others},
    {"normalized", normalized},
};

static void failed(void *arg)
{
    tap_note("%s", (const char *)arg);
    CHECK(!"the model opens");
}

static void check_model(const char *name, const char *path, const golden_encoder *g, size_t n_ways)
{
    subject s = {.g = *g};
    lace_error err = {0};
    char title[160];
    lace_model_options o = lace_model_options_default();
    o.device = getenv("LACE_DEVICE");
    if (lace_model_open(path, &o, &s.model, &err) != LACE_OK) {
        tap_case_arg(name, failed, err.text);
        return;
    }
    lace_model_describe(s.model, &s.info);
    for (size_t i = 0; i < n_ways; i++) {
        snprintf(title, sizeof title, "%s: %s", name, ways[i].name);
        tap_case_arg(title, ways[i].run, &s);
    }
    lace_model_close(s.model);
}

/* What lace makes of the directory is the same model. */
static void check_converted(const char *name, const char *directory, const golden_encoder *g)
{
    char title[128];
    lace_error err = {0};
    convert_options o = convert_options_default();
    snprintf(title, sizeof title, "%s, converted", name);
    scratch_create();
    if (convert_directory(directory, scratch_path("model.gguf"), &o, NULL, &err) == LACE_OK)
        check_model(title, scratch_path("model.gguf"), g, 1);
    else
        tap_case_arg(title, failed, err.text);
    scratch_remove();
}

/* False: the folder is none of an encoder. */
static bool check_formats(const char *name)
{
    char relative[160], title[128];
    snprintf(relative, sizeof relative, "golden2/%s/golden.safetensors", name);
    char *expected = data_path_if_there(relative);
    snprintf(relative, sizeof relative, "golden2/%s", name);
    char *directory = data_path_if_there(relative);
    snprintf(relative, sizeof relative, "golden2/%s/model.gguf", name);
    char *file = data_path_if_there(relative);
    golden_encoder g;
    bool is_encoder = expected && directory && golden_encoder_read(expected, &g);
    size_t n_ways = sizeof ways / sizeof *ways;
    if (is_encoder) {
        snprintf(title, sizeof title, "%s, directory", name);
        check_model(title, directory, &g, n_ways);
        check_converted(name, directory, &g);
        snprintf(title, sizeof title, "%s, GGUF", name);
        if (file)
            check_model(title, file, &g, n_ways);
        golden_encoder_free(&g);
    }
    free(expected);
    free(directory);
    free(file);
    return is_encoder;
}

static void check_enough(void *arg)
{
    CHECK(*(const int *)arg > 0);
}

int main(void)
{
    int n = 0;
    const char **models;
    size_t n_models = data_names("golden2", &models);
    for (size_t i = 0; i < n_models; i++)
        n += check_formats(models[i]);
    free(models);
    tap_case_arg("there_are_golden_encoders", check_enough, &n);
    return tap_end();
}
