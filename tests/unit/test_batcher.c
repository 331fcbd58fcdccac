/*
 * The batcher: many generations at once, and each text as if it were alone; LACE_DEVICE=cuda: on a
 * card, where one that is alone is computed ahead.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "data.h"
#include "lace.h"
#include "rows_apart.h"
#include "tap.h"

enum { N_TEXTS = 12, N_NEW = 40, CONTEXT = 256 };

static lace_model *model;

/* What came of a generation. */
typedef struct result {
    char text[4096];
    size_t n_text;
    lace_token tokens[CONTEXT];
    int n_tokens;
    lace_finish finish;
    lace_status status;
    char stop[32];
    lace_generation_stats stats;
    float logprobs[CONTEXT];
    float logprob_sum;
    size_t n_top;
    bool is_top_sorted;
} result;

static void on_piece(void *user, const lace_piece *p)
{
    result *r = user;
    if (r->n_text + p->n_bytes < sizeof r->text)
        memcpy(r->text + r->n_text, p->text, p->n_bytes);
    r->n_text += p->n_bytes;
    if (p->token >= 0) {
        r->logprobs[r->n_tokens] = p->logprob;
        r->tokens[r->n_tokens++] = p->token;
    }
    r->finish = p->finish;
    r->status = p->error ? p->error->status : LACE_OK;
    if (p->stop)
        strncpy(r->stop, p->stop, sizeof r->stop - 1);
    r->stats = *p->stats;
    if (p->n_top) {
        r->logprob_sum += p->logprob;
        r->n_top = p->n_top;
        for (size_t i = 1; i < p->n_top; i++)
            r->is_top_sorted = r->is_top_sorted && p->top[i].logprob <= p->top[i - 1].logprob;
    }
}

static lace_batcher *start(int32_t n_sequences, uint64_t states_bytes, bool use_prefixes)
{
    lace_batcher_options o = lace_batcher_options_default();
    o.session.n_context = CONTEXT;
    o.session.n_sequences = n_sequences;
    o.session.n_batch = 64;
    o.session.n_threads = 2;
    o.session.kv_bytes = states_bytes;
    o.use_prefixes = use_prefixes;
    lace_batcher *b = NULL;
    lace_error err = {0};
    if (!CHECK(lace_batcher_create(model, &o, &b, &err) == LACE_OK))
        tap_note("%s", err.text);
    return b;
}

static lace_generation_options greedy(result *r)
{
    lace_generation_options o = lace_generation_options_default();
    o.sampler.temperature = 0;
    o.max_tokens = N_NEW;
    o.on_piece = on_piece;
    o.user = r;
    memset(r, 0, sizeof *r);
    r->is_top_sorted = true;
    return o;
}

static size_t tokens_of(const char *prompt, lace_token tokens[CONTEXT])
{
    size_t n = 0;
    CHECK(lace_tokenize(model, prompt, strlen(prompt), LACE_TOKENIZE_ADD_SPECIAL, tokens, CONTEXT,
                        &n, NULL) == LACE_OK);
    return n;
}

static lace_generation *add(lace_batcher *b, lace_generation_options o, const char *prompt)
{
    lace_token tokens[CONTEXT];
    size_t n = tokens_of(prompt, tokens);
    o.prompt = tokens;
    o.n_prompt = n;
    lace_generation *g = NULL;
    CHECK(lace_batcher_add(b, &o, &g, NULL) == LACE_OK);
    return g;
}

static void finish(lace_batcher *b)
{
    while (lace_batcher_step(b))
        continue;
}

static const char *prompt_of(int i)
{
    static char text[256];
    static const char *const names[] = {"king", "fox", "miller", "queen", "wolf", "tailor"};
    snprintf(text, sizeof text,
             "Once upon a time there was a %s who lived near a great forest with his %d children, "
             "and every day he went out",
             names[i % 6], i);
    return text;
}

