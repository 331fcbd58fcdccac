/* Speculation: whatever is guessed, the text is the one that comes without. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "data.h"
#include "lace.h"
#include "command.h"
#include "tap.h"
#include "tiny_model.h"

enum { N_NEW = 60, MAX_TEXT = 256, N_DRAFT = 6 };

static const char *const prompts[] = {
    "Once upon a time there was a king who had three sons.",
    "The fox said: come with me, come with me, come with me, come",
    "One two three four. One two three four. One two",
    "\"Good day,\" said the wolf. \"Good day,\" said",
};
enum { N_PROMPTS = sizeof prompts / sizeof prompts[0] };

static lace_model *open_tales(void)
{
    char *path = data_path("models/tales-4m-f16.gguf");
    lace_model *model = NULL;
    if (path)
        CHECK(lace_model_open(path, NULL, &model, NULL) == LACE_OK);
    free(path);
    return model;
}

static lace_session *start(lace_model *model, int32_t n_outputs)
{
    lace_session_options o = lace_session_options_default();
    o.n_context = MAX_TEXT;
    o.n_outputs = n_outputs;
    o.kv_type = LACE_KV_F32;
    o.n_threads = 2;
    lace_session *session = NULL;
    CHECK(lace_session_create(model, &o, &session, NULL) == LACE_OK);
    return session;
}

/* Tokenize and evaluate a prompt. Returns how many tokens it has. */
static size_t read_prompt(lace_model *model, lace_session *session, const char *prompt,
                          lace_token *tokens)
{
    size_t n = 0;
    lace_item items[MAX_TEXT];
    CHECK(lace_tokenize(model, prompt, strlen(prompt), LACE_TOKENIZE_ADD_SPECIAL, tokens, MAX_TEXT,
                        &n, NULL) == LACE_OK);
    for (size_t i = 0; i < n; i++)
        items[i] = (lace_item){.token = tokens[i], .want_logits = i + 1 == n};
    CHECK(lace_session_truncate(session, 0, 0, NULL) == LACE_OK);
    CHECK(lace_session_eval(session, items, n, NULL) == LACE_OK);
    return n;
}

static lace_sampler *make_sampler(const lace_model *model, float temperature)
{
    lace_sampler_options o = lace_sampler_options_default();
    o.temperature = temperature;
    o.seed = 5;
    lace_sampler *sampler = NULL;
    lace_model_info info;
    lace_model_describe(model, &info);
    CHECK(lace_sampler_create(&o, info.n_vocab, &sampler, NULL) == LACE_OK);
    return sampler;
}

/* N_NEW tokens after a prompt; `sp` NULL: one at a time. */
static void generate(lace_model *model, lace_session *session, lace_speculator *sp,
                     const char *prompt, float temperature, lace_token *out)
{
    lace_token tokens[MAX_TEXT];
    size_t n = read_prompt(model, session, prompt, tokens);
    lace_sampler *sampler = make_sampler(model, temperature);
    if (sp)
        CHECK(lace_speculator_begin(sp, tokens, n, NULL) == LACE_OK);
    for (int i = 0; i < N_NEW; i++) {
        const float *logits = sp ? lace_speculator_logits(sp) : lace_session_logits(session, 0);
        if (!CHECK(logits != NULL))
            break;
        CHECK(lace_sampler_sample(sampler, logits, &out[i], NULL) == LACE_OK);
        lace_sampler_accept(sampler, out[i]);
        lace_item item = {.token = out[i], .want_logits = true};
        CHECK((sp ? lace_speculator_push(sp, out[i], NULL)
                  : lace_session_eval(session, &item, 1, NULL)) == LACE_OK);
    }
    lace_sampler_free(sampler);
}

