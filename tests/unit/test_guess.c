/*
 * Guesses in the batcher: whatever is guessed, and wherever a text ends, it is the text that comes
 * without.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "lace.h"
#include "rows_apart.h"
#include "status_check.h"
#include "tap.h"

enum { N_TEXTS = 4, N_NEW = 32, CONTEXT = 96 };

static lace_model *model;

static const char *const prompts[N_TEXTS] = {
    "The fox said: come with me, come with me, come with me, come",
    "One two three four. One two three four. One two",
    "\"Good day,\" said the wolf. \"Good day,\" said",
    "He went and went and went and went and",
};

/* What came of a generation. */
typedef struct result {
    char text[4096];
    size_t n_text;
    lace_token tokens[2 * CONTEXT];
    float logprobs[2 * CONTEXT];
    int n_tokens, n_full;
    lace_finish finish;
    lace_generation_stats stats;
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
    r->stats = *p->stats;
}

/*
 * How to guess. Sums of several rows are rounded in other ways than those of one; with exact
 * arithmetic the difference is so small that no choice depends on it.
 */
typedef struct way {
    bool use_lookup, use_draft;
    int32_t n_draft;
} way;

static const way ways[] = {{true, false, 8}, {false, true, 6}, {true, true, 32}};
enum { N_WAYS = sizeof ways / sizeof ways[0] };

static lace_batcher_options options_for(const way *w)
{
    lace_batcher_options o = lace_batcher_options_default();
    o.session.n_context = CONTEXT;
    o.session.n_sequences = 5;
    o.session.n_batch = 64;
    o.session.n_threads = 2;
    o.session.kv_type = LACE_KV_F32;
    if (w) {
        o.use_lookup = w->use_lookup;
        o.draft = w->use_draft ? model : NULL;
        o.n_draft = w->n_draft;
        o.guesses_always = true;
    }
    return o;
}

static lace_batcher *start(const lace_batcher_options *o)
{
    lace_batcher *b = NULL;
    lace_error err = {0};
    if (!CHECK(lace_batcher_create(model, o, &b, &err) == LACE_OK))
        tap_note("%s", err.text);
    return b;
}

static lace_generation_options greedy(void)
{
    lace_generation_options o = lace_generation_options_default();
    o.sampler.temperature = 0;
    o.max_tokens = N_NEW;
    return o;
}

static lace_generation *add(lace_batcher *b, lace_generation_options o, const char *prompt,
                            result *r)
{
    lace_token tokens[CONTEXT];
    size_t n = 0;
    memset(r, 0, sizeof *r);
    CHECK(lace_tokenize(model, prompt, strlen(prompt), LACE_TOKENIZE_ADD_SPECIAL, tokens, CONTEXT,
                        &n, NULL) == LACE_OK);
    o.prompt = tokens;
    o.n_prompt = n;
    o.on_piece = on_piece;
    o.user = r;
    lace_generation *g = NULL;
    CHECK(lace_batcher_add(b, &o, &g, NULL) == LACE_OK);
    return g;
}

static bool is_same(const result *a, const result *b)
{
    return a->n_tokens == b->n_tokens && a->finish == b->finish &&
           memcmp(a->tokens, b->tokens, sizeof a->tokens[0] * (size_t)a->n_tokens) == 0 &&
           a->n_text == b->n_text && memcmp(a->text, b->text, a->n_text) == 0;
}

/* All texts, `n_together` of them at a time. */
static void write_texts(const lace_batcher_options *bo, const lace_generation_options *o,
                        int n_together, result *out, lace_batcher_stats *stats)
{
    lace_batcher *b = start(bo);
    if (!b)
        return;
    for (int i = 0; i < N_TEXTS; i += n_together) {
        for (int k = i; k < i + n_together && k < N_TEXTS; k++)
            add(b, *o, prompts[k], &out[k]);
        while (lace_batcher_step(b))
            continue;
    }
    lace_batcher_count(b, stats);
    CHECK(stats->kv_tokens_used == 0);
    uint64_t n_guessed = 0, n_accepted = 0;
    for (int i = 0; i < N_TEXTS; i++) {
        n_guessed += (uint64_t)out[i].stats.n_guessed;
        n_accepted += (uint64_t)out[i].stats.n_accepted;
    }
    CHECK(n_guessed == stats->n_guessed && n_accepted == stats->n_accepted);
    lace_batcher_free(b);
}

static result plain[N_TEXTS], guessed[N_TEXTS + 1];

/* A draw, or the last bits, may depend on what was computed together: the case cannot run. */
static bool is_skipped(lace_model *m)
{
    bool is_apart = rounds_rows_apart(m);
    if (is_apart)
        tap_skip("this device rounds sums of several rows otherwise than those of one");
    return is_apart;
}