/* The text of each prompt, from a batcher that has nothing else to do. */
static void texts_alone(result *out)
{
    for (int i = 0; i < N_TEXTS; i++) {
        lace_batcher *b = start(1, 0, false);
        if (!b)
            return;
        add(b, greedy(&out[i]), prompt_of(i));
        finish(b);
        lace_batcher_free(b);
    }
}

static bool is_same(const result *a, const result *b)
{
    return a->n_tokens == b->n_tokens && a->finish == b->finish &&
           memcmp(a->tokens, b->tokens, sizeof a->tokens[0] * (size_t)a->n_tokens) == 0 &&
           a->n_text == b->n_text && memcmp(a->text, b->text, a->n_text) == 0;
}

static result alone[N_TEXTS], together[N_TEXTS];

static bool fits_logits(int i, const lace_token *text, int n)
{
    lace_token prompt[CONTEXT];
    size_t n_prompt = tokens_of(prompt_of(i), prompt);
    return is_of_logits(model, prompt, n_prompt, text, (size_t)n);
}

/*
 * The i-th text, computed beside others, begins as it does alone. Where rows that are computed
 * together are rounded otherwise, it may go another way at a near tie.
 */
static bool begins_as_alone(const result *r, int i)
{
    if (r->n_tokens >= N_NEW && memcmp(r->tokens, alone[i].tokens, sizeof(lace_token) * N_NEW) == 0)
        return true;
    return r->n_tokens > 0 && rounds_rows_apart(model) && fits_logits(i, r->tokens, r->n_tokens);
}

static bool is_as_alone(const result *r, int i)
{
    return is_same(r, &alone[i]) || (r->n_tokens == N_NEW && r->finish == LACE_FINISH_LENGTH &&
                                     rounds_rows_apart(model) && begins_as_alone(r, i));
}

static void generations_that_run_together_write_what_each_writes_alone(void)
{
    texts_alone(alone);
    lace_batcher *b = start(5, 0, true);
    if (!b)
        return;
    for (int i = 0; i < N_TEXTS; i++)
        add(b, greedy(&together[i]), prompt_of(i));
    finish(b);
    for (int i = 0; i < N_TEXTS; i++)
        if (!CHECK(is_as_alone(&together[i], i)))
            tap_note("%d: \"%s\", alone \"%s\"", i, together[i].text, alone[i].text);
    CHECK(together[0].finish == LACE_FINISH_LENGTH && together[0].stats.n_generated == N_NEW);
    lace_batcher_free(b);
}

/* What the cases use where texts may differ: one that the model would not write is told. */
static void a_text_is_what_the_logits_give(void)
{
    lace_token text[N_NEW];
    for (int i = 0; i < N_TEXTS; i += 5) {
        memcpy(text, alone[i].tokens, sizeof text);
        CHECK(fits_logits(i, text, N_NEW));
        text[N_NEW / 2]++;
        CHECK(!fits_logits(i, text, N_NEW));
    }
}

/* Steps of one generation alone, then of two, then of the other alone. */
static void a_text_that_comes_or_leaves_in_the_middle_changes_no_other(void)
{
    for (int n_before = 1; n_before < 20; n_before += 6) {
        lace_batcher *b = start(2, 0, true);
        if (!b)
            return;
        result cancelled;
        add(b, greedy(&together[0]), prompt_of(0));
        while (together[0].n_tokens < n_before)
            CHECK(lace_batcher_step(b));
        lace_generation *leaves = add(b, greedy(&cancelled), prompt_of(2));
        while (cancelled.n_tokens < 3)
            CHECK(lace_batcher_step(b));
        lace_batcher_cancel(b, leaves);
        CHECK(cancelled.finish == LACE_FINISH_CANCELLED &&
              memcmp(cancelled.tokens, alone[2].tokens, 3 * sizeof(lace_token)) == 0);
        for (int i = 0; i < 5; i++)
            lace_batcher_step(b);
        add(b, greedy(&together[1]), prompt_of(1));
        finish(b);
        CHECK(is_as_alone(&together[0], 0) && is_as_alone(&together[1], 1));
        lace_batcher_free(b);
    }
}

