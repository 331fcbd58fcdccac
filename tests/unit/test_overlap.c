/*
 * Steps that are queued before what came of the one before is known: on the device ref:1, which
 * computes as late as it may, every text must be the one of the reference device, which computes at
 * once. LACE_DEVICE names another device for the same, with fewer cases, as it may be slow.
 */
#define _GNU_SOURCE
#include <math.h>
#include <string.h>
#include <time.h>

#include "engine/batcher.h"
#include "named_device.h"
#include "status_check.h"
#include "tap.h"
#include "tiny_model.h"

enum { N_TEXTS = 14, N_NEW = 30, CONTEXT = 160, LONG_PROMPT = 90 };

/* ---- A device that is watched ---------------------------------------------------------------- */

static struct {
    const backend *real;
    int n_under_way, n_overlaps, n_unknown; /* batches, those queued behind another, tokens of -1 */
    int n_outputs, refuses_every; /* rows so far; of which every so-manieth is refused; 0: none */
    int n_collected, fails_at;
    bool fails_for_good; /* from there on */
    int takes_ms;        /* a step, at least */
    int32_t sizes[64];
    int n_sizes;
} seen;

static lace_status watched_submit(program *p, const batch *b, const choice_rule *rules,
                                  lace_error *err)
{
    static choice_rule changed[64];
    CHECK(b->n_outputs <= 64 && rules);
    for (int32_t i = 0; i < b->n_outputs; i++) {
        changed[i] = rules[i];
        if (seen.refuses_every && ++seen.n_outputs % seen.refuses_every == 0)
            changed[i].temperature = -1;
    }
    for (int32_t i = 0; i < b->n_tokens; i++)
        seen.n_unknown += b->tokens[i] < 0;
    seen.n_overlaps += seen.n_under_way++ > 0;
    if (seen.n_sizes < 64)
        seen.sizes[seen.n_sizes++] = b->n_tokens;
    return seen.real->submit(p, b, changed, err);
}

static lace_status watched_collect(program *p, lace_error *err)
{
    struct timespec takes = {.tv_nsec = 1000000L * seen.takes_ms};
    seen.n_under_way--;
    nanosleep(&takes, NULL);
    TRY(seen.real->collect(p, err));
    bool fails = ++seen.n_collected == seen.fails_at ||
                 (seen.fails_for_good && seen.n_collected > seen.fails_at);
    return fails ? error_set(err, LACE_E_DEVICE, "the device has failed") : LACE_OK;
}

/* ---- Texts ----------------------------------------------------------------------------------- */

typedef struct result {
    lace_token tokens[CONTEXT];
    float logprobs[CONTEXT];
    int n_tokens, n_ends;
    lace_finish finish;
    lace_status status;
} result;

static void on_piece(void *user, const lace_piece *p)
{
    result *r = user;
    if (p->token >= 0) {
        r->logprobs[r->n_tokens] = p->n_top ? p->logprob : 0;
        r->tokens[r->n_tokens++] = p->token;
    }
    r->finish = p->finish;
    r->n_ends += p->finish != LACE_FINISH_NONE;
    r->status = p->error ? p->error->status : LACE_OK;
}

/* Each in another way: chosen by the device or by the host, short and long, with and without ends. */
static lace_generation *add(lace_batcher *b, int i, result *r)
{
    static const lace_bias biases[] = {{5, -INFINITY}, {6, 1.5f}, {7, -2}, {6, 0.25f}};
    static const lace_token stops[] = {9, 10};
    lace_token prompt[LONG_PROMPT];
    lace_generation_options o = lace_generation_options_default();
    *r = (result){0};
    o.prompt = prompt;
    o.n_prompt = i % 4 == 3 ? LONG_PROMPT : (size_t)(1 + 5 * i);
    for (size_t k = 0; k < o.n_prompt; k++)
        prompt[k] = (lace_token)(3 + (k * k + 3 * k * (size_t)i + (size_t)i) % 11);
    o.max_tokens = i == 5 ? 1 : i == 6 ? 2 : i == 7 ? -1 : N_NEW;
    o.sampler.temperature = i % 3 == 0 ? 0 : 0.8f + 0.1f * (float)(i % 5);
    o.sampler.top_k = i % 2 ? 5 : 0;
    o.sampler.seed = 100 + (uint64_t)i;
    o.sampler.repeat_penalty = i == 4 ? 1.2f : 1; /* the host's */
    o.ignore_end = i % 4 != 2;
    o.min_tokens = i == 8 || i == 9 ? 12 : 0;
    o.stop_tokens = stops;
    o.n_stop_tokens = i == 9 || i == 10;
    o.biases = biases;
    o.n_biases = i == 2 || i == 9 ? 4 : 0;
    o.n_top = i == 11 ? 2 : -1; /* the host's */
    o.on_piece = on_piece;
    o.user = r;
    lace_generation *g = NULL;
    CHECK(lace_batcher_add(b, &o, &g, NULL) == LACE_OK);
    return g;
}