/* Every way to guess gives the texts that come without guesses. Returns the counts of the last. */
static lace_batcher_stats compare(const lace_generation_options *o, const char *what)
{
    lace_batcher_stats stats = {0}, none;
    lace_batcher_options without = options_for(NULL);
    write_texts(&without, o, 1, plain, &none);
    CHECK(none.n_guessed == 0 && none.n_accepted == 0);
    for (int i = 0; i < N_WAYS; i++)
        for (int n_together = 1; n_together <= 3; n_together += 2) {
            lace_batcher_options with = options_for(&ways[i]);
            write_texts(&with, o, n_together, guessed, &stats);
            for (int k = 0; k < N_TEXTS; k++)
                if (!CHECK(is_same(&plain[k], &guessed[k])))
                    tap_note("%s, way %d, %d together, \"%s\": %d tokens \"%s\", expected %d "
                             "\"%s\"",
                             what, i, n_together, prompts[k], guessed[k].n_tokens, guessed[k].text,
                             plain[k].n_tokens, plain[k].text);
            CHECK(stats.n_accepted <= stats.n_guessed);
            CHECK(!ways[i].use_draft || (stats.n_accepted > 0 && stats.n_steps < none.n_steps));
        }
    return stats;
}

static void the_greedy_text_is_the_same(void)
{
    lace_generation_options o = greedy();
    compare(&o, "greedy");
    /* A model that guesses for itself is right but where texts end. */
    lace_batcher_stats stats;
    lace_batcher_options with = options_for(&ways[1]);
    write_texts(&with, &o, 1, guessed, &stats);
    tap_note("%d steps, %d of %d guesses right", (int)stats.n_steps, (int)stats.n_accepted,
             (int)stats.n_guessed);
    CHECK(stats.n_accepted == stats.n_guessed && stats.n_steps < N_TEXTS * N_NEW / 3);
}

static void the_drawn_text_is_the_same_and_many_guesses_are_wrong(void)
{
    if (is_skipped(model))
        return;
    lace_generation_options o = greedy();
    o.sampler.temperature = 0.9f;
    o.sampler.seed = 11;
    lace_batcher_stats stats = compare(&o, "drawn");
    CHECK(stats.n_accepted < stats.n_guessed);
    o.sampler.repeat_penalty = 1.2f;
    compare(&o, "penalties");
}

static void texts_end_where_they_end_without(void)
{
    static const char *const stops[] = {"said", "went", "three f"};
    lace_generation_options o = greedy();
    o.stops = stops;
    o.n_stops = 3;
    compare(&o, "stops");
    for (int n = 1; n < 8; n += 2) {
        o = greedy();
        o.max_tokens = n;
        lace_batcher_options with = options_for(&ways[1]);
        lace_batcher_stats stats;
        write_texts(&with, &o, 2, guessed, &stats);
        for (int k = 0; k < N_TEXTS; k++)
            CHECK(guessed[k].n_tokens == n && guessed[k].finish == LACE_FINISH_LENGTH);
    }
}

static void texts_fill_the_context(void)
{
    for (int fills = 0; fills < 2; fills++) {
        lace_generation_options o = greedy();
        o.max_tokens = -1;
        o.ignore_end = true;
        o.fills_context = fills;
        compare(&o, "context");
        for (int k = 0; k < N_TEXTS; k++)
            CHECK(guessed[k].finish == LACE_FINISH_LENGTH &&
                  guessed[k].stats.n_prompt + guessed[k].n_tokens == CONTEXT + fills);
    }
}

static void texts_have_the_form_of_a_grammar(void)
{
    static const char regex[] = "( (one|two|three|four|the king|and|went|me),?){4,9}\\.";
    lace_grammar *grammar = NULL;
    CHECK(lace_grammar_create(model, LACE_GRAMMAR_REGEX, regex, strlen(regex), &grammar, NULL) ==
          LACE_OK);
    lace_generation_options o = greedy();
    o.grammar = grammar;
    compare(&o, "grammar");
    for (int k = 0; k < N_TEXTS; k++)
        CHECK(guessed[k].finish == LACE_FINISH_STOP && guessed[k].n_text > 8);
    lace_grammar_free(grammar);
}

/*
 * Behind words that are guessed, an ambiguous grammar takes so long that choices are made late, on
 * another thread. How many are, and with them how many guesses, depends on the machine's load.
 */
