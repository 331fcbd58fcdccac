/*
 * Models on several devices. On two CPUs the same bits as on one, whatever lies where; on others
 * closeness. Every golden model, cut in the middle, with experts apart; after a fork, a cut and with a
 * pool that is too small.
 *
 * With names of models as arguments, those in all ways; "--card vulkan", "--card cuda": all models, and a
 * quantized one, on that device and the CPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_pair.h"
#include "tap.h"

/* A way to lie, which may name half the number of layers. Of a dense model, experts on the host are none: all of
 * it is on the card. */
typedef struct way {
    const char *device;
    double most; /* NMSE to the CPU with exact arithmetic; 0: equal bits */
} way;

static const way ways[] = {
    {"cpu:1G;layers=%d", 0},
    {"cpu:1G;host-experts=%d", 0},
    {"cpu:1G,cpu:2G;split=1,1", 0},
    {"ref:1;layers=%d", 1e-6},
    {"vulkan;layers=%d", 1e-6},
    {"vulkan;host-experts=%d", 1e-6},
    {"ref:1;layers=%d;stream=8", 1e-6},
    {"ref:1;host-experts=%d;stream=8", 1e-6},
};
enum { N_WAYS = sizeof ways / sizeof *ways, N_HOST_WAYS = 4, FIRST_STREAMED = 6 };

/* Half of the layers; of one layer, this layer. */
static bool open_both(model_pair *p, const char *path, void *arg)
{
    const way *w = arg;
    lace_model_options o = lace_model_options_default();
    lace_model_info info;
    char device[64];
    p->most = w->most;
    o.use_exact = w->most > 0;
    o.device = NULL;
    if (!(p->one = model_pair_open(path, &o)))
        return false;
    lace_model_describe(p->one, &info);
    snprintf(device, sizeof device, w->device, (info.n_layers + 1) / 2);
    o.device = device;
    p->many = model_pair_open(path, &o);
    return p->many;
}

typedef struct attempt {
    const char *model;
    const way *way;
} attempt;

static void check_model(void *arg)
{
    const attempt *a = arg;
    model_pair p = {0};
    if (model_pair_read(a->model, &p, open_both, (void *)(uintptr_t)a->way)) {
        model_pair_check_sessions(&p, LACE_KV_F16, 2);
        if (p.g.n_greedy > 0 && p.most == 0)
            model_pair_check_batcher(&p);
    }
    model_pair_free(&p);
}

static void try_way(const char *model, const way *w)
{
    char title[256];
    attempt a = {model, w};
    snprintf(title, sizeof title, "%s on %s", a.model, w->device);
    tap_case_arg(title, check_model, &a);
}

static void try_hosts(const char *model, size_t i, void *unused)
{
    for (int w = 0; w < (getenv("LACE_TEST_ALL") ? N_HOST_WAYS : 2); w++)
        try_way(model, &ways[w]);
}

/* A quantized model: golden ones are floats. */
static void check_quantized(void *arg)
{
    enum { N_TOKENS = 40 };
    int32_t tokens[N_TOKENS];
    model_pair p = {0};
    for (int32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = 10 + i * 37 % 200;
    if (open_both(&p, "models/default.gguf", arg)) {
        lace_model_info info;
        lace_model_describe(p.one, &info);
        p.g = (golden){.n_tokens = N_TOKENS, .n_vocab = info.n_vocab, .tokens = tokens};
        model_pair_check_sessions(&p, LACE_KV_F16, 2);
        p.g = (golden){0};
    }
    model_pair_free(&p);
}

/* ---- On a card --------------------------------------------------------------------------------- */

typedef struct card {
    char devices[2][64];
    way ways[2];
} card;

static void try_card(const char *model, size_t i, void *user)
{
    const card *c = user;
    for (int w = 0; w < 2; w++)
        try_way(model, &c->ways[w]);
}

static void try_all_on(const char *name)
{
    card c;
    snprintf(c.devices[0], sizeof c.devices[0], "%.20s;layers=%%d", name);
    snprintf(c.devices[1], sizeof c.devices[1], "%.20s;host-experts=%%d", name);
    for (int w = 0; w < 2; w++)
        c.ways[w] = (way){c.devices[w], 1e-6};
    way quantized = {c.devices[0], 1e-5}; /* as bench/gpu-check.py has it, with its reasons */
    tap_case_arg("a quantized model, half of its layers on the card", check_quantized, &quantized);
    model_pair_each(try_card, &c);
}

int main(int argc, char **argv)
{
    static const way last = {"cpu:1G;layers=3", 0}, three = {"cpu:1G,cpu:2G,cpu:3G;split=2,1,1", 0};
    if (argc == 3 && strcmp(argv[1], "--card") == 0) {
        try_all_on(argv[2]);
        return tap_end();
    }
    for (int i = 1; i < argc; i++)
        for (int w = 0; w < N_WAYS; w++)
            try_way(argv[i], &ways[w]);
    if (argc == 1) {
        tap_case_arg("a quantized model, its last 3 layers apart", check_quantized,
                     (void *)(uintptr_t)&last);
        tap_case_arg("a quantized model on three devices", check_quantized,
                     (void *)(uintptr_t)&three);
        model_pair_each(try_hosts, NULL);
        /* Large batches with weights of the host on the other device. */
        for (int w = FIRST_STREAMED; w < N_WAYS; w++) {
            try_way("llama", &ways[w]);
            try_way("qwen3moe", &ways[w]);
        }
    }
    return tap_end();
}