/* Whoever leaves in the middle leaves what was computed, and nothing that was computed ahead. */
static void a_text_cancelled_while_it_is_alone_leaves_its_beginning(void)
{
    lace_batcher *b = start(2, 0, true);
    if (!b)
        return;
    result first, second;
    lace_generation *g = add(b, greedy(&first), prompt_of(0));
    while (first.n_tokens < 9)
        CHECK(lace_batcher_step(b));
    lace_batcher_cancel(b, g);
    add(b, greedy(&second), prompt_of(0));
    finish(b);
    CHECK(second.stats.n_cached == second.stats.n_prompt - 1 && is_same(&second, &alone[0]));
    lace_batcher_stats stats;
    lace_batcher_count(b, &stats);
    CHECK(stats.kv_tokens_used == 0);
    lace_batcher_free(b);
}

static void a_known_beginning_is_not_computed_again_and_changes_nothing(void)
{
    lace_batcher *b = start(4, 0, true);
    if (!b)
        return;
    result first, second;
    add(b, greedy(&first), prompt_of(3));
    finish(b);
    add(b, greedy(&second), prompt_of(3));
    finish(b);
    CHECK(first.stats.n_cached == 0);
    CHECK(second.stats.n_cached == second.stats.n_prompt - 1);
    CHECK(is_same(&first, &second));
    lace_batcher_stats stats;
    lace_batcher_count(b, &stats);
    CHECK(stats.n_prefix_hits == (uint64_t)second.stats.n_cached);
    CHECK(stats.kv_tokens_used == 0 && stats.kv_tokens_kept > 0);
    lace_batcher_free(b);
}

static int n_shown, last_shown;

static void on_prompt_piece(void *user, const lace_piece *p)
{
    if (p->is_prompt) {
        CHECK(p->token == -1 && p->n_bytes == 0 && p->finish == LACE_FINISH_NONE);
        CHECK(n_shown == 0 ? p->stats->n_read == p->stats->n_cached
                           : p->stats->n_read > last_shown);
        last_shown = p->stats->n_read;
        n_shown++;
    } else {
        CHECK(last_shown == p->stats->n_prompt); /* all of it, before the first token */
    }
    (void)user;
}

static void how_far_a_prompt_is_read_is_told_if_asked_for(void)
{
    lace_batcher *b = start(4, 0, true);
    if (!b)
        return;
    for (int known = 0; known < 2; known++) {
        result unused;
        lace_generation_options o = greedy(&unused);
        o.shows_prompt = true;
        o.on_piece = on_prompt_piece;
        n_shown = last_shown = 0;
        add(b, o, prompt_of(3));
        finish(b);
        CHECK(n_shown >= 2);
    }
    lace_batcher_free(b);
}

static void owners_neither_find_nor_await_what_others_compute(void)
{
    lace_batcher *b = start(8, 0, true);
    if (!b)
        return;
    for (int i = 0; i < 8; i++) {
        lace_generation_options o = greedy(&together[i]);
        o.owner = (uint64_t)i / 4;
        add(b, o, prompt_of(1));
    }
    finish(b);
    lace_batcher_stats stats;
    lace_batcher_count(b, &stats);
    uint64_t n_prompt = (uint64_t)together[0].stats.n_prompt;
    CHECK(together[4].stats.n_cached == 0);
    CHECK(stats.n_prompt_tokens >= 2 * n_prompt && stats.n_prompt_tokens < 2 * n_prompt + 6 * 33);
    /* Nor does it wait for another's: both begin with the first step. */
    CHECK(together[4].stats.queue_ns < together[0].stats.queue_ns + together[0].stats.prompt_ns);
    for (int i = 1; i < 8; i++)
        CHECK(is_same(&together[0], &together[i]));
    lace_batcher_free(b);
}