static const char *other; /* the device that is checked in place of ref:1; NULL: none */

/* Another device's sums are made in another order. */
static bool is_near(const result *a, const result *b)
{
    float allowed = other ? 1e-3f : 0;
    for (int i = 0; i < a->n_tokens; i++)
        if (!(fabsf(a->logprobs[i] - b->logprobs[i]) <= allowed))
            return false;
    return true;
}

static bool is_same(const result *a, const result *b)
{
    size_t n = (size_t)a->n_tokens;
    return a->n_tokens == b->n_tokens && a->finish == b->finish && a->status == b->status &&
           b->n_ends == 1 && memcmp(a->tokens, b->tokens, n * sizeof *a->tokens) == 0 &&
           is_near(a, b);
}

static lace_model *open_model(const buf *file, const char *name)
{
    lace_model *lm = NULL;
    lace_error err;
    lace_model_options o = lace_model_options_default();
    o.device = name;
    CHECK(is_ok(lace_model_open_memory(file->data, file->size, "tiny", &o, &lm, &err), &err));
    return lm;
}

static bool is_deterministic, use_lookup, is_warmed_up; /* of the next batchers */

/* How far warming up has come; it is stopped after so many reports. */
static struct {
    double done;
    int n_reports, stops_at;
} warmed;

static bool report(void *user, const char *what, double done)
{
    CHECK(done >= warmed.done && done <= 1);
    if (strcmp(what, "warming up") == 0)
        warmed.done = done;
    return ++warmed.n_reports != warmed.stops_at;
}

static void warm_up(lace_session *s)
{
    lace_error err;
    s->options.on_progress = report;
    warmed.done = warmed.n_reports = 0;
    CHECK(is_ok(session_warm_up(s, &err), &err));
    CHECK(warmed.done == 1 && warmed.n_reports > 20);
    warmed.done = warmed.n_reports = 0;
    warmed.stops_at = 7;
    CHECK(session_warm_up(s, &err) == LACE_E_CANCELLED && warmed.n_reports == 7);
    warmed.stops_at = 0;
    for (int32_t i = 0; i < s->options.n_sequences; i++)
        CHECK(lace_session_length(s, i) == 0);
}

static lace_batcher *start(lace_model *lm, int32_t n_sequences, int32_t kv_tokens, bool prefixes)
{
    lace_batcher *b = NULL;
    lace_error err;
    lace_batcher_options o = lace_batcher_options_default();
    o.session.n_context = CONTEXT;
    o.session.n_sequences = n_sequences;
    o.session.n_batch = 64;
    o.session.n_threads = 1;
    o.session.kv_type = LACE_KV_F32;
    o.session.kv_tokens = kv_tokens;
    o.use_prefixes = prefixes;
    o.is_deterministic = is_deterministic;
    o.use_lookup = use_lookup;
    o.guesses_always = true;
    CHECK(is_ok(lace_batcher_create(lm, &o, &b, &err), &err));
    if (is_warmed_up)
        warm_up(b->session);
    return b;
}

/* Steps until nobody is left; nothing may be lost. */
static void finish(lace_batcher *b)
{
    while (lace_batcher_step(b))
        continue;
    lace_batcher_stats stats;
    lace_batcher_count(b, &stats);
    CHECK(stats.kv_tokens_used == 0 && stats.n_running == 0 && stats.n_waiting == 0);
    if (!b->prefixes) {
        CHECK(states_snapshots_used(b->session->kv) == 0);
        for (int32_t g = 0; g < b->session->kv->n_groups; g++)
            CHECK(states_pages_used(b->session->kv, g) == 0);
    }
    CHECK(b->n_flights == 0 && seen.n_under_way == 0);
    lace_batcher_free(b);
}

