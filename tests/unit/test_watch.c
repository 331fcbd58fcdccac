/* Reasoning ends with its budget, and what only repeats itself ends: whoever chooses the tokens. */
#include "engine/watch.h"

#include <string.h>

#include "tap.h"
#include "tiny_model.h"

enum { MOST = 3000 };

/* ---- The watch alone ------------------------------------------------------------------------- */

static watch w;
static lace_token said[MOST];
static int32_t n_said;

static void start(const lace_reasoning *r)
{
    watch_init(&w, r, true);
    n_said = 0;
}

static void say(lace_token token, const char *piece)
{
    said[n_said++] = token;
    watch_note(&w, said, n_said, text_of(piece));
}

/* Tokens until a passage of a length is taken for a loop; 0: it is not. */
static int32_t count_until_loop(int32_t period)
{
    start(&(lace_reasoning){.max_tokens = -1});
    while (n_said < MOST - 1 && w.text_cut == LACE_CUT_NONE)
        say(n_said % period, "");
    return w.text_cut == LACE_CUT_LOOP ? n_said : 0;
}

static void a_passage_again_and_again_is_a_loop(void)
{
    CHECK(count_until_loop(1) == 260);
    CHECK(count_until_loop(40) == 256 + 4 * 40);
    CHECK(count_until_loop(300) == 6 * 300);
    CHECK(count_until_loop(WATCH_LONGEST + 1) == 0);
}

static void a_text_that_goes_on_is_no_loop(void)
{
    start(&(lace_reasoning){.max_tokens = -1});
    for (int32_t i = 0; i < MOST - 1; i++) /* a table: the same but for a number that grows */
        say(i % 10 == 9 ? 1000 + i / 10 : i % 10, "");
    CHECK(w.text_cut == LACE_CUT_NONE);
}

static void reasoning_is_found_between_its_words(void)
{
    static const lace_token closing[] = {90, 91};
    lace_reasoning r = {"<think>", "</think>", false, 3, closing, 2};
    start(&r);
    say(1, "Hm <thi");
    CHECK(!w.is_open && watch_free(&w) == 3);
    say(2, "nk>so");
    CHECK(w.is_open && watch_forced(&w) == -1);
    say(3, "a");
    say(4, "b");
    CHECK(watch_free(&w) == 1 && watch_forced(&w) == -1);
    say(5, "c");
    CHECK(watch_forced(&w) == 90 && watch_free(&w) == 0 && w.reasoning_cut == LACE_CUT_BUDGET);
    say(90, "\n</thi");
    CHECK(watch_forced(&w) == 91);
    say(91, "nk>");
    CHECK(watch_forced(&w) == -1 && !w.is_open);
    for (int32_t i = 0; i < 10; i++)
        say(i, "x");
    CHECK(watch_forced(&w) == -1);
}

static void reasoning_that_ends_in_time_is_left_alone(void)
{
    static const lace_token closing[] = {90};
    start(&(lace_reasoning){NULL, "</think>", true, 3, closing, 1});
    CHECK(w.is_open);
    say(1, "a");
    say(2, "</think>b");
    for (int32_t i = 0; i < 10; i++)
        say(i, "c");
    CHECK(watch_forced(&w) == -1 && w.reasoning_cut == LACE_CUT_NONE);
}

static void reasoning_that_repeats_itself_is_closed(void)
{
    static const lace_token closing[] = {90};
    start(&(lace_reasoning){NULL, "</think>", true, -1, closing, 1});
    while (n_said < 400 && watch_forced(&w) < 0)
        say(5, "again ");
    CHECK(n_said == 260 && w.reasoning_cut == LACE_CUT_LOOP && w.text_cut == LACE_CUT_NONE);
    say(90, "</think>");
    for (int32_t i = 0; i < 200; i++)
        say(5, "again ");
    CHECK(w.text_cut == LACE_CUT_NONE); /* counted from the answer on */
    for (int32_t i = 0; i < 100; i++)
        say(5, "again ");
    CHECK(w.text_cut == LACE_CUT_LOOP);
}

/* ---- In a batcher ---------------------------------------------------------------------------- */

typedef struct result {
    lace_token tokens[MOST];
    int n_tokens;
    lace_finish finish;
    lace_generation_stats stats;
} result;

static void on_piece(void *user, const lace_piece *p)
{
    result *r = user;
    if (p->token >= 0 && r->n_tokens < MOST)
        r->tokens[r->n_tokens++] = p->token;
    r->finish = p->finish;
    r->stats = *p->stats;
}

