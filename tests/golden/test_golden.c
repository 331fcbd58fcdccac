/*
 * Golden models: tiny models of every architecture whose logits were recorded with the reference
 * implementation in float32. lace must give the same logits however the tokens arrive: in one
 * batch, one by one, mixed with another sequence, on any number of threads. LACE_DEVICE=cuda lets
 * them run on a GPU, LACE_DEVICE=vulkan through Vulkan.
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

typedef struct subject {
    lace_model *model;
    golden g;
    bool is_inexact; /* rows of the reference have larger errors of their own */
} subject;

static bool device_is(const char *kind)
{
    const char *device = getenv("LACE_DEVICE");
    return device && strncmp(device, kind, strlen(kind)) == 0;
}

/*
 * Float32 rounding alone gives 1e-13 to 1e-11; 1e-9 leaves room for another order of summation. On
 * a GPU activations have 15 bits: 1e-6, as for all float weights there. Through Vulkan they are floats,
 * summed in another order, and exponentials have the errors of a float.
 *
 * In mixtures of delta nets a row or two is a small difference of large numbers, which norms make large
 * again. In qwen3_next's row 53 all ways to compute agree to 1e-10 with the device ref, whose sums are
 * double, and the reference is 1.3e-9 away from them.
 */
static double tolerance(const subject *s)
{
    return device_is("cuda") || device_is("vulkan") ? 1e-6 : s->is_inexact ? 4e-9 : 1e-9;
}

static lace_session *start(const subject *s, int32_t n_sequences, int32_t n_threads,
                           int32_t n_batch)
{
    lace_session_options o = lace_session_options_default();
    lace_model_info info;
    lace_model_describe(s->model, &info);
    o.n_context = info.n_context < 160 ? info.n_context : 160; /* of learned positions, few */
    o.n_sequences = n_sequences;
    o.n_threads = n_threads;
    o.n_batch = n_batch;
    o.n_outputs = s->g.n_tokens;
    o.kv_type = LACE_KV_F32;
    lace_session *session;
    lace_error err;
    if (lace_session_create(s->model, &o, &session, &err) != LACE_OK)
        tap_note("%s", err.text);
    CHECK(session != NULL);
    return session;
}

static void check_row(const subject *s, const float *row, int32_t token)
{
    size_t n = (size_t)s->g.n_vocab;
    double error = row ? nmse(row, s->g.logits + (size_t)token * n, n) : 1;
    if (!(error <= tolerance(s)))
        tap_note("logits of token %d: nmse %g", token, error);
    CHECK(error <= tolerance(s));
}

static int32_t best(const float *row, int32_t n)
{
    int32_t at = 0;
    for (int32_t i = 1; i < n; i++)
        if (row[i] > row[at])
            at = i;
    return at;
}

/* Evaluates all tokens at once (the session cuts them into batches), then goes on greedily. */
static void in_batches(const subject *s, int32_t n_threads, int32_t n_batch)
{
    lace_session *session = start(s, 1, n_threads, n_batch);
    if (!session)
        return;
    lace_item *items = calloc((size_t)s->g.n_tokens, sizeof *items);
    for (int32_t i = 0; i < s->g.n_tokens; i++)
        items[i] = (lace_item){s->g.tokens[i], 0, true};
    CHECK(lace_session_eval(session, items, (size_t)s->g.n_tokens, NULL) == LACE_OK);
    for (int32_t i = 0; i < s->g.n_tokens; i++)
        check_row(s, lace_session_logits(session, (size_t)i), i);
    int32_t next = best(lace_session_logits(session, (size_t)s->g.n_tokens - 1), s->g.n_vocab);
    for (int32_t i = 0; i < s->g.n_greedy; i++) {
        CHECK(next == s->g.greedy[i]);
        lace_item item = {next, 0, true};
        CHECK(lace_session_eval(session, &item, 1, NULL) == LACE_OK);
        next = best(lace_session_logits(session, 0), s->g.n_vocab);
    }
    free(items);
    lace_session_free(session);
}