static void equal_prompts_at_once_are_computed_once(void)
{
    lace_batcher *b = start(8, 0, true);
    if (!b)
        return;
    for (int i = 0; i < 8; i++)
        add(b, greedy(&together[i]), prompt_of(1));
    finish(b);
    lace_batcher_stats stats;
    lace_batcher_count(b, &stats);
    /* The first computes all; the others at most the page that was not full. */
    CHECK(stats.n_prompt_tokens < (uint64_t)together[0].stats.n_prompt + 7 * 33);
    for (int i = 1; i < 8; i++)
        CHECK(is_same(&together[0], &together[i]));
    lace_batcher_free(b);
}

static void a_pool_that_is_too_small_delays_generations_and_keeps_their_texts(void)
{
    lace_memory need;
    lace_session_options o = lace_session_options_default();
    o.n_context = CONTEXT;
    CHECK(lace_session_memory(model, &o, &need, NULL) == LACE_OK);
    for (int use_prefixes = 0; use_prefixes < 2; use_prefixes++) {
        lace_batcher *b = start(6, need.kv, use_prefixes);
        if (!b)
            return;
        for (int i = 0; i < N_TEXTS; i++) {
            lace_generation_options more = greedy(&together[i]);
            more.max_tokens = 100;
            add(b, more, prompt_of(i));
        }
        finish(b);
        lace_batcher_stats stats;
        lace_batcher_count(b, &stats);
        CHECK(stats.n_preempted > 0);
        CHECK(stats.kv_tokens == CONTEXT);
        for (int i = 0; i < N_TEXTS; i++)
            CHECK(together[i].n_tokens == 100 && begins_as_alone(&together[i], i));
        lace_batcher_free(b);
    }
}

/* To the last bit, whatever runs beside it, comes late, or has to give way. */
static void a_deterministic_batcher_computes_each_text_as_if_it_were_alone(void)
{
    static result first[N_TEXTS], second[N_TEXTS];
    lace_batcher_options o = lace_batcher_options_default();
    o.session.n_context = CONTEXT;
    o.session.n_batch = 24; /* prompts take two pieces */
    o.session.n_threads = 2;
    o.is_deterministic = true;
    for (int round = 0; round < 2; round++) {
        result *results = round ? second : first;
        lace_batcher *b = NULL;
        o.session.n_sequences = round ? 5 : 1;
        if (!CHECK(lace_batcher_create(model, &o, &b, NULL) == LACE_OK))
            return;
        for (int i = 0; i < N_TEXTS; i++) {
            lace_generation_options one = greedy(&results[i]);
            one.n_top = 0;
            add(b, one, prompt_of(i));
            if (!round)
                finish(b);
            for (int k = 0; round && k < 7 * i; k++)
                lace_batcher_step(b);
        }
        finish(b);
        lace_batcher_free(b);
    }
    for (int i = 0; i < N_TEXTS; i++)
        CHECK(first[i].n_tokens == N_NEW && is_same(&first[i], &second[i]) &&
              memcmp(first[i].logprobs, second[i].logprobs, sizeof first[i].logprobs) == 0);
}

static void a_cancelled_generation_ends_at_once_and_gives_its_memory_back(void)
{
    lace_batcher *b = start(2, 0, false);
    if (!b)
        return;
    result running, prefilling, waiting;
    lace_generation *g1 = add(b, greedy(&running), prompt_of(0));
    CHECK(lace_batcher_step(b) && running.n_tokens == 1);
    lace_generation *g2 = add(b, greedy(&prefilling), prompt_of(1));
    lace_generation *g3 = add(b, greedy(&waiting), prompt_of(2));
    lace_batcher_cancel(b, g3);
    CHECK(waiting.finish == LACE_FINISH_CANCELLED && waiting.n_tokens == 0);
    lace_batcher_cancel(b, g2);
    lace_batcher_cancel(b, g1);
    CHECK(running.finish == LACE_FINISH_CANCELLED && prefilling.finish == LACE_FINISH_CANCELLED);
    CHECK(!lace_batcher_step(b));
    lace_batcher_stats stats;
    lace_batcher_count(b, &stats);
    CHECK(stats.kv_tokens_used == 0 && stats.n_running == 0 && stats.n_waiting == 0);
    lace_batcher_free(b);
}