static lace_model *at_once, *late;
static backend watched;
static result want[N_TEXTS];

static void forget_seen(void)
{
    const backend *real = seen.real;
    memset(&seen, 0, sizeof seen);
    seen.real = real;
}

static void texts_of_the_reference(void)
{
    for (int i = 0; i < N_TEXTS; i++) {
        lace_batcher *b = start(at_once, 1, 0, false);
        add(b, i, &want[i]);
        finish(b);
        CHECK(want[i].n_ends == 1 && want[i].status == LACE_OK);
    }
}

/* Returns how often one gave way. */
static uint64_t check_together(int32_t n_sequences, int32_t kv_tokens, bool prefixes)
{
    static result got[N_TEXTS];
    lace_batcher *b = start(late, n_sequences, kv_tokens, prefixes);
    for (int i = 0; i < N_TEXTS; i++)
        add(b, i, &got[i]);
    while (lace_batcher_step(b))
        continue;
    uint64_t n_preempted = b->stats.n_preempted;
    finish(b);
    for (int i = 0; i < N_TEXTS; i++)
        if (!CHECK(is_same(&want[i], &got[i])))
            tap_note("text %d: %d tokens, expected %d", i, got[i].n_tokens, want[i].n_tokens);
    return n_preempted;
}

static void texts_that_overlap_are_those_of_the_reference(void)
{
    forget_seen();
    check_together(N_TEXTS, 0, false);
    CHECK(seen.n_overlaps > 20 && seen.n_unknown > 60);
    tap_note("%d batches queued behind another, %d tokens not known", seen.n_overlaps,
             seen.n_unknown);
    check_together(5, 0, true);
    check_together(1, 0, false);
}

static bool late_has_no_pages(void)
{
    return strcmp(late->m->arch->name, "mamba2") == 0;
}

/* Room for one context: the youngest gives way again and again. */
static void a_full_pool_changes_no_text(void)
{
    forget_seen();
    uint64_t n_preempted = check_together(N_TEXTS, CONTEXT, false);
    CHECK(n_preempted > 0 || late_has_no_pages());
    tap_note("%d gave way", (int)n_preempted);
    check_together(N_TEXTS, CONTEXT, true);
    CHECK(seen.n_overlaps > 0);
}

static void what_the_device_refuses_is_computed_again(void)
{
    for (int every = 1; every < 9; every += 3) {
        forget_seen();
        seen.refuses_every = every;
        check_together(N_TEXTS, 0, false);
    }
    CHECK(seen.n_unknown > 60);
}

/* A deterministic batcher computes one text after the other; guesses stand behind known tokens. */
static void where_nothing_may_overlap_nothing_does(void)
{
    forget_seen();
    is_deterministic = true;
    check_together(4, 0, false);
    CHECK(seen.n_overlaps == 0 && seen.n_unknown == 0);
    is_deterministic = false;
    use_lookup = true;
    check_together(3, 0, false); /* as many as are guessed for */
    CHECK(seen.n_overlaps == 0 && seen.n_unknown == 0);
    check_together(N_TEXTS, 0, false); /* many, then few */
    CHECK(seen.n_overlaps > 0);
    use_lookup = false;
}

/* At random times texts leave, and others come; those that stay are what they should be. */
static void texts_that_leave_change_no_other(void)
{
    static result got[3 * N_TEXTS];
    lace_generation *here[3 * N_TEXTS];
    uint32_t random = 1;
    for (int round = 0; round < 6; round++) {
        forget_seen();
        int n_added = 0, n_left = 0;
        lace_batcher *b = start(late, 6, round % 2 ? 3 * CONTEXT : 0, round % 3 == 0);
        while (n_added < 3 * N_TEXTS || lace_batcher_step(b)) {
            random = random * 1664525 + 1013904223;
            uint32_t dice = random >> 16;
            if (n_added < 3 * N_TEXTS && dice % 3 == 0) {
                here[n_added] = add(b, n_added % N_TEXTS, &got[n_added]);
                n_added++;
            }
            int which = n_added ? (int)(dice / 8 % (uint32_t)n_added) : 0;
            if (n_added && dice % 5 == 0 && got[which].n_ends == 0) {
                lace_batcher_cancel(b, here[which]);
                n_left++;
            }
            lace_batcher_step(b);
        }
        finish(b);
        CHECK(n_left > 2);
        for (int i = 0; i < 3 * N_TEXTS; i++) {
            const result *all = &want[i % N_TEXTS], *r = &got[i];
            bool is_cut =
                r->finish == LACE_FINISH_CANCELLED && r->n_tokens <= all->n_tokens &&
                memcmp(r->tokens, all->tokens, (size_t)r->n_tokens * sizeof *r->tokens) == 0;
            CHECK(r->n_ends == 1 && (is_cut || is_same(all, r)));
        }
    }
}