/* The same text with and without, for all prompts. Returns the counts of all. */
static lace_speculation compare(lace_model *model, const lace_speculator_options *o,
                                float temperature)
{
    lace_session *plain = start(model, 1), *session = start(model, N_DRAFT + 1);
    lace_speculator *sp = NULL;
    lace_error err = {LACE_OK, ""};
    if (!CHECK(lace_speculator_create(session, 0, o, &sp, &err) == LACE_OK))
        tap_note("%s", err.text);
    for (int i = 0; i < N_PROMPTS && sp; i++) {
        lace_token expected[N_NEW] = {0}, found[N_NEW] = {0};
        generate(model, plain, NULL, prompts[i], temperature, expected);
        generate(model, session, sp, prompts[i], temperature, found);
        if (!CHECK(memcmp(expected, found, sizeof found) == 0))
            tap_note("another text after \"%s\"", prompts[i]);
    }
    lace_speculation count = {0};
    if (sp)
        lace_speculator_count(sp, &count);
    tap_note("%d tokens in %d evaluations, %d of %d guesses right", (int)count.n_tokens,
             (int)count.n_evals, (int)count.n_accepted, (int)count.n_guessed);
    CHECK(count.n_tokens == N_PROMPTS * N_NEW);
    CHECK(count.n_evals + count.n_accepted == count.n_tokens);
    lace_speculator_free(sp);
    lace_session_free(session);
    lace_session_free(plain);
    return count;
}

static void lookup_gives_the_greedy_text(void)
{
    lace_model *model = open_tales();
    if (!model)
        return;
    lace_speculator_options o = lace_speculator_options_default();
    o.use_lookup = true;
    o.n_draft = N_DRAFT;
    lace_speculation count = compare(model, &o, 0);
    CHECK(count.n_accepted > 0); /* the prompts repeat themselves */
    lace_model_close(model);
}

static void a_model_guesses_its_own_text(void)
{
    lace_model *model = open_tales();
    if (!model)
        return;
    lace_speculator_options o = lace_speculator_options_default();
    o.draft = start(model, 1);
    o.n_draft = N_DRAFT;
    lace_speculation count = compare(model, &o, 0);
    CHECK(count.n_guessed > 0 && count.n_accepted == count.n_guessed);
    CHECK(count.n_evals < count.n_tokens / 3);
    lace_session_free(o.draft);
    lace_model_close(model);
}

static void sampled_text_with_the_same_seed_is_the_same(void)
{
    lace_model *model = open_tales();
    if (!model)
        return;
    lace_speculator_options o = lace_speculator_options_default();
    o.draft = start(model, 1);
    o.use_lookup = true;
    o.n_draft = N_DRAFT;
    lace_speculation count = compare(model, &o, 0.9f);
    CHECK(count.n_accepted > 0 && count.n_accepted < count.n_guessed);
    lace_session_free(o.draft);
    lace_model_close(model);
}

static void guesses_leave_the_session_when_it_ends(void)
{
    lace_model *model = open_tales();
    if (!model)
        return;
    lace_session *session = start(model, N_DRAFT + 1);
    lace_speculator_options o = lace_speculator_options_default();
    o.use_lookup = true;
    o.n_draft = N_DRAFT;
    lace_speculator *sp;
    lace_token tokens[MAX_TEXT];
    CHECK(lace_speculator_create(session, 0, &o, &sp, NULL) == LACE_OK);
    size_t n = read_prompt(model, session, prompts[2], tokens);
    CHECK(lace_speculator_begin(sp, tokens, n, NULL) == LACE_OK);
    /* Tokens of the prompt once more: what follows them is known. */
    for (int i = 0; i < 4; i++)
        CHECK(lace_speculator_push(sp, tokens[n - 4 + (size_t)i], NULL) == LACE_OK);
    CHECK(lace_session_length(session, 0) > (int32_t)n + 4);
    lace_speculator_free(sp);
    CHECK(lace_session_length(session, 0) == (int32_t)n + 4);
    lace_session_free(session);
    lace_model_close(model);
}

/* ---- Small models ---------------------------------------------------------------------------- */

