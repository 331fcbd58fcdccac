/* Two of one model, compared. */
#include "model_pair.h"

#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "tap.h"

void model_pair_free(model_pair *p)
{
    lace_model_close(p->one);
    lace_model_close(p->many);
    golden_free(&p->g);
}

lace_model *model_pair_open(const char *path, lace_model_options *o)
{
    lace_error err = {0};
    lace_model *m = NULL;
    o->use_vocab = false;
    if (!CHECK(lace_model_open(path, o, &m, &err) == LACE_OK))
        tap_note("%s", err.text);
    return m;
}

static lace_session *start(lace_model *m, const golden *g, lace_kv_type kv_type, int32_t n_threads)
{
    lace_session_options o = lace_session_options_default();
    lace_session *s = NULL;
    lace_error err = {0};
    lace_model_info info;
    lace_model_describe(m, &info);
    o.n_context = info.n_context < 160 ? info.n_context : 160;
    o.n_sequences = 2;
    o.n_threads = n_threads;
    o.n_batch = 40;
    o.n_outputs = g->n_tokens;
    o.kv_type = kv_type;
    if (!CHECK(lace_session_create(m, &o, &s, &err) == LACE_OK))
        tap_note("%s", err.text);
    return s;
}

static bool is_same(const model_pair *p, const float *a, const float *b)
{
    size_t n = (size_t)p->g.n_vocab;
    if (memcmp(a, b, n * sizeof *a) == 0)
        return true;
    double found = nmse(b, a, n);
    if (!(found <= p->most))
        tap_note("nmse %g", found);
    return found <= p->most;
}

/* The same items in both sessions give the same logits. */
static bool agree(const model_pair *p, lace_session *const both[2], const lace_item *items,
                  size_t n)
{
    lace_error err = {0};
    for (int i = 0; i < 2; i++)
        if (!CHECK(lace_session_eval(both[i], items, n, &err) == LACE_OK)) {
            tap_note("%s", err.text);
            return false;
        }
    for (size_t i = 0, k = 0; i < n; i++)
        if (items[i].want_logits) {
            if (!is_same(p, lace_session_logits(both[0], k), lace_session_logits(both[1], k))) {
                tap_note("row %zu of %zu", i, n);
                return false;
            }
            k++;
        }
    return true;
}

/* From token `begin` on: some pairs of two sequences, then the first alone. */
static bool agree_further(const model_pair *p, lace_session *const both[2], int32_t begin)
{
    enum { PAIRS = 6, SINGLES = 6 };
    const golden *g = &p->g;
    int32_t i = begin, n = g->n_tokens;
    for (; i < n && i < begin + PAIRS; i++) {
        lace_item pair[2] = {{g->tokens[i], 0, true}, {g->tokens[n - i], 1, true}};
        if (!agree(p, both, pair, 2))
            return false;
    }
    for (int32_t k = 0; k < SINGLES; k++) {
        lace_item one = {g->tokens[(i + k) % n], k == 3, true};
        if (!agree(p, both, &one, 1))
            return false;
    }
    return true;
}

void model_pair_check_sessions(const model_pair *p, lace_kv_type kv_type, int32_t n_threads)
{
    const golden *g = &p->g;
    lace_session *both[2] = {start(p->one, g, kv_type, n_threads),
                             start(p->many, g, kv_type, n_threads)};
    lace_item items[256];
    int32_t n = g->n_tokens, most = n / 2 + 3;
    if (both[0] && both[1]) {
        for (int32_t i = 0; i < n; i++)
            items[i] = (lace_item){g->tokens[i], 0, true};
        CHECK(agree(p, both, items, (size_t)most));
        for (int i = 0; i < 2; i++) {
            CHECK(lace_session_truncate(both[i], 0, n / 2, NULL) == LACE_OK);
            CHECK(lace_session_fork(both[i], 0, 1, NULL) == LACE_OK);
        }
        CHECK(agree_further(p, both, n / 2));
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

static void generate(const golden *g, lace_model *m, written out[3], int32_t *n_preempted)
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
        go.prompt = g->tokens;
        go.n_prompt = (size_t)g->n_tokens;
        go.max_tokens = g->n_greedy < 6 ? g->n_greedy : 6;
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

void model_pair_check_batcher(const model_pair *p)
{
    written one[3], many[3];
    int32_t n[2] = {0, 0};
    generate(&p->g, p->one, one, &n[0]);
    generate(&p->g, p->many, many, &n[1]);
    CHECK(memcmp(one, many, sizeof one) == 0);
    CHECK(n[0] == n[1] && one[0].n > 0);
}

bool model_pair_read(const char *model, model_pair *p,
                     bool (*open)(model_pair *p, const char *path, void *user), void *user)
{
    char *expected = golden_path(model, "golden.safetensors");
    char *path = golden_path(model, "model.gguf");
    if (!path)
        path = golden_path(model, "");
    bool is_fine = CHECK(expected && path && golden_read(expected, &p->g)) && open(p, path, user);
    free(expected);
    free(path);
    return is_fine;
}

void model_pair_each(void (*fn)(const char *model, size_t i, void *user), void *user)
{
    static const char *const sets[] = {"golden", "golden2"};
    for (int k = 0; k < 2; k++) {
        const char **models;
        size_t n = data_names(sets[k], &models);
        for (size_t i = 0; i < n; i++) {
            char *path = golden_path(models[i], "golden.safetensors");
            if (path && golden_has_logits(path) && !strstr(models[i], "vision") &&
                !strstr(models[i], "_vl"))
                fn(models[i], i, user);
            free(path);
        }
        free(models);
    }
}