static void choices_that_take_long_come_behind_guesses(void)
{
    static const char gbnf[] = "root ::= \" three four. One two three four. One\" item{,26}\n"
                               "item ::= x? [^01]\nx ::= [a-z ] x?";
    lace_grammar *grammar = NULL;
    result r[2];
    lace_generation_options o = greedy();
    CHECK(lace_grammar_create(model, LACE_GRAMMAR_GBNF, gbnf, strlen(gbnf), &grammar, NULL) ==
          LACE_OK);
    o.grammar = grammar;
    o.max_tokens = 12;
    for (int i = 0; i < 2; i++) {
        lace_batcher_options bo = options_for(i ? &ways[0] : NULL);
        lace_batcher *b = start(&bo);
        if (!b)
            return;
        add(b, o, prompts[1], &r[i]);
        while (lace_batcher_step(b))
            continue;
        lace_batcher_free(b);
    }
    CHECK(is_same(&r[0], &r[1]) && r[1].n_tokens == 12 && r[1].finish == LACE_FINISH_LENGTH);
    lace_grammar_free(grammar);
}

static lace_model *open_on(const char *device)
{
    char *path = data_path("models/tales-4m-f16.gguf");
    lace_model *m = NULL;
    lace_error err;
    lace_model_options o = lace_model_options_default();
    o.device = device;
    o.use_exact = true;
    CHECK(path && is_ok(lace_model_open(path, &o, &m, &err), &err));
    free(path);
    return m;
}

static void no_end_comes_before_the_least_number_of_tokens(void)
{
    lace_model_info info;
    lace_model_describe(model, &info);
    lace_bias bias = {info.eos, 100};
    lace_generation_options o = greedy();
    o.biases = &bias;
    o.n_biases = 1;
    o.min_tokens = 11;
    lace_batcher_options with = options_for(&ways[2]);
    lace_batcher_stats stats;
    write_texts(&with, &o, 2, guessed, &stats);
    for (int k = 0; k < N_TEXTS; k++)
        CHECK(guessed[k].n_tokens == 12 && guessed[k].finish == LACE_FINISH_STOP);
    CHECK(stats.n_guessed > 0);
}

/* A device that chooses by itself is told for each row what may not come behind it. */
static void nor_does_it_where_the_device_chooses(void)
{
    lace_model *usual = model;
    model = open_on("ref:1");
    if (model)
        no_end_comes_before_the_least_number_of_tokens();
    lace_model_close(model);
    model = usual;
}

static void probabilities_are_those_of_the_tokens(void)
{
    lace_generation_options o = greedy();
    o.n_top = 3;
    lace_batcher_stats stats;
    lace_batcher_options without = options_for(NULL), with = options_for(&ways[2]);
    write_texts(&without, &o, 1, plain, &stats);
    write_texts(&with, &o, 1, guessed, &stats);
    /* Operands of f16, where several rows have them and one has not, are off by up to 2^-11. */
    float most = rounds_rows_apart(model) ? 4e-3f : 1e-3f;
    for (int k = 0; k < N_TEXTS; k++)
        for (int i = 0; i < plain[k].n_tokens; i++)
            if (!CHECK(fabsf(plain[k].logprobs[i] - guessed[k].logprobs[i]) < most))
                tap_note("%d, token %d: %f, expected %f", k, i, (double)guessed[k].logprobs[i],
                         (double)plain[k].logprobs[i]);
}

static void a_small_pool_and_many_texts_do_without(void)
{
    lace_memory need;
    lace_session_options one = lace_session_options_default();
    lace_generation_options o = greedy();
    lace_batcher_stats stats;
    lace_batcher_options without = options_for(NULL), with = options_for(&ways[2]);
    one.n_context = CONTEXT;
    one.kv_type = LACE_KV_F32;
    CHECK(lace_session_memory(model, &one, &need, NULL) == LACE_OK);
    write_texts(&without, &o, 1, plain, &stats);
    with.session.kv_bytes = need.kv;
    write_texts(&with, &o, N_TEXTS, guessed, &stats);
    for (int k = 0; k < N_TEXTS; k++)
        CHECK(is_same(&plain[k], &guessed[k]));
    /* More than guesses are always made for. */
    with = options_for(&ways[2]);
    o.max_tokens = 6;
    lace_batcher *b = start(&with);
    for (int i = 0; b && i < 5; i++)
        add(b, o, prompts[i % N_TEXTS], &guessed[i]);
    while (b && lace_batcher_step(b))
        continue;
    if (b)
        lace_batcher_count(b, &stats);
    lace_batcher_free(b);
    CHECK(stats.n_guessed == 0);
}

/* Eight texts, greedy and drawn, as a deterministic batcher writes them; the usual arithmetic. */
enum { N_EIGHT = 8 };

static lace_batcher_stats write_eight(lace_model *usual, const way *w, bool always, bool together,
                                      result *out)
{
    lace_model *exact = model;
    lace_batcher_stats stats = {0};
    model = usual;
    lace_batcher_options bo = options_for(w);
    bo.is_deterministic = true;
    bo.guesses_always = always;
    bo.session.n_sequences = N_EIGHT;
    bo.session.kv_type = LACE_KV_F16;
    lace_batcher *b = start(&bo);
    for (int i = 0; b && i < N_EIGHT; i++) {
        lace_generation_options o = greedy();
        o.n_top = 1;
        o.max_tokens = 48;
        o.sampler.temperature = i < N_TEXTS ? 0 : 0.8f;
        o.sampler.seed = (uint64_t)(i + 1);
        add(b, o, prompts[i % N_TEXTS], &out[i]);
        while (!together && lace_batcher_step(b))
            continue;
    }
    while (b && lace_batcher_step(b))
        continue;
    if (b)
        lace_batcher_count(b, &stats);
    lace_batcher_free(b);
    model = exact;
    return stats;
}