static void one_batch_1_thread(void *arg)
{
    in_batches(arg, 1, 96);
}

static void one_batch_2_threads(void *arg)
{
    in_batches(arg, 2, 96);
}

static void one_batch_4_threads(void *arg)
{
    in_batches(arg, 4, 96);
}

static void batches_of_seven(void *arg)
{
    in_batches(arg, 2, 7);
}

static void token_by_token(void *arg)
{
    in_batches(arg, 2, 1);
}

/* Two copies of the text in one session, the second five tokens behind the first. */
static void two_sequences_interleaved(void *arg)
{
    const subject *s = arg;
    lace_session *session = start(s, 2, 2, 64);
    enum { BEHIND = 5 };
    for (int32_t i = 0; session && i < s->g.n_tokens + BEHIND; i++) {
        lace_item items[2];
        size_t n = 0;
        if (i < s->g.n_tokens)
            items[n++] = (lace_item){s->g.tokens[i], 0, true};
        if (i >= BEHIND)
            items[n++] = (lace_item){s->g.tokens[i - BEHIND], 1, true};
        CHECK(lace_session_eval(session, items, n, NULL) == LACE_OK);
        if (i < s->g.n_tokens)
            check_row(s, lace_session_logits(session, 0), i);
        if (i >= BEHIND)
            check_row(s, lace_session_logits(session, n - 1), i - BEHIND);
    }
    lace_session_free(session);
}

/* A copy of a sequence goes on by itself; so does the original after it was cut back. */
static void forked_and_truncated(void *arg)
{
    const subject *s = arg;
    lace_session *session = start(s, 2, 2, 64);
    if (!session)
        return;
    int32_t half = s->g.n_tokens / 2;
    for (int32_t i = 0; i < half + 3; i++) {
        lace_item item = {i < half ? s->g.tokens[i] : 7, 0, true};
        CHECK(lace_session_eval(session, &item, 1, NULL) == LACE_OK);
    }
    CHECK(lace_session_truncate(session, 0, half, NULL) == LACE_OK);
    CHECK(lace_session_fork(session, 0, 1, NULL) == LACE_OK);
    for (int32_t i = half; i < s->g.n_tokens; i++) {
        lace_item items[2] = {{s->g.tokens[i], 0, true}, {s->g.tokens[i], 1, true}};
        CHECK(lace_session_eval(session, items, 2, NULL) == LACE_OK);
        check_row(s, lace_session_logits(session, 0), i);
        check_row(s, lace_session_logits(session, 1), i);
    }
    lace_session_free(session);
}

/* Evaluates the tokens from `from` on in one batch. */
static void check_rest(const subject *s, lace_session *session, int32_t from)
{
    lace_item items[160] = {0};
    int32_t n = s->g.n_tokens - from;
    for (int32_t i = 0; i < n; i++)
        items[i] = (lace_item){s->g.tokens[from + i], 0, true};
    CHECK(lace_session_eval(session, items, (size_t)n, NULL) == LACE_OK);
    for (int32_t i = 0; i < n; i++)
        check_row(s, lace_session_logits(session, (size_t)i), from + i);
}

/*
 * A text that stopped behind a page goes on wrongly, and is taken back to the page, where recurrent
 * layers have a snapshot; then to a place between two snapshots.
 */
static void restored_from_a_snapshot(void *arg)
{
    const subject *s = arg;
    enum { PAGE = 64, WRONG = 20, BETWEEN = 75 };
    lace_session *session = start(s, 1, 2, 96);
    if (!session)
        return;
    lace_item items[PAGE + WRONG];
    for (int32_t i = 0; i < PAGE + WRONG; i++)
        items[i] = (lace_item){i < PAGE ? s->g.tokens[i] : 7, 0, i == 0};
    CHECK(lace_session_eval(session, items, PAGE, NULL) == LACE_OK);
    CHECK(lace_session_eval(session, items + PAGE, WRONG, NULL) == LACE_OK);
    CHECK(lace_session_truncate(session, 0, PAGE, NULL) == LACE_OK);
    check_rest(s, session, PAGE);
    CHECK(lace_session_truncate(session, 0, BETWEEN, NULL) == LACE_OK);
    check_rest(s, session, BETWEEN);
    lace_session_free(session);
}

