/* Guesses in lace serve: the same answers as without, and counts that grow. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "served.h"
#include "tap.h"
#include "tiny_model.h"

#define MODEL "models/tales-4m.gguf -c 512 --threads 2 "

static const char *const bodies[] = {
    "{\"prompt\":\"One two three four. One two three four. One two\",\"max_tokens\":48,"
    "\"temperature\":0}",
    "{\"prompt\":\"The fox said: come with me, come with me, come\",\"max_tokens\":48,"
    "\"temperature\":0.7,\"seed\":4}",
    "{\"prompt\":\"He went and went and went and went\",\"max_tokens\":40,\"temperature\":0,"
    "\"logprobs\":1}",
    "{\"prompt\":\"A number: \",\"max_tokens\":40,\"seed\":2,\"regex\":\"(12 ){3,9}[.]\"}",
};
enum { N_BODIES = sizeof bodies / sizeof bodies[0] };

static served plain, guessing;
static char *expected[N_BODIES];

static void ask_plain(void)
{
    answer a = {0};
    for (int i = 0; i < N_BODIES; i++) {
        served_post(&plain, "/v1/completions", bodies[i], &a);
        free(expected[i]);
        expected[i] = answer_text(&a);
        CHECK(a.status == 200 && expected[i] && expected[i][0]);
        CHECK(!strstr(a.body, "draft_n"));
    }
    CHECK(served_metric(&plain, "lace_guessed_tokens_total") == 0);
    answer_free(&a);
}

/* The counts are published when the server has nothing more to do. */
static double wait_for_metric(const char *name)
{
    double value = 0;
    for (int i = 0; i < 500 && value <= 0; i++) {
        value = served_metric(&guessing, name);
        if (value <= 0)
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return value;
}

static void check_answers(const char *arguments)
{
    answer a = {0};
    if (!CHECK(served_start(&guessing, arguments)))
        return;
    bool has_counts = false;
    for (int i = 0; i < N_BODIES; i++) {
        served_post(&guessing, "/v1/completions", bodies[i], &a);
        char *words = answer_text(&a);
        if (!CHECK(a.status == 200 && words && expected[i] && strcmp(words, expected[i]) == 0))
            tap_note("%s: \"%s\", expected \"%s\"", arguments, words ? words : "", expected[i]);
        has_counts = has_counts || (a.body && strstr(a.body, "\"draft_n_accepted\":"));
        free(words);
    }
    CHECK(has_counts);
    double n_guessed = wait_for_metric("lace_guessed_tokens_total");
    double n_accepted = wait_for_metric("lace_guessed_tokens_accepted_total");
    CHECK(n_accepted > 0 && n_accepted <= n_guessed);
    answer_free(&a);
    CHECK(served_stop(&guessing) == 0);
}

static void lookup_changes_no_answer(void)
{
    check_answers(MODEL "--lookup");
}

static void a_draft_changes_no_answer(void)
{
    check_answers(MODEL "--draft models/tales-4m.gguf --n-draft 5");
    check_answers(MODEL "-md models/tales-4m.gguf --draft-max 3 --lookup"); /* llama.cpp's words */
}

/* A long answer is under way, guess by guess, when another request comes. */
static void a_second_request_is_served_in_the_middle(void)
{
    static const char body[] = "{\"prompt\":\"One two three. One two three. One two\",\"stream\":"
                               "true,\"max_tokens\":400,\"temperature\":0,\"ignore_eos\":true}";
    char head[256];
    answer a = {0}, stream = {0};
    /* Texts that are read beside others may differ by rounding, but not if they are deterministic. */
    if (!CHECK(
            served_start(&guessing, MODEL "--deterministic --lookup --draft models/tales-4m.gguf")))
        return;
    int fd = served_connect(&guessing);
    int n = snprintf(head, sizeof head,
                     "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                     "application/json\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                     sizeof body - 1);
    CHECK(served_send(fd, head, (size_t)n) && served_send(fd, body, sizeof body - 1));
    for (int i = 0; i < N_BODIES; i++) {
        served_post(&guessing, "/v1/completions", bodies[i], &a);
        char *words = answer_text(&a);
        CHECK(a.status == 200 && words && expected[i] && strcmp(words, expected[i]) == 0);
        free(words);
    }
    served_read(fd, &stream, 60);
    CHECK(stream.status == 200 && stream.body &&
          strstr(stream.body, "\"finish_reason\":\"length\"") && strstr(stream.body, "[DONE]"));
    close(fd);
    answer_free(&a);
    answer_free(&stream);
    CHECK(served_stop(&guessing) == 0);
}

/* Of a model that says each token by the one before it, and whose layer knows that. */
static void a_prediction_layer_changes_no_answer(void)
{
    char arguments[512];
    tiny_options o = tiny_options_arch("qwen35");
    o.n_vocab = 320;
    o.n_context = 512;
    o.n_predicting = 1;
    o.is_bigram = true;
    buf file = tiny_model_bytes(o);
    CHECK(command_write("mtp.gguf", file.data, file.size));
    buf_deinit(&file);
    const char *path = command_path("mtp.gguf");
    snprintf(arguments, sizeof arguments, "%s -c 512 --threads 2 ", path);
    served of_others = plain;
    if (CHECK(served_start(&plain, arguments))) {
        ask_plain();
        CHECK(served_stop(&plain) == 0);
    }
    plain = of_others;
    snprintf(arguments, sizeof arguments, "%s -c 512 --threads 2 --mtp --n-draft 4", path);
    check_answers(arguments);
}

static void what_cannot_be_is_refused(void)
{
    command_run("serve " MODEL "--mtp");
    command_check_error("no layer that predicts");
    command_run("serve " MODEL "--draft $dir/absent.gguf");
    command_check_error("absent.gguf");
    command_run("serve " MODEL "--lookup --n-draft 33");
    command_check_error("--n-draft \"33\"");
}

int main(void)
{
    if (!command_begin() || !served_start(&plain, MODEL))
        return 1;
    CASE(ask_plain);
    CASE(lookup_changes_no_answer);
    CASE(a_draft_changes_no_answer);
    CASE(a_second_request_is_served_in_the_middle);
    CASE(a_prediction_layer_changes_no_answer);
    CASE(what_cannot_be_is_refused);
    served_stop(&plain);
    for (int i = 0; i < N_BODIES; i++)
        free(expected[i]);
    command_end();
    return tap_end();
}