/* Nothing is left of what it computes, whether the pool has room for all of it or not. */
static void warming_up_changes_no_text(void)
{
    forget_seen();
    is_warmed_up = true;
    check_together(N_TEXTS, 0, true);
    check_together(N_TEXTS, CONTEXT, false);
    is_warmed_up = false;
}

static void a_step_that_fails_ends_those_that_were_in_it(void)
{
    static result got[N_TEXTS];
    forget_seen();
    seen.fails_at = 9;
    lace_batcher *b = start(late, 8, 0, false);
    for (int i = 0; i < N_TEXTS; i++)
        add(b, i, &got[i]);
    finish(b);
    int n_failed = 0;
    for (int i = 0; i < N_TEXTS; i++) {
        bool is_failed = got[i].finish == LACE_FINISH_ERROR && got[i].status == LACE_E_DEVICE;
        CHECK(got[i].n_ends == 1 && (is_failed || is_same(&want[i], &got[i])));
        n_failed += is_failed;
    }
    CHECK(n_failed > 0 && n_failed <= 8);
    b = start(late, 8, 0, false); /* in the middle of everything */
    for (int i = 0; i < N_TEXTS; i++)
        add(b, i, &got[i]);
    for (int i = 0; i < 12; i++)
        lace_batcher_step(b);
    lace_batcher_free(b);
}

/* As after a kernel's error: every text gets an answer, and nothing is lost. */
static void a_device_that_has_failed_for_good_ends_all_in_order(void)
{
    static result got[N_TEXTS];
    forget_seen();
    seen.fails_at = 5;
    seen.fails_for_good = true;
    lace_batcher *b = start(late, 4, 0, false);
    for (int i = 0; i < N_TEXTS; i++)
        add(b, i, &got[i]);
    finish(b);
    for (int i = 0; i < N_TEXTS; i++)
        CHECK(got[i].n_ends == 1 && (got[i].status == LACE_E_DEVICE || is_same(&want[i], &got[i])));
    CHECK(got[N_TEXTS - 1].status == LACE_E_DEVICE);
    seen.fails_for_good = false;
}

/* The device has tiles of 8 rows, and steps of 24 are worth their time. */
static void steps_are_whole_tiles(void)
{
    static result got[4];
    forget_seen();
    lace_batcher *b = start(late, 4, 0, false);
    for (int i = 0; i < 4; i++)
        add(b, 3 + 4 * (i % 2), &got[i]);
    finish(b);
    CHECK(seen.sizes[0] == 48); /* nobody generates yet */
    for (int i = 1; i < 9; i++)
        CHECK(seen.sizes[i] % 8 == 0 && seen.sizes[i] <= 48);
}

/*
 * While a step of 40 ms is computed, the next one is put off: for three quarters of that, if those before
 * have taken as long. Who comes meanwhile is in it.
 */