static lace_model *make_tiny(int n_vocab, buf *file)
{
    tiny_options o = tiny_options_default();
    lace_model *model = NULL;
    o.n_vocab = n_vocab;
    buf_init(file, 1 << 20);
    CHECK(tiny_model_build(&o, file, NULL) == LACE_OK);
    CHECK(lace_model_open_memory(file->data, file->size, "tiny", NULL, &model, NULL) == LACE_OK);
    return model;
}

static lace_session *start_tiny(lace_model *model, int32_t n_context)
{
    lace_session_options o = lace_session_options_default();
    o.n_context = n_context;
    o.n_outputs = 9;
    o.n_threads = 1;
    lace_session *session = NULL;
    CHECK(lace_session_create(model, &o, &session, NULL) == LACE_OK);
    return session;
}

static void another_vocabulary_is_refused(void)
{
    buf a, b;
    lace_model *model = make_tiny(320, &a), *other = make_tiny(300, &b);
    lace_session *session = start_tiny(model, 32), *draft = start_tiny(other, 32);
    lace_speculator_options o = lace_speculator_options_default();
    lace_speculator *sp;
    lace_error err;
    o.draft = draft;
    CHECK(lace_speculator_create(session, 0, &o, &sp, &err) == LACE_E_VOCAB && !sp);
    CHECK(strstr(err.text, "the draft model has 300 tokens, the model 320") != NULL);
    lace_session_free(session);
    lace_session_free(draft);
    lace_model_close(model);
    lace_model_close(other);
    buf_deinit(&a);
    buf_deinit(&b);
}

static void options_outside_their_range_are_refused(void)
{
    buf file;
    lace_model *model = make_tiny(320, &file);
    lace_session *session = start_tiny(model, 32);
    lace_speculator_options o = lace_speculator_options_default();
    lace_speculator *sp;
    CHECK(lace_speculator_create(session, 1, &o, &sp, NULL) == LACE_E_ARG && !sp);
    o.n_draft = 9; /* as many as the session has outputs */
    CHECK(lace_speculator_create(session, 0, &o, &sp, NULL) == LACE_E_ARG && !sp);
    o.n_draft = 0;
    CHECK(lace_speculator_create(session, 0, &o, &sp, NULL) == LACE_E_ARG && !sp);
    o.n_draft = 4;
    o.draft = session;
    CHECK(lace_speculator_create(session, 0, &o, &sp, NULL) == LACE_E_ARG && !sp);
    o.draft = NULL;
    CHECK(lace_speculator_create(session, 0, &o, &sp, NULL) == LACE_OK);
    lace_token token = 5;
    CHECK(lace_speculator_begin(sp, &token, 1, NULL) == LACE_E_ARG); /* nothing evaluated yet */
    lace_speculator_free(sp);
    lace_session_free(session);
    lace_model_close(model);
    buf_deinit(&file);
}

static void a_full_context_is_a_status(void)
{
    buf file;
    lace_model *model = make_tiny(320, &file);
    lace_session *session = start_tiny(model, 16), *draft = start_tiny(model, 12);
    lace_speculator_options o = lace_speculator_options_default();
    lace_speculator *sp;
    o.draft = draft;
    o.use_lookup = true;
    CHECK(lace_speculator_create(session, 0, &o, &sp, NULL) == LACE_OK);
    lace_item item = {.token = 7, .want_logits = true};
    CHECK(lace_session_eval(session, &item, 1, NULL) == LACE_OK);
    CHECK(lace_speculator_begin(sp, &item.token, 1, NULL) == LACE_OK);
    int n = 1;
    while (n < 40 && lace_speculator_push(sp, 7 + n % 3, NULL) == LACE_OK)
        n++;
    CHECK(n == 16);
    CHECK(lace_speculator_push(sp, 7, NULL) == LACE_E_CONTEXT);
    lace_speculator_free(sp);
    lace_session_free(draft);
    lace_session_free(session);
    lace_model_close(model);
    buf_deinit(&file);
}