static void a_stop_ends_the_text_before_it_and_is_named(void)
{
    lace_batcher *b = start(2, 0, true);
    if (!b)
        return;
    /* A word in the middle of what will be written, over the border of tokens. */
    char stop[8] = "";
    memcpy(stop, alone[0].text + alone[0].n_text / 2, 5);
    const char *stops[] = {"never written", stop};
    result r;
    lace_generation_options o = greedy(&r);
    o.stops = stops;
    o.n_stops = 2;
    add(b, o, prompt_of(0));
    finish(b);
    size_t expected = (size_t)(strstr(alone[0].text, stop) - alone[0].text);
    CHECK(r.finish == LACE_FINISH_STOP && strcmp(r.stop, stop) == 0);
    CHECK(r.n_text == expected && memcmp(r.text, alone[0].text, expected) == 0);
    lace_batcher_free(b);
}

static void biases_ban_tokens_and_banning_all_is_an_error(void)
{
    lace_batcher *b = start(2, 0, true);
    if (!b)
        return;
    lace_model_info info;
    lace_model_describe(model, &info);
    lace_bias *biases = mem_calloc((size_t)info.n_vocab, sizeof *biases);
    for (int i = 0; i < info.n_vocab; i++)
        biases[i] = (lace_bias){i, -INFINITY};
    result r, other;
    lace_generation_options o = greedy(&r);
    o.biases = biases;
    o.n_biases = (size_t)info.n_vocab;
    add(b, o, prompt_of(0));
    add(b, greedy(&other), prompt_of(0));
    finish(b);
    CHECK(r.finish == LACE_FINISH_ERROR && r.status == LACE_E_ARG && r.n_tokens == 0);
    CHECK(is_same(&other, &alone[0]));
    biases[0].token = alone[0].tokens[0];
    o = greedy(&r);
    o.biases = biases;
    o.n_biases = 1;
    add(b, o, prompt_of(0));
    finish(b);
    CHECK(r.n_tokens == N_NEW && r.tokens[0] != alone[0].tokens[0]);
    mem_free(biases);
    lace_batcher_free(b);
}

static void log_probabilities_are_sorted_and_below_zero(void)
{
    lace_batcher *b = start(2, 0, true);
    if (!b)
        return;
    result r;
    lace_generation_options o = greedy(&r);
    o.n_top = 5;
    add(b, o, prompt_of(0));
    finish(b);
    CHECK(r.n_top == 5 && r.is_top_sorted && r.logprob_sum < 0);
    lace_batcher_free(b);
}

static void a_prompt_that_fills_the_context_is_refused(void)
{
    lace_batcher *b = start(1, 0, true);
    if (!b)
        return;
    lace_token tokens[CONTEXT] = {0};
    lace_generation_options o = lace_generation_options_default();
    lace_generation *g;
    lace_error err = {0};
    o.prompt = tokens;
    o.n_prompt = CONTEXT;
    CHECK(lace_batcher_add(b, &o, &g, &err) == LACE_E_CONTEXT && !g && strstr(err.text, "256"));
    o.n_prompt = 0;
    CHECK(lace_batcher_add(b, &o, &g, NULL) == LACE_E_ARG);
    tokens[0] = -1;
    o.n_prompt = 1;
    CHECK(lace_batcher_add(b, &o, &g, NULL) == LACE_E_ARG);
    lace_batcher_free(b);
}