static void who_comes_in_time_is_in_the_next_step(void)
{
    enum { TAKES_MS = 40 };
    static result got[4];
    uint64_t most_ns = 0;
    forget_seen();
    lace_batcher *b = start(late, 4, 0, false);
    CHECK(lace_batcher_rest_ns(b) == 0 && !b->rests); /* it computes only when it is waited for */
    b->rests = true;
    seen.takes_ms = TAKES_MS;
    for (int i = 0; i < 3; i++)
        add(b, i, &got[i]);
    for (int i = 0; i < 8; i++) {
        CHECK(lace_batcher_step(b));
        uint64_t rest_ns = lace_batcher_rest_ns(b);
        CHECK(rest_ns <= flight_time(b).takes_ns);
        most_ns = rest_ns > most_ns ? rest_ns : most_ns;
    }
    CHECK(most_ns > TAKES_MS * 250000);
    b->n_hurried = 3; /* as if a step had been over when it was asked for */
    for (int i = 0; i < 2; i++)
        CHECK(lace_batcher_step(b) && lace_batcher_rest_ns(b) == 0);
    bool has_rested = false; /* unless the machine has stood still for as long */
    for (int i = 0; i < 8 && !has_rested; i++)
        has_rested = lace_batcher_step(b) && lace_batcher_rest_ns(b) > 0;
    CHECK(has_rested);
    lace_generation *g = add(b, 8, &got[3]);
    CHECK(lace_batcher_step(b) && g->n_queued > 0);
    CHECK(lace_batcher_rest_ns(b) == 0); /* nobody else would find a place */
    seen.takes_ms = 0;
    finish(b);
    CHECK(got[3].n_ends == 1);
    b = start(at_once, 4, 0, false);
    add(b, 0, &got[0]);
    CHECK(lace_batcher_step(b) && lace_batcher_rest_ns(b) == 0);
    finish(b);
}

/* ---- Sequences that are continued together --------------------------------------------------- */

enum { N_TOGETHER = 3, N_STEPS = 20 };

typedef struct heard {
    lace_token tokens[N_STEPS][N_TOGETHER];
    int n, stops_at;
} heard;

static bool hear(void *user, const lace_token *tokens)
{
    heard *h = user;
    memcpy(h->tokens[h->n++], tokens, sizeof h->tokens[0]);
    return h->n != h->stops_at;
}

static lace_session *open_session(lace_model *lm)
{
    lace_session *s = NULL;
    lace_error err;
    lace_session_options o = lace_session_options_default();
    o.n_context = CONTEXT;
    o.n_sequences = N_TOGETHER;
    o.n_threads = 1;
    o.kv_type = LACE_KV_F32;
    CHECK(is_ok(lace_session_create(lm, &o, &s, &err), &err));
    return s;
}

/* The same by one eval after the other. */
static void hear_by_evals(lace_session *s, const lace_token *firsts, int n_steps, heard *out)
{
    lace_item items[N_TOGETHER];
    for (int i = 0; i < N_TOGETHER; i++)
        items[i] = (lace_item){.token = firsts[i], .sequence = i, .want_logits = true};
    for (int k = 0; k < n_steps; k++) {
        CHECK(lace_session_eval(s, items, N_TOGETHER, NULL) == LACE_OK);
        for (size_t i = 0; i < N_TOGETHER; i++)
            items[i].token = best_token(lace_session_logits(s, i), s->model->n_vocab);
        for (int i = 0; i < N_TOGETHER; i++)
            out->tokens[out->n][i] = items[i].token;
        out->n++;
    }
}

/* In one go, or in two with a stop between them. */
static void check_session(lace_session *s, const heard *expected, int stops_at)
{
    static const lace_token firsts[N_TOGETHER] = {3, 8, 5};
    heard got = {.stops_at = stops_at};
    const lace_token *next = firsts;
    for (int n_left = N_STEPS; n_left > 0; n_left = N_STEPS - got.n) {
        int before = got.n;
        CHECK(lace_session_continue_all(s, next, N_TOGETHER, n_left, hear, &got, NULL) == LACE_OK);
        CHECK(got.n > before);
        for (int i = 0; i < N_TOGETHER; i++)
            CHECK(lace_session_length(s, i) == got.n);
        next = got.tokens[got.n - 1];
    }
    CHECK(memcmp(got.tokens, expected->tokens, sizeof got.tokens) == 0);
    for (int i = 0; i < N_TOGETHER; i++)
        CHECK(lace_session_truncate(s, i, 0, NULL) == LACE_OK);
}

