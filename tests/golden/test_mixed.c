/*
 * Models on several devices. On two CPUs the same bits as on one, whatever lies where; on others
 * closeness. Every golden model, cut in the middle, with experts apart; after a fork, a cut and with a
 * pool that is too small.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "golden_file.h"
#include "lace.h"
#include "tap.h"

typedef struct subject {
    lace_model *one, *many;
    golden g;
    double most; /* NMSE; 0: equal bits */
} subject;

static lace_model *open_model(const char *path, const char *device, bool is_exact)
{
    lace_model_options o = lace_model_options_default();
    lace_error err = {0};
    lace_model *m = NULL;
    o.use_vocab = false;
    o.device = device;
    o.use_exact = is_exact;
    if (!CHECK(lace_model_open(path, &o, &m, &err) == LACE_OK))
        tap_note("%s", err.text);
    return m;
}

static lace_session *start(lace_model *m, const golden *g)
{
    lace_session_options o = lace_session_options_default();
    lace_session *s = NULL;
    lace_error err = {0};
    lace_model_info info;
    lace_model_describe(m, &info);
    o.n_context = info.n_context < 160 ? info.n_context : 160;
    o.n_sequences = 2;
    o.n_threads = 2;
    o.n_batch = 40;
    o.n_outputs = g->n_tokens;
    if (!CHECK(lace_session_create(m, &o, &s, &err) == LACE_OK))
        tap_note("%s", err.text);
    return s;
}

static bool is_same(const subject *s, const float *a, const float *b)
{
    size_t n = (size_t)s->g.n_vocab;
    if (memcmp(a, b, n * sizeof *a) == 0)
        return true;
    double found = nmse(b, a, n);
    if (!(found <= s->most))
        tap_note("nmse %g", found);
    return found <= s->most;
}

/* The same items in both sessions give the same logits. */
static bool agree(const subject *s, lace_session *const both[2], const lace_item *items, size_t n)
{
    lace_error err = {0};
    for (int i = 0; i < 2; i++)
        if (!CHECK(lace_session_eval(both[i], items, n, &err) == LACE_OK)) {
            tap_note("%s", err.text);
            return false;
        }
    for (size_t i = 0, k = 0; i < n; i++)
        if (items[i].want_logits) {
            if (!is_same(s, lace_session_logits(both[0], k), lace_session_logits(both[1], k)))
                return false;
            k++;
        }
    return true;
}

/* A prompt in two batches, tokens one by one, two sequences after a fork, a cut and a new end. */
static void check_sessions(const subject *s)
{
    const golden *g = &s->g;
    lace_session *both[2] = {start(s->one, g), start(s->many, g)};
    lace_item items[256];
    int32_t n = g->n_tokens, most = n / 2 + 3;
    if (both[0] && both[1]) {
        for (int32_t i = 0; i < n; i++)
            items[i] = (lace_item){g->tokens[i], 0, true};
        CHECK(agree(s, both, items, (size_t)most));
        for (int i = 0; i < 2; i++) {
            CHECK(lace_session_truncate(both[i], 0, n / 2, NULL) == LACE_OK);
            CHECK(lace_session_fork(both[i], 0, 1, NULL) == LACE_OK);
        }
        bool is_equal = true;
        for (int32_t i = n / 2; i < n && i < n / 2 + 6 && is_equal; i++) {
            lace_item pair[2] = {{g->tokens[i], 0, true}, {g->tokens[n - i], 1, true}};
            is_equal = agree(s, both, pair, 2);
        }
        CHECK(is_equal);
    }
    for (int i = 0; i < 2; i++)
        lace_session_free(both[i]);
}

typedef struct written {
    int32_t tokens[64], n;
} written;

static void on_piece(void *user, const lace_piece *p)
{
    written *w = user;
    if (p->token >= 0 && w->n < 64)
        w->tokens[w->n++] = p->token;
}

/* Two texts in a pool that has not room for both, then one that begins like them. */
static void generate(const subject *s, lace_model *m, written out[3], int32_t *n_preempted)
{
    lace_batcher_options o = lace_batcher_options_default();
    o.session.n_context = 128;
    o.session.n_sequences = 2;
    o.session.n_threads = 1;
    o.session.n_batch = 64;
    o.session.kv_tokens = 128;
    o.use_prefixes = true;
    lace_batcher *b = NULL;
    lace_error err = {0};
    memset(out, 0, 3 * sizeof *out);
    if (!CHECK(lace_batcher_create(m, &o, &b, &err) == LACE_OK)) {
        tap_note("%s", err.text);
        return;
    }
    for (int i = 0; i < 3; i++) {
        lace_generation_options go = lace_generation_options_default();
        lace_generation *unused;
        go.prompt = s->g.tokens;
        go.n_prompt = (size_t)s->g.n_tokens;
        go.max_tokens = s->g.n_greedy < 6 ? s->g.n_greedy : 6;
        go.sampler.temperature = 0;
        go.on_piece = on_piece;
        go.user = &out[i];
        CHECK(lace_batcher_add(b, &go, &unused, NULL) == LACE_OK);
        for (bool goes_on = i > 0; goes_on;)
            goes_on = lace_batcher_step(b);
    }
    lace_batcher_stats stats;
    lace_batcher_count(b, &stats);
    *n_preempted = (int32_t)stats.n_preempted;
    lace_batcher_free(b);
}