/* What a text that outgrows its context goes on with. */
typedef struct refill {
    result r;
    lace_token tokens[CONTEXT];
    int n_kept, n_calls;
} refill;

static void on_refill_piece(void *user, const lace_piece *p)
{
    on_piece(&((refill *)user)->r, p);
}

static size_t give_last_tokens(void *user, const lace_token **tokens)
{
    refill *f = user;
    f->n_calls++;
    memcpy(f->tokens, f->r.tokens + f->r.n_tokens - f->n_kept,
           (size_t)f->n_kept * sizeof *f->tokens);
    *tokens = f->tokens;
    return (size_t)f->n_kept;
}

/* The sampler goes on where it was, so that the text is one text. */
static void a_full_context_may_be_exchanged(void)
{
    static refill f[2];
    lace_batcher_options o = lace_batcher_options_default();
    o.session.n_context = 48;
    o.session.n_sequences = 2;
    o.session.n_threads = 2;
    for (int together_with = 0; together_with < 2; together_with++) {
        lace_batcher *b = NULL;
        refill *now = &f[together_with];
        if (!CHECK(lace_batcher_create(model, &o, &b, NULL) == LACE_OK))
            return;
        result other;
        lace_generation_options g = greedy(&now->r);
        g.sampler.temperature = 0.7f;
        g.max_tokens = 100;
        g.ignore_end = g.fills_context = true;
        g.on_full = give_last_tokens;
        g.on_piece = on_refill_piece;
        g.user = now;
        now->n_kept = 20;
        add(b, g, "Once upon a time");
        if (together_with)
            add(b, greedy(&other), "The king");
        finish(b);
        CHECK(now->r.n_tokens == 100 && now->r.finish == LACE_FINISH_LENGTH && now->n_calls >= 2);
        lace_batcher_free(b);
    }
    CHECK(is_same(&f[0].r, &f[1].r));
    /* Nothing to go on with: it ends as it does without being asked. */
    lace_batcher *b = NULL;
    CHECK(lace_batcher_create(model, &o, &b, NULL) == LACE_OK);
    lace_generation_options g = greedy(&f[0].r);
    g.max_tokens = -1;
    g.ignore_end = true;
    g.on_full = give_last_tokens;
    g.on_piece = on_refill_piece;
    g.user = &f[0];
    f[0].n_kept = 0;
    add(b, g, "Once upon a time");
    finish(b);
    CHECK(f[0].r.finish == LACE_FINISH_LENGTH && f[0].r.stats.n_prompt + f[0].r.n_tokens == 48);
    f[0].n_kept = 48; /* more than it holds */
    f[0].r.n_tokens = 0;
    add(b, g, "Once upon a time");
    finish(b);
    CHECK(f[0].r.finish == LACE_FINISH_ERROR && f[0].r.status == LACE_E_CONTEXT);
    lace_batcher_free(b);
}

/* One context is all the room there is: a page that is known in part cannot be copied beside it. */
static void a_text_that_is_known_up_to_the_last_page_goes_on(void)
{
    lace_batcher *b = start(1, 0, true);
    if (!b)
        return;
    static result first, second;
    lace_generation_options o = greedy(&first);
    o.max_tokens = -1;
    o.ignore_end = true;
    add(b, o, "Once upon a time");
    finish(b);
    CHECK(first.finish == LACE_FINISH_LENGTH && first.n_tokens > 240);
    o = greedy(&second);
    o.max_tokens = 2;
    lace_token tokens[CONTEXT];
    size_t n = 0;
    CHECK(lace_tokenize(model, "Once upon a time", 16, LACE_TOKENIZE_ADD_SPECIAL, tokens, CONTEXT,
                        &n, NULL) == LACE_OK);
    memcpy(tokens + n, first.tokens, (240 - n) * sizeof *tokens);
    o.prompt = tokens;
    o.n_prompt = 240;
    lace_generation *g;
    CHECK(lace_batcher_add(b, &o, &g, NULL) == LACE_OK);
    finish(b);
    CHECK(second.finish == LACE_FINISH_LENGTH && second.n_tokens == 2);
    CHECK(second.tokens[0] == first.tokens[240 - n] && second.tokens[1] == first.tokens[241 - n]);
    lace_batcher_free(b);
}