static void deterministic_texts_are_the_same_to_the_bit(void)
{
    static result alone[N_EIGHT], got[N_EIGHT];
    char *path = data_path("models/tales-4m-f16.gguf");
    lace_model_options o = lace_model_options_default();
    lace_model *usual = NULL;
    uint64_t n_guessed = 0;
    o.device = getenv("LACE_DEVICE");
    CHECK(lace_model_open(path, &o, &usual, NULL) == LACE_OK);
    free(path);
    if (!usual || is_skipped(usual)) {
        lace_model_close(usual);
        return;
    }
    lace_batcher_stats apart = write_eight(usual, NULL, false, false, alone), stats;
    for (int i = 0; i < 3 * N_WAYS + 1; i++) {
        const way *w = i < 3 * N_WAYS ? &ways[i / 3] : NULL;
        stats = write_eight(usual, w, i % 3 == 0, i % 3 > 0, got);
        n_guessed += stats.n_guessed;
        if (i % 3 > 0) /* computed together */
            CHECK(stats.n_steps < apart.n_steps / 2);
        for (int k = 0; k < N_EIGHT; k++) {
            bool is_equal = is_same(&alone[k], &got[k]) &&
                            memcmp(alone[k].logprobs, got[k].logprobs,
                                   (size_t)alone[k].n_tokens * sizeof(float)) == 0;
            if (!CHECK(is_equal))
                tap_note("way %d, text %d: \"%s\", expected \"%s\"", i, k, got[k].text,
                         alone[k].text);
        }
    }
    tap_note("%llu guesses", (unsigned long long)n_guessed);
    CHECK(n_guessed > 100);
    lace_model_close(usual);
}

static void another_text_may_come_and_leave_in_the_middle(void)
{
    lace_generation_options o = greedy();
    lace_batcher_stats stats;
    lace_batcher_options without = options_for(NULL), with = options_for(&ways[2]);
    write_texts(&without, &o, 1, plain, &stats);
    lace_batcher *b = start(&with);
    if (!b)
        return;
    result leaves;
    add(b, o, prompts[1], &guessed[1]);
    while (guessed[1].n_tokens < 10)
        CHECK(lace_batcher_step(b));
    lace_generation *g = add(b, o, prompts[2], &leaves);
    while (leaves.n_tokens < 5)
        CHECK(lace_batcher_step(b));
    lace_batcher_cancel(b, g);
    CHECK(leaves.finish == LACE_FINISH_CANCELLED &&
          memcmp(leaves.tokens, plain[2].tokens, 5 * sizeof(lace_token)) == 0);
    add(b, o, prompts[3], &guessed[3]);
    while (lace_batcher_step(b))
        continue;
    CHECK(is_same(&guessed[1], &plain[1]) && is_same(&guessed[3], &plain[3]));
    lace_batcher_count(b, &stats);
    CHECK(stats.n_accepted > 0 && stats.kv_tokens_used == 0);
    lace_batcher_free(b);
}

static void options_outside_their_range_are_refused(void)
{
    lace_batcher_options o = options_for(&ways[0]);
    lace_batcher *b;
    for (int n = 0; n <= 33; n += 33) {
        o.n_draft = n;
        CHECK(lace_batcher_create(model, &o, &b, NULL) == LACE_E_ARG && !b);
    }
}

static void the_model_opens(void)
{
    model = open_on(getenv("LACE_DEVICE"));
}

int main(void)
{
    CASE(the_model_opens);
    if (!model)
        return tap_end();
    CASE(the_greedy_text_is_the_same);
    CASE(the_drawn_text_is_the_same_and_many_guesses_are_wrong);
    CASE(texts_end_where_they_end_without);
    CASE(texts_fill_the_context);
    CASE(texts_have_the_form_of_a_grammar);
    CASE(choices_that_take_long_come_behind_guesses);
    CASE(no_end_comes_before_the_least_number_of_tokens);
    CASE(nor_does_it_where_the_device_chooses);
    CASE(probabilities_are_those_of_the_tokens);
    CASE(a_small_pool_and_many_texts_do_without);
    CASE(deterministic_texts_are_the_same_to_the_bit);
    CASE(another_text_may_come_and_leave_in_the_middle);
    CASE(options_outside_their_range_are_refused);
    lace_model_close(model);
    return tap_end();
}