typedef struct written {
    const subject *of;
    int32_t n; /* tokens so far */
    bool is_right;
    int32_t n_cached; /* tokens of the prompt that were known */
} written;

static void on_piece(void *user, const lace_piece *p)
{
    written *w = user;
    if (p->token >= 0) {
        const golden *g = &w->of->g;
        w->is_right = w->is_right && w->n < g->n_greedy && p->token == g->greedy[w->n];
        w->n++;
    }
    w->n_cached = p->stats->n_cached;
}

static lace_batcher *start_batcher(const subject *s, int32_t n_sequences, bool use_prefixes)
{
    lace_batcher_options o = lace_batcher_options_default();
    o.session.n_context = 128;
    o.session.n_sequences = n_sequences;
    o.session.n_threads = 2;
    o.session.n_batch = 64; /* so that a prompt stops behind a page before its end */
    o.session.kv_type = LACE_KV_F32;
    o.session.kv_tokens = 128; /* and a page for each text: two prompts, but not what follows */
    o.use_prefixes = use_prefixes;
    lace_batcher *b = NULL;
    lace_error err = {0};
    if (!CHECK(lace_batcher_create(s->model, &o, &b, &err) == LACE_OK))
        tap_note("%s", err.text);
    return b;
}

static void add_text(lace_batcher *b, const subject *s, written *w)
{
    lace_generation_options o = lace_generation_options_default();
    *w = (written){.of = s, .is_right = true};
    o.prompt = s->g.tokens;
    o.n_prompt = (size_t)s->g.n_tokens;
    o.max_tokens = s->g.n_greedy;
    o.sampler.temperature = 0;
    o.on_piece = on_piece;
    o.user = w;
    lace_generation *unused;
    CHECK(lace_batcher_add(b, &o, &unused, NULL) == LACE_OK);
}

static void finish(lace_batcher *b)
{
    while (lace_batcher_step(b))
        continue;
}

/* Whether longer texts take more: not where all layers have windows or recurrent states. */
static bool grows(const subject *s)
{
    lace_session_options o = lace_session_options_default();
    lace_memory near = {0}, far = {0};
    o.n_batch = 64;
    o.n_context = 1024;
    CHECK(lace_session_memory(s->model, &o, &near, NULL) == LACE_OK);
    o.n_context = 2048;
    CHECK(lace_session_memory(s->model, &o, &far, NULL) == LACE_OK);
    return far.kv > near.kv;
}

/* Two texts in a pool that has not room for both: one gives way, and is computed again. */
static void preempted(void *arg)
{
    const subject *s = arg;
    written texts[2];
    lace_batcher *b = start_batcher(s, 2, false);
    if (!b)
        return;
    for (int i = 0; i < 2; i++)
        add_text(b, s, &texts[i]);
    finish(b);
    lace_batcher_stats stats;
    lace_batcher_count(b, &stats);
    CHECK(stats.n_preempted > 0 || !grows(s));
    for (int i = 0; i < 2; i++)
        CHECK(texts[i].is_right && texts[i].n > 0);
    lace_batcher_free(b);
}

/* A text that begins as an earlier one did goes on from what was kept of that. */
static void with_a_known_beginning(void *arg)
{
    const subject *s = arg;
    written first, second;
    lace_batcher *b = start_batcher(s, 1, true);
    if (!b)
        return;
    add_text(b, s, &first);
    finish(b);
    add_text(b, s, &second);
    finish(b);
    CHECK(first.is_right && first.n > 0 && first.n_cached == 0);
    CHECK(second.is_right && second.n == first.n && second.n_cached > 0);
    lace_batcher_free(b);
}