/* Generate with so many texts at once; the first has these options. */
static void generate(const char *device, int n_texts, const lace_generation_options *given,
                     result *out)
{
    static result others;
    tiny_options made = tiny_options_default();
    made.is_bigram = true;
    buf bytes = tiny_model_bytes(made);
    lace_model_options mo = lace_model_options_default();
    lace_batcher_options bo = lace_batcher_options_default();
    lace_model *model = NULL;
    lace_batcher *b = NULL;
    mo.device = device;
    bo.session.n_sequences = 4;
    bo.session.n_context = 2048;
    bo.session.n_threads = 1;
    memset(out, 0, sizeof *out);
    if (CHECK(lace_model_open_memory(bytes.data, bytes.size, "tiny", &mo, &model, NULL) ==
              LACE_OK) &&
        CHECK(lace_batcher_create(model, &bo, &b, NULL) == LACE_OK))
        for (int i = 0; i < n_texts; i++) {
            static const lace_token prompt[] = {5, 6, 7};
            lace_generation_options o = *given;
            lace_generation *g;
            memset(&others, 0, sizeof others);
            o.prompt = prompt;
            o.n_prompt = 3;
            o.sampler.temperature = 0;
            o.ignore_end = true;
            o.on_piece = on_piece;
            o.user = i == 0 ? out : &others;
            CHECK(lace_batcher_add(b, &o, &g, NULL) == LACE_OK);
        }
    while (b && lace_batcher_step(b))
        continue;
    lace_batcher_free(b);
    lace_model_close(model);
    buf_deinit(&bytes);
}

static const char *const devices[] = {"cpu", "ref", "ref:1"};

static void a_text_that_repeats_itself_ends_on_every_device(void)
{
    static result first, r;
    lace_generation_options o = lace_generation_options_default();
    o.max_tokens = 1500;
    o.breaks_loops = true;
    for (size_t i = 0; i < 3; i++)
        for (int n = 1; n <= 3; n += 2) {
            generate(devices[i], n, &o, &r);
            CHECK(r.finish == LACE_FINISH_LENGTH && r.stats.text_cut == LACE_CUT_LOOP);
            CHECK(r.n_tokens >= 260 && r.n_tokens < 1500);
            if (i == 0 && n == 1)
                first = r;
            CHECK(r.n_tokens == first.n_tokens &&
                  memcmp(r.tokens, first.tokens, (size_t)r.n_tokens * sizeof(lace_token)) == 0);
        }
    o.breaks_loops = false;
    o.max_tokens = first.n_tokens + 10;
    generate("cpu", 1, &o, &r);
    CHECK(r.n_tokens == o.max_tokens && r.stats.text_cut == LACE_CUT_NONE);
}

static void closing_tokens_are_said_on_every_device(void)
{
    static result first, r;
    static const lace_token closing[] = {11, 12, 13};
    lace_generation_options o = lace_generation_options_default();
    o.max_tokens = 40;
    o.reasoning = (lace_reasoning){NULL, "never", true, 9, closing, 3};
    for (size_t i = 0; i < 3; i++)
        for (int n = 1; n <= 3; n += 2) {
            generate(devices[i], n, &o, &r);
            CHECK(r.n_tokens == 40 && r.stats.reasoning_cut == LACE_CUT_BUDGET);
            CHECK(memcmp(r.tokens + 9, closing, sizeof closing) == 0);
            if (i == 0 && n == 1)
                first = r;
            CHECK(memcmp(r.tokens, first.tokens, 40 * sizeof(lace_token)) == 0);
        }
    o.reasoning.max_tokens = -1;
    generate("cpu", 1, &o, &r);
    CHECK(memcmp(r.tokens, first.tokens, 9 * sizeof(lace_token)) == 0 &&
          memcmp(r.tokens + 9, closing, sizeof closing) != 0);
}

static void reasoning_is_closed_in_a_loop_on_every_device(void)
{
    static result first, r;
    static const lace_token closing[] = {11, 12, 13};
    lace_generation_options o = lace_generation_options_default();
    o.max_tokens = 1500;
    o.breaks_loops = true;
    o.reasoning = (lace_reasoning){NULL, "never", true, -1, closing, 3};
    for (size_t i = 0; i < 3; i++)
        for (int n = 1; n <= 3; n += 2) {
            generate(devices[i], n, &o, &r);
            CHECK(r.stats.reasoning_cut == LACE_CUT_LOOP && r.stats.text_cut == LACE_CUT_LOOP);
            if (i == 0 && n == 1)
                first = r;
            CHECK(r.n_tokens == first.n_tokens &&
                  memcmp(r.tokens, first.tokens, (size_t)r.n_tokens * sizeof(lace_token)) == 0);
        }
}

int main(void)
{
    CASE(a_passage_again_and_again_is_a_loop);
    CASE(a_text_that_goes_on_is_no_loop);
    CASE(reasoning_is_found_between_its_words);
    CASE(reasoning_that_ends_in_time_is_left_alone);
    CASE(reasoning_that_repeats_itself_is_closed);
    CASE(a_text_that_repeats_itself_ends_on_every_device);
    CASE(closing_tokens_are_said_on_every_device);
    CASE(reasoning_is_closed_in_a_loop_on_every_device);
    return tap_end();
}
