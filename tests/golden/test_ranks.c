/*
 * Several ranks compute what one does, to the bit: golden models of every architecture on 2, 3 and 4
 * ranks, with equal and unequal shares, after a sequence was forked, cut back and preempted.
 *
 * Every model is tried with one way to divide it, all ways in turn; with names of models as arguments,
 * or LACE_TEST_ALL, with all.
 */
#include <stdio.h>
#include <stdlib.h>

#include "model_pair.h"
#include "tap.h"

static const char *const ways[] = {"2", "3", "4", "3,1", "1,2,4"};
enum { N_WAYS = sizeof ways / sizeof *ways };

static bool open_both(model_pair *p, const char *path, void *way)
{
    lace_model_options o = lace_model_options_default();
    p->one = model_pair_open(path, &o);
    o.ranks = way;
    p->many = p->one ? model_pair_open(path, &o) : NULL;
    return p->many;
}

/*
 * Ranks on devices of their own: whose programs exchange columns by themselves, and those beside which a
 * host does it (ref:1).
 */
typedef struct device_way {
    const char *one, *many;
} device_way;

static const device_way device_ways[] = {{"cpu", "cpu:400M,cpu;rows"},
                                         {"ref", "ref:1,ref:1,ref;rows"},
                                         {"ref", "ref:1,ref:1;rows;split=3,1"}};
enum { N_DEVICE_WAYS = sizeof device_ways / sizeof *device_ways };

static bool open_on_devices(model_pair *p, const char *path, void *arg)
{
    const device_way *way = arg;
    lace_model_options o = lace_model_options_default();
    o.device = way->one;
    p->one = model_pair_open(path, &o);
    o.device = way->many;
    p->many = p->one ? model_pair_open(path, &o) : NULL;
    return p->many;
}

typedef struct attempt {
    const char *model, *way;
    const device_way *devices; /* NULL: `way` says it */
} attempt;

static void check_model(void *arg)
{
    const attempt *a = arg;
    model_pair p = {0};
    bool is_read =
        a->devices ? model_pair_read(a->model, &p, open_on_devices, (void *)(uintptr_t)a->devices)
                   : model_pair_read(a->model, &p, open_both, (void *)(uintptr_t)a->way);
    if (is_read) {
        model_pair_check_sessions(&p, LACE_KV_F16, 1);
        if (p.g.n_greedy > 0)
            model_pair_check_batcher(&p);
    }
    model_pair_free(&p);
}

static void try_model(const char *model, size_t first, int n)
{
    for (int i = 0; i < n; i++) {
        char title[256];
        attempt a = {model, ways[(first + (size_t)i) % N_WAYS], NULL};
        snprintf(title, sizeof title, "%s on ranks %s", a.model, a.way);
        tap_case_arg(title, check_model, &a);
    }
}

static void try_devices(const char *model, const device_way *way)
{
    char title[256];
    attempt a = {model, NULL, way};
    snprintf(title, sizeof title, "%s on devices %s", model, way->many);
    tap_case_arg(title, check_model, &a);
}

static void try_one(const char *model, size_t i, void *unused)
{
    try_model(model, i, getenv("LACE_TEST_ALL") ? N_WAYS : 1);
    try_devices(model, &device_ways[i % N_DEVICE_WAYS]);
}

/* A quantized model, whose ranks give each other int8: golden ones are floats. */
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
        model_pair_check_sessions(&p, LACE_KV_Q8_0, 1);
        p.g = (golden){0};
    }
    model_pair_free(&p);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        try_model(argv[i], 0, N_WAYS);
        for (int k = 0; k < N_DEVICE_WAYS; k++)
            try_devices(argv[i], &device_ways[k]);
    }
    if (argc == 1) {
        tap_case_arg("a quantized model on ranks 2", check_quantized, "2");
        tap_case_arg("a quantized model on ranks 3,1", check_quantized, "3,1");
        model_pair_each(try_one, NULL);
    }
    return tap_end();
}