static const struct {
    const char *name;
    void (*run)(void *);
    bool is_of_threads; /* the same as the first, for devices that are not the host */
} ways[] = {
    {"in one batch, 1 thread", one_batch_1_thread, false},
    {"in one batch, 2 threads", one_batch_2_threads, true},
    {"in one batch, 4 threads", one_batch_4_threads, true},
    {"in batches of 7", batches_of_seven, false},
    {"token by token", token_by_token, false},
    {"two sequences interleaved", two_sequences_interleaved, false},
    {"forked and truncated", forked_and_truncated, false},
    {"restored from a snapshot", restored_from_a_snapshot, false},
    {"preempted", preempted, false},
    {"with a known beginning", with_a_known_beginning, false},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

static void failed(void *arg)
{
    tap_note("%s", (const char *)arg);
    CHECK(!"the model opens");
}

/* The first n ways to evaluate a model. */
static void check_ways(const char *name, const char *model_path, const char *golden_path,
                       size_t n_ways)
{
    subject s = {.is_inexact =
                     strncmp(name, "qwen3_next", 10) == 0 || strncmp(name, "qwen3_5_moe", 11) == 0};
    lace_error err;
    char title[600];
    lace_model_options o = lace_model_options_default();
    o.device = getenv("LACE_DEVICE");
    lace_status status = lace_model_open(model_path, &o, &s.model, &err);
    if (status == LACE_OK && golden_read(golden_path, &s.g)) {
        for (size_t i = 0; i < n_ways; i++) {
            if (ways[i].is_of_threads && device_is("vulkan"))
                continue;
            snprintf(title, sizeof title, "%s: %s", name, ways[i].name);
            tap_case_arg(title, ways[i].run, &s);
        }
    } else {
        tap_case_arg(name, failed, err.text);
    }
    golden_free(&s.g);
    lace_model_close(s.model);
}

/*
 * A file that lace writes of the directory gives the same logits. What a GGUF file cannot say is
 * refused, and left out here.
 */
static void check_converted(const char *name, const char *directory, const char *expected)
{
    char title[160];
    lace_error err;
    convert_options o = convert_options_default();
    o.has_type = true;
    o.type = DTYPE_F32;
    o.no_vocab = true;
    if (!scratch_create())
        return;
    lace_status status = convert_directory(directory, scratch_path("made.gguf"), &o, NULL, &err);
    snprintf(title, sizeof title, "%s, converted", name);
    if (status == LACE_OK)
        check_ways(title, scratch_path("made.gguf"), expected, 1);
    else if (status == LACE_E_UNSUPPORTED)
        tap_note("%s is left out: %s", title, err.text);
    else
        tap_case_arg(title, failed, err.text);
    scratch_remove();
}

/* The model as a directory and, where it is there, as a GGUF file. Returns whether both are. */
static bool check_both_formats(const char *name)
{
    char title[128];
    char *expected = golden_path(name, "golden.safetensors");
    char *directory = golden_path(name, ""), *file = golden_path(name, "model.gguf");
    bool has_both = expected && directory && file;
    /* Vulkan is tried on slow devices, and formats are not its matter. */
    if (expected && directory && !(file && device_is("vulkan"))) {
        snprintf(title, sizeof title, "%s, directory", name);
        check_ways(title, directory, expected, N_WAYS);
        check_converted(name, directory, expected);
    }
    if (has_both) {
        snprintf(title, sizeof title, "%s, GGUF", name);
        check_ways(title, file, expected, N_WAYS);
    }
    free(expected);
    free(directory);
    free(file);
    return has_both;
}

/* Models of a set that have logits; those of encoders and of images are tried elsewhere. */
static int check_set(const char *set)
{
    int n = 0;
    const char **models;
    size_t n_models = data_names(set, &models);
    for (size_t i = 0; i < n_models; i++) {
        char *path = golden_path(models[i], "golden.safetensors");
        if (path && golden_has_logits(path) && !strstr(models[i], "vision") &&
            !strstr(models[i], "_vl"))
            n += check_both_formats(models[i]);
        free(path);
    }
    free(models);
    return n;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        check_both_formats(argv[i]);
    if (argc == 1)
        golden_enough(check_set("golden") + check_set("golden2"));
    return tap_end();
}
