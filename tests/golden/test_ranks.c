/*
 * Several ranks compute what one does, to the bit: golden models of every architecture on 2, 3 and 4
 * ranks, with equal and unequal shares, after a sequence was forked, cut back and preempted.
 *
 * Every model is tried with one way to divide it, all ways in turn; with names of models as arguments,
 * or LACE_TEST_ALL, with all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "golden_file.h"
#include "lace.h"
#include "tap.h"

static const char *const ways[] = {"2", "3", "4", "3,1", "1,2,4"};
enum { N_WAYS = sizeof ways / sizeof *ways };

typedef struct subject {
    lace_model *one, *many;
    golden g;
} subject;

static lace_model *open_model(const char *path, const char *ranks)
{
    lace_model_options o = lace_model_options_default();
    lace_error err = {0};
    lace_model *m = NULL;
    o.use_vocab = false;
    o.ranks = ranks;
    if (!CHECK(lace_model_open(path, &o, &m, &err) == LACE_OK))
        tap_note("%s", err.text);
    return m;
}

static lace_session *start(lace_model *m, const golden *g, lace_kv_type kv_type)
{
    lace_session_options o = lace_session_options_default();
    lace_session *s = NULL;
    lace_error err = {0};
    lace_model_info info;
    lace_model_describe(m, &info);
    o.n_context = info.n_context < 160 ? info.n_context : 160;
    o.n_sequences = 2;
    o.n_threads = 1;
    o.n_batch = 40;
    o.n_outputs = g->n_tokens;
    o.kv_type = kv_type;
    if (!CHECK(lace_session_create(m, &o, &s, &err) == LACE_OK))
        tap_note("%s", err.text);
    return s;
}

/* The same items in both sessions give the same bits. */
static bool agree(lace_session *const s[2], const lace_item *items, size_t n, int32_t n_vocab)
{
    lace_error err = {0};
    for (int i = 0; i < 2; i++)
        if (!CHECK(lace_session_eval(s[i], items, n, &err) == LACE_OK)) {
            tap_note("%s", err.text);
            return false;
        }
    for (size_t i = 0, k = 0; i < n; i++)
        if (items[i].want_logits) {
            const float *a = lace_session_logits(s[0], k), *b = lace_session_logits(s[1], k);
            k++;
            if (memcmp(a, b, (size_t)n_vocab * sizeof *a) != 0) {
                tap_note("token %zu: nmse %g", i, nmse(b, a, (size_t)n_vocab));
                return false;
            }
        }
    return true;
}

/* A prompt in two batches, tokens one by one, two sequences after a fork, a cut and a new end. */
static void check_sessions(const subject *s, lace_kv_type kv_type)
{
    const golden *g = &s->g;
    lace_session *both[2] = {start(s->one, g, kv_type), start(s->many, g, kv_type)};
    lace_item items[256];
    int32_t n = g->n_tokens, most = n / 2 + 3;
    if (both[0] && both[1]) {
        for (int32_t i = 0; i < n; i++)
            items[i] = (lace_item){g->tokens[i], 0, true};
        CHECK(agree(both, items, (size_t)most, g->n_vocab));
        for (int i = 0; i < 2; i++) {
            CHECK(lace_session_truncate(both[i], 0, n / 2, NULL) == LACE_OK);
            CHECK(lace_session_fork(both[i], 0, 1, NULL) == LACE_OK);
        }
        bool is_same = true;
        for (int32_t i = n / 2; i < n && i < n / 2 + 6 && is_same; i++) {
            lace_item pair[2] = {{g->tokens[i], 0, true}, {g->tokens[n - i], 1, true}};
            is_same = agree(both, pair, 2, g->n_vocab);
        }
        CHECK(is_same);
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

typedef struct attempt {
    const char *model, *way;
} attempt;

static void check_model(void *arg)
{
    const attempt *a = arg;
    char *expected = golden_path(a->model, "golden.safetensors");
    char *path = golden_path(a->model, "model.gguf");
    subject s = {0};
    if (!path)
        path = golden_path(a->model, "");
    if (CHECK(expected && path && golden_read(expected, &s.g)) &&
        (s.one = open_model(path, NULL)) && (s.many = open_model(path, a->way))) {
        check_sessions(&s, LACE_KV_F16);
        if (s.g.n_greedy > 0)
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
        attempt a = {model, ways[(first + i) % N_WAYS]};
        snprintf(title, sizeof title, "%s on ranks %s", a.model, a.way);
        tap_case_arg(title, check_model, &a);
    }
}

/* A quantized model, whose ranks give each other int8: golden ones are floats. */
static void check_quantized(void *arg)
{
    enum { N_TOKENS = 40 };
    int32_t tokens[N_TOKENS];
    const char *path = "models/default.gguf";
    subject s = {.one = open_model(path, NULL), .many = open_model(path, arg)};
    for (int32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = 10 + i * 37 % 200;
    if (s.one && s.many) {
        lace_model_info info;
        lace_model_describe(s.one, &info);
        s.g = (golden){.n_tokens = N_TOKENS, .n_vocab = info.n_vocab, .tokens = tokens};
        check_sessions(&s, LACE_KV_Q8_0);
    }
    lace_model_close(s.one);
    lace_model_close(s.many);
}

static void try_set(const char *set)
{
    const char **models;
    size_t n = data_names(set, &models);
    for (size_t i = 0; i < n; i++) {
        char *path = golden_path(models[i], "golden.safetensors");
        if (path && golden_has_logits(path) && !strstr(models[i], "vision") &&
            !strstr(models[i], "_vl"))
            try_model(models[i], (int)i, getenv("LACE_TEST_ALL") ? N_WAYS : 1);
        free(path);
    }
    free(models);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        try_model(argv[i], 0, N_WAYS);
    if (argc == 1) {
        tap_case_arg("a quantized model on ranks 2", check_quantized, "2");
        tap_case_arg("a quantized model on ranks 3,1", check_quantized, "3,1");
        try_set("golden");
        try_set("golden2");
    }
    return tap_end();
}