static void no_token_is_chosen_where_none_is_wanted(void)
{
    lace_batcher *b = start(1, 0, true);
    if (!b)
        return;
    result r;
    lace_generation_options o = greedy(&r);
    o.max_tokens = 0;
    add(b, o, prompt_of(0));
    finish(b);
    CHECK(r.n_tokens == 0 && r.n_text == 0 && r.finish == LACE_FINISH_LENGTH);
    CHECK(r.stats.n_read == r.stats.n_prompt);
    lace_batcher_free(b);
}

static void every_failed_allocation_is_an_error_and_leaks_nothing(void)
{
    lace_batcher *b = start(2, 0, true);
    if (!b)
        return;
    for (long i = 0; i < 100000; i++) {
        result r;
        lace_generation_options o = greedy(&r);
        lace_token prompt[40];
        for (int k = 0; k < 40; k++)
            prompt[k] = k + 1;
        o.prompt = prompt;
        o.n_prompt = 40;
        o.max_tokens = 2;
        lace_generation *g;
        mem_fail_at(i, false);
        lace_status status = lace_batcher_add(b, &o, &g, NULL);
        if (status == LACE_OK)
            finish(b);
        bool is_done = mem_count() <= i;
        mem_fail_at(-1, false);
        CHECK(status == LACE_OK || status == LACE_E_NOMEM);
        if (is_done) {
            CHECK(r.finish == LACE_FINISH_LENGTH && i > 3);
            break;
        }
    }
    lace_batcher_free(b);
}

static void the_model_opens(void)
{
    char *path = data_path("models/tales-4m-f16.gguf");
    lace_error err;
    lace_model_options o = lace_model_options_default();
    o.device = getenv("LACE_DEVICE");
    if (CHECK(path != NULL) && !CHECK(lace_model_open(path, &o, &model, &err) == LACE_OK))
        tap_note("%s", err.text);
    free(path);
}

int main(void)
{
    CASE(the_model_opens);
    if (!model)
        return tap_end();
    CASE(generations_that_run_together_write_what_each_writes_alone);
    CASE(a_text_is_what_the_logits_give);
    CASE(a_text_that_comes_or_leaves_in_the_middle_changes_no_other);
    CASE(a_text_cancelled_while_it_is_alone_leaves_its_beginning);
    CASE(a_known_beginning_is_not_computed_again_and_changes_nothing);
    CASE(how_far_a_prompt_is_read_is_told_if_asked_for);
    CASE(owners_neither_find_nor_await_what_others_compute);
    CASE(equal_prompts_at_once_are_computed_once);
    CASE(a_pool_that_is_too_small_delays_generations_and_keeps_their_texts);
    CASE(a_deterministic_batcher_computes_each_text_as_if_it_were_alone);
    CASE(a_cancelled_generation_ends_at_once_and_gives_its_memory_back);
    CASE(a_stop_ends_the_text_before_it_and_is_named);
    CASE(biases_ban_tokens_and_banning_all_is_an_error);
    CASE(log_probabilities_are_sorted_and_below_zero);
    CASE(a_prompt_that_fills_the_context_is_refused);
    CASE(a_full_context_may_be_exchanged);
    CASE(a_text_that_is_known_up_to_the_last_page_goes_on);
    CASE(no_token_is_chosen_where_none_is_wanted);
    CASE(every_failed_allocation_is_an_error_and_leaks_nothing);
    lace_model_close(model);
    return tap_end();
}