static void sequences_go_on_together(void)
{
    static const lace_token firsts[N_TOGETHER] = {3, 8, 5}, bad[N_TOGETHER] = {3, -1, 5};
    heard expected = {0}, none = {0};
    lace_session *s = open_session(at_once);
    hear_by_evals(s, firsts, N_STEPS, &expected);
    for (int i = 0; i < N_TOGETHER; i++)
        CHECK(lace_session_truncate(s, i, 0, NULL) == LACE_OK);
    check_session(s, &expected, 0);
    lace_session_free(s);
    s = open_session(late);
    forget_seen();
    check_session(s, &expected, 0);
    CHECK(seen.n_overlaps == N_STEPS - 1 && seen.n_unknown == N_TOGETHER * (N_STEPS - 1));
    check_session(s, &expected, 7);
    seen.refuses_every = 10;
    check_session(s, &expected, 0);
    forget_seen();
    CHECK(lace_session_continue_all(s, bad, N_TOGETHER, 4, hear, &none, NULL) == LACE_E_ARG);
    CHECK(lace_session_continue_all(s, firsts, 4, 4, hear, &none, NULL) == LACE_E_ARG);
    CHECK(lace_session_continue_all(s, firsts, N_TOGETHER, CONTEXT + 1, hear, &none, NULL) ==
          LACE_E_CONTEXT);
    seen.fails_at = seen.n_collected + 3;
    CHECK(lace_session_continue_all(s, firsts, N_TOGETHER, 9, hear, &none, NULL) == LACE_E_DEVICE);
    CHECK(none.n == 2);
    forget_seen();
    lace_session_free(s);
}

/* Alone, where it works ahead; together; with rows that it refuses; and a step that fails. */
static void texts_on_another_device(void)
{
    check_together(1, 0, false);
    forget_seen();
    check_together(N_TEXTS, 0, true);
    CHECK(seen.n_overlaps > 0 && seen.n_unknown > 0);
    tap_note("%d batches queued behind another, %d tokens not known", seen.n_overlaps,
             seen.n_unknown);
    seen.refuses_every = 4;
    check_together(N_TEXTS, CONTEXT, false);
    a_step_that_fails_ends_those_that_were_in_it();
    forget_seen();
}

static void check_model(tiny_options o)
{
    o.n_context = CONTEXT;
    /* With other weights a card rounds the activations of several rows to f16. */
    if (other && strncmp(other, "cuda", 4) == 0)
        o.type = DTYPE_F32;
    buf file = tiny_model_bytes(o);
    at_once = open_model(&file, "ref");
    late = open_model(&file, other ? other : "ref:1");
    seen.real = late->m->device->backend;
    watched = *seen.real;
    watched.submit = watched_submit;
    watched.collect = watched_collect;
    late->m->device->backend = &watched;
    forget_seen();
    texts_of_the_reference();
    if (other) {
        texts_on_another_device();
        lace_model_close(at_once);
        lace_model_close(late);
        buf_deinit(&file);
        return;
    }
    texts_that_overlap_are_those_of_the_reference();
    a_full_pool_changes_no_text();
    what_the_device_refuses_is_computed_again();
    warming_up_changes_no_text();
    where_nothing_may_overlap_nothing_does();
    texts_that_leave_change_no_other();
    who_comes_in_time_is_in_the_next_step();
    a_step_that_fails_ends_those_that_were_in_it();
    a_device_that_has_failed_for_good_ends_all_in_order();
    sequences_go_on_together();
    lace_model_close(at_once);
    lace_model_close(late);
    buf_deinit(&file);
}

static void texts_of_a_transformer_are_right(void)
{
    check_model(tiny_options_small());
}

static void texts_of_a_model_with_windows_are_right(void)
{
    check_model(tiny_options_arch("gemma3"));
}

static void texts_of_a_recurrent_model_are_right(void)
{
    check_model(tiny_options_arch("mamba2"));
}

static void texts_of_a_model_of_both_kinds_are_right(void)
{
    check_model(tiny_options_arch("falcon-h1"));
}

static void rows_of_a_step_are_whole_tiles(void)
{
    tiny_options o = tiny_options_small();
    o.n_context = CONTEXT;
    buf file = tiny_model_bytes(o);
    late = open_model(&file, "ref:1");
    late->m->device->backend = &watched;
    steps_are_whole_tiles();
    lace_model_close(late);
    buf_deinit(&file);
}

int main(void)
{
    const char *named = named_device();
    other = named && strcmp(named, "ref:1") != 0 ? named : NULL;
    if (!named_device_opens())
        return tap_end();
    CASE(texts_of_a_transformer_are_right);
    if (other) {
        CASE(texts_of_a_recurrent_model_are_right);
        return tap_end();
    }
    CASE(texts_of_a_model_with_windows_are_right);
    CASE(texts_of_a_recurrent_model_are_right);
    CASE(texts_of_a_model_of_both_kinds_are_right);
    CASE(rows_of_a_step_are_whole_tiles);
    return tap_end();
}