static void check_batcher(const subject *s)
{
    written one[3], many[3];
    int32_t n[2] = {0, 0};
    generate(s, s->one, one, &n[0]);
    generate(s, s->many, many, &n[1]);
    CHECK(memcmp(one, many, sizeof one) == 0);
    CHECK(n[0] == n[1] && one[0].n > 0);
}

/* A way to lie, which may name half the number of layers. Of a dense model, experts on the host are none: all of
 * it is on the card. */
typedef struct way {
    const char *device;
    double most; /* NMSE to the CPU with exact arithmetic; 0: equal bits */
} way;

static const way ways[] = {
    {"cpu:1G;layers=%d", 0},   {"cpu:1G;host-experts=%d", 0}, {"cpu:1G,cpu:2G;split=1,1", 0},
    {"ref:1;layers=%d", 1e-6}, {"vulkan;layers=%d", 1e-6},    {"vulkan;host-experts=%d", 1e-6},
};
enum { N_WAYS = sizeof ways / sizeof *ways, N_HOST_WAYS = 4 };

typedef struct attempt {
    const char *model;
    const way *way;
} attempt;

/* Half of the layers; of one layer, this layer. */
static void write_device(const way *w, const lace_model_info *info, char out[64])
{
    int half = (info->n_layers + 1) / 2;
    snprintf(out, 64, w->device, half);
}

static void check_model(void *arg)
{
    const attempt *a = arg;
    char *expected = golden_path(a->model, "golden.safetensors");
    char *path = golden_path(a->model, "model.gguf");
    subject s = {.most = a->way->most};
    lace_model_info info;
    char device[64];
    if (!path)
        path = golden_path(a->model, "");
    if (CHECK(expected && path && golden_read(expected, &s.g)) &&
        (s.one = open_model(path, NULL, s.most > 0))) {
        lace_model_describe(s.one, &info);
        write_device(a->way, &info, device);
        s.many = open_model(path, device, s.most > 0);
    }
    if (s.one && s.many) {
        check_sessions(&s);
        if (s.g.n_greedy > 0 && s.most == 0)
            check_batcher(&s);
    }
    lace_model_close(s.one);
    lace_model_close(s.many);
    golden_free(&s.g);
    free(expected);
    free(path);
}

static void try_model(const char *model, int first, int n)
{
    for (int i = 0; i < n; i++) {
        char title[256];
        attempt a = {model, &ways[(first + i) % N_WAYS]};
        snprintf(title, sizeof title, "%s on %s", a.model, a.way->device);
        tap_case_arg(title, check_model, &a);
    }
}

static void try_set(const char *set, int n_ways)
{
    const char **models;
    size_t n = data_names(set, &models);
    for (size_t i = 0; i < n; i++) {
        char *path = golden_path(models[i], "golden.safetensors");
        if (path && golden_has_logits(path) && !strstr(models[i], "vision") &&
            !strstr(models[i], "_vl"))
            try_model(models[i], 0, n_ways);
        free(path);
    }
    free(models);
}

/* A quantized model: golden ones are floats. */
static void check_quantized(void *arg)
{
    enum { N_TOKENS = 40 };
    int32_t tokens[N_TOKENS];
    const char *path = "models/default.gguf";
    subject s = {.one = open_model(path, NULL, false), .many = open_model(path, arg, false)};
    for (int32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = 10 + i * 37 % 200;
    if (s.one && s.many) {
        lace_model_info info;
        lace_model_describe(s.one, &info);
        s.g = (golden){.n_tokens = N_TOKENS, .n_vocab = info.n_vocab, .tokens = tokens};
        check_sessions(&s);
    }
    lace_model_close(s.one);
    lace_model_close(s.many);
}

/* "--vulkan": those that need such a device, of all models. */
static bool try_vulkan(void)
{
    static const int of_vulkan[] = {4, 5};
    const char **models, *sets[] = {"golden", "golden2"};
    for (int k = 0; k < 2; k++) {
        size_t n = data_names(sets[k], &models);
        for (size_t i = 0; i < n; i++) {
            char *path = golden_path(models[i], "golden.safetensors");
            if (path && golden_has_logits(path) && !strstr(models[i], "vision") &&
                !strstr(models[i], "_vl"))
                for (int w = 0; w < 2; w++)
                    try_model(models[i], of_vulkan[w], 1);
            free(path);
        }
        free(models);
    }
    return true;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--vulkan") == 0)
        return try_vulkan() ? tap_end() : 1;
    for (int i = 1; i < argc; i++)
        try_model(argv[i], 0, N_WAYS);
    if (argc == 1) {
        tap_case_arg("a quantized model, its last 3 layers apart", check_quantized,
                     "cpu:1G;layers=3");
        tap_case_arg("a quantized model on three devices", check_quantized,
                     "cpu:1G,cpu:2G,cpu:3G;split=2,1,1");
        try_set("golden", getenv("LACE_TEST_ALL") ? N_HOST_WAYS : 2);
        try_set("golden2", getenv("LACE_TEST_ALL") ? N_HOST_WAYS : 2);
    }
    return tap_end();
}