static void no_memory_is_a_status(void)
{
    buf file;
    lace_model *model = make_tiny(320, &file);
    lace_session *session = start_tiny(model, 16), *draft = start_tiny(model, 16);
    lace_speculator_options o = lace_speculator_options_default();
    lace_speculator *sp;
    o.draft = draft;
    for (long i = 0; i < 4; i++) {
        mem_fail_at(i, false);
        CHECK(lace_speculator_create(session, 0, &o, &sp, NULL) == LACE_E_NOMEM && !sp);
    }
    mem_fail_at(-1, false);
    lace_session_free(draft);
    lace_session_free(session);
    lace_model_close(model);
    buf_deinit(&file);
}

/* ---- The program ----------------------------------------------------------------------------- */

#define RUN "run -p 'One two three. One two three. One two' -n 40 --ignore-eos "

/*
 * The line of statistics has what was counted, in numbers that agree, and no claim about a speed
 * that nobody measured. At least n_accepted guesses were right.
 */
static void check_counts(unsigned n_accepted)
{
    unsigned n_tokens = 0, n_right = 0, n_guessed = 0;
    double each = 0;
    const char *generated = strstr(ran.err, "generated "), *guesses = NULL;
    for (const char *p = ran.err; (p = strstr(p, " | ")); p += 3)
        if (strstr(p, " guesses right") && !strstr(p + 3, " | "))
            guesses = p;
    bool is_read = generated && sscanf(generated, "generated %u", &n_tokens) == 1 && guesses &&
                   sscanf(guesses, " | %u of %u guesses right (%*u %%), %lf tokens an evaluation",
                          &n_right, &n_guessed, &each) == 3;
    if (!CHECK(is_read && n_right >= n_accepted && n_right <= n_guessed &&
               n_right < n_tokens - 1) ||
        !CHECK(strstr(ran.err, "as fast") == NULL)) {
        tap_note("%s", ran.err);
        return;
    }
    /* The first token comes from the prompt; each other one was guessed right or evaluated. */
    double expected = (double)(n_tokens - 1) / (double)(n_tokens - 1 - n_right);
    if (!CHECK(each > expected - 0.006 && each < expected + 0.006)) /* two digits */
        tap_note("%f, expected %f: %s", each, expected, ran.err);
}

static void lace_run_prints_the_same_text_and_what_was_guessed(void)
{
    static const char *const ways[] = {"--lookup", "--draft models/tales-4m.gguf --n-draft 3",
                                       "--draft models/tales-4m.gguf --lookup"};
    static const char *const choices[] = {"--temp 0", "--temp 0.7 --seed 3"};
    for (int c = 0; c < 2; c++) {
        command_run(RUN "%s", choices[c]);
        CHECK(ran.code == 0 && !strstr(ran.err, "guesses"));
        static char expected[sizeof ran.out];
        memcpy(expected, ran.out, sizeof expected);
        for (int i = 0; i < 3; i++) {
            command_run(RUN "%s %s", choices[c], ways[i]);
            CHECK(ran.code == 0 && strcmp(ran.out, expected) == 0);
            CHECK(strstr(ran.err, "guesses right (") != NULL);
            check_counts(c == 0 ? 3 : 0); /* the greedy text repeats the prompt */
        }
    }
    command_run(RUN "--draft $dir/absent.gguf");
    command_check_error("absent.gguf");
    command_run(RUN "--lookup --n-draft 33");
    command_check_error("--n-draft \"33\": expected a whole number from 1 to 32");
}

int main(void)
{
    if (!command_begin())
        return 1;
    CASE(lookup_gives_the_greedy_text);
    CASE(a_model_guesses_its_own_text);
    CASE(sampled_text_with_the_same_seed_is_the_same);
    CASE(guesses_leave_the_session_when_it_ends);
    CASE(another_vocabulary_is_refused);
    CASE(options_outside_their_range_are_refused);
    CASE(a_full_context_is_a_status);
    CASE(no_memory_is_a_status);
    CASE(lace_run_prints_the_same_text_and_what_was_guessed);
    command_end();
    return tap_end();
}
