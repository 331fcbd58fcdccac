/* The server as clients see it: answers, streams, refusals, and that it is as before after them. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "served.h"
#include "tap.h"

#define CHAT "/v1/chat/completions"
#define TEXT "/v1/completions"
#define HI   "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"

static served s;
static answer a;
static char golden[1 << 16];

static const char golden_request[] =
    "{\"prompt\":\"Once upon a time there was a king\",\"max_tokens\":24,\"temperature\":0}";

/* The part of an answer that does not change from call to call. */
static void read_golden(char *out, size_t size)
{
    served_post(&s, "/v1/completions", golden_request, &a);
    const char *choices = a.body ? strstr(a.body, "\"choices\"") : NULL;
    const char *usage = choices ? strstr(choices, ",\"usage\"") : NULL;
    snprintf(out, size, "%d %.*s", a.status, usage ? (int)(usage - choices) : 0,
             usage ? choices : "");
}

static void check_golden(void)
{
    char again[1 << 16];
    read_golden(again, sizeof again);
    if (!CHECK(strcmp(golden, again) == 0))
        tap_note("%s\nexpected %s", again, golden);
}

/* An error in OpenAI's form. */
static void check_error(int status, const char *part)
{
    bool ok = CHECK(a.status == status);
    ok = CHECK(answer_has(&a, "{\"error\":{\"message\":\"") && answer_has(&a, "\"type\":\"") &&
               answer_has(&a, "\"param\":")) &&
         ok;
    ok = CHECK(!part || answer_has(&a, part)) && ok;
    if (!ok)
        tap_note("status %d, expected %d: %s", a.status, status, a.body ? a.body : "");
}

/* ---- Answers --------------------------------------------------------------------------------- */

static void the_status_routes_answer(void)
{
    served_get(&s, "/health", &a);
    CHECK(a.status == 200 && answer_has(&a, "\"ok\""));
    served_get(&s, "/ready", &a);
    CHECK(a.status == 200);
    served_get(&s, "/v1/models", &a);
    CHECK(a.status == 200 && answer_has(&a, "\"id\":\"tale\"") &&
          answer_has(&a, "\"object\":\"list\""));
    served_get(&s, "/v1/models/tale", &a);
    CHECK(a.status == 200);
    served_get(&s, "/v1/models/t%61le", &a);
    CHECK(a.status == 200);
    served_get(&s, "/v1/models/other", &a);
    check_error(404, "model_not_found");
    served_get(&s, "/props", &a);
    CHECK(a.status == 200 && answer_has(&a, "\"n_context\":256"));
    CHECK(answer_has(
        &a, "\"default_generation_settings\":{\"n_ctx\":256,\"params\":{\"temperature\":0.8,"
            "\"top_k\":40,\"top_p\":0.95,\"min_p\":0.05,"));
    served_get(&s, "/metrics", &a);
    CHECK(a.status == 200 &&
          answer_has(&a, "lace_time_to_first_token_seconds_bucket{le=\"+Inf\"}"));
    served_request(&s, "HEAD", "/health", "Connection: close\r\n", "", 0, &a);
    CHECK(a.status == 200 && a.n_body == 0);
}

static void a_text_is_continued(void)
{
    served_post(&s, "/v1/completions", golden_request, &a);
    CHECK(a.status == 200 && answer_has(&a, "\"object\":\"text_completion\"") &&
          answer_has(&a, "\"finish_reason\":\"length\"") &&
          answer_has(&a, "\"completion_tokens\":24"));
    served_post(&s, "/v1/completions",
                "{\"prompt\":[1,2,3],\"max_tokens\":2,\"logprobs\":3,\"n\":2,\"seed\":1}", &a);
    CHECK(a.status == 200 && answer_has(&a, "\"token_logprobs\":[") &&
          answer_has(&a, "\"index\":1") && answer_has(&a, "\"completion_tokens\":4"));
}

static void several_prompts_get_their_choices_in_order(void)
{
    served_post(&s, TEXT,
                "{\"prompt\":[\"Once upon a time there was a king\",[5,6,7]],\"n\":2,"
                "\"max_tokens\":24,\"temperature\":0}",
                &a);
    CHECK(a.status == 200 && answer_has(&a, "\"index\":3") && !answer_has(&a, "\"index\":4") &&
          answer_has(&a, "\"completion_tokens\":96"));
    /* The first is the text that it is alone. */
    const char *begin = strstr(golden, "\"text\":"), *end = strstr(golden, ",\"logprobs\"");
    char one[4096];
    snprintf(one, sizeof one, "%.*s", (int)(end - begin), begin);
    CHECK(answer_count(&a, one) == 2);
}

static void a_stream_has_exact_frames(void)
{
    served_post(&s, "/v1/chat/completions",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":5,"
                "\"stream\":true,\"stream_options\":{\"include_usage\":true},\"logprobs\":true,"
                "\"top_logprobs\":2}",
                &a);
    CHECK(a.status == 200 && strstr(a.head, "Content-Type: text/event-stream\r\n"));
    CHECK(strstr(a.head, "X-Accel-Buffering: no\r\n") != NULL);
    CHECK(strncmp(a.body, "data: {\"id\":\"chatcmpl-", 22) == 0);
    CHECK(answer_count(&a, "\"role\":\"assistant\"") == 1 &&
          answer_count(&a, "\"finish_reason\":\"length\"") == 1);
    CHECK(answer_count(&a, "\"choices\":[],\"usage\":{\"prompt_tokens\":") == 1);
    CHECK(answer_count(&a, "\"top_logprobs\":[{") == 5);
    CHECK(a.n_body > 14 && strcmp(a.body + a.n_body - 14, "data: [DONE]\n\n") == 0);
    CHECK(answer_count(&a, "data: ") == answer_count(&a, "\n\n"));
}

static void a_chat_is_answered_with_a_message(void)
{
    served_post(&s, "/v1/chat/completions",
                "{\"model\":\"default\",\"messages\":[{\"role\":\"system\",\"content\":\"s\"},"
                "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Hi\"}]}],"
                "\"max_completion_tokens\":3,\"stop\":[\"zzz\"],\"seed\":4,\"n\":2}",
                &a);
    CHECK(a.status == 200 && answer_has(&a, "\"object\":\"chat.completion\"") &&
          answer_has(&a, "\"message\":{\"role\":\"assistant\",\"content\":\"") &&
          answer_has(&a, "\"index\":1"));
}

static void tokens_and_templates_can_be_asked_for(void)
{
    served_post(&s, "/tokenize", "{\"content\":\"The king\",\"with_pieces\":true}", &a);
    CHECK(a.status == 200 && answer_has(&a, "\"piece\":\"") && answer_has(&a, "\"count\":"));
    served_post(&s, "/tokenize", "{\"content\":\"The king\",\"add_special\":true}", &a);
    const char *count = strstr(a.body, "\"count\":");
    int n_special = count ? atoi(count + 8) : 0;
    served_post(&s, "/tokenize", "{\"content\":\"The king\"}", &a); /* without BOS */
    count = strstr(a.body, "\"count\":");
    CHECK(a.status == 200 && count && atoi(count + 8) == n_special - 1);
    char request[256];
    const char *list = strchr(a.body, '[');
    snprintf(request, sizeof request, "{\"tokens\":%.*s}",
             list ? (int)(strchr(list, ']') + 1 - list) : 2, list ? list : "[]");
    served_post(&s, "/detokenize", request, &a);
    if (!CHECK(a.status == 200 && answer_has(&a, "{\"content\":\"The king\"}")))
        tap_note("%s gives %s", request, a.body);
    served_post(&s, "/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}",
                &a);
    CHECK(a.status == 200 && answer_has(&a, "Hi"));
    served_post(&s, "/tokenize", "{}", &a);
    CHECK(a.status == 400 && answer_has(&a, "content is missing, expected a string") &&
          answer_has(&a, "\"param\":\"content\""));
    served_post(&s, "/tokenize", "{\"prompt\":7}", &a);
    CHECK(a.status == 400 && answer_has(&a, "\"param\":\"prompt\""));
}

static void a_prompt_that_is_too_long_is_refused_with_both_numbers(void)
{
    char request[8192], *at = request;
    at += sprintf(at, "{\"max_tokens\":1,\"prompt\":\"");
    for (int i = 0; i < 300; i++)
        at += sprintf(at, " king");
    sprintf(at, "\"}");
    served_post(&s, "/v1/completions", request, &a);
    check_error(400, "context_length_exceeded");
    CHECK(answer_has(&a, " tokens, the context has 256"));
}

static void requests_follow_each_other_on_one_connection(void)
{
    static const char two[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
                              "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n";
    int fd = served_connect(&s);
    CHECK(served_send(fd, two, strlen(two)));
    char all[4096];
    size_t n = 0;
    while (n + 1 < sizeof all && !(n && strstr(all, "\"object\":\"list\""))) {
        ssize_t got = recv(fd, all + n, sizeof all - 1 - n, 0);
        if (got <= 0)
            break;
        all[n += (size_t)got] = 0;
    }
    CHECK(strstr(all, "{\"status\":\"ok\"}") && strstr(all, "\"object\":\"list\""));
    close(fd);
}

static void a_body_may_come_in_chunks_and_after_100_continue(void)
{
    static const char head[] = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                               "application/json; charset=utf-8\r\nTransfer-Encoding: "
                               "chunked\r\nExpect: 100-continue\r\n\r\n";
    static const char body[] = "8\r\n{\"conten\r\n8\r\nt\":\"abc\"\r\n1\r\n}\r\n0\r\n\r\n";
    int fd = served_connect(&s);
    char line[64] = "";
    served_send(fd, head, strlen(head));
    CHECK(recv(fd, line, 25, MSG_WAITALL) == 25 && strncmp(line, "HTTP/1.1 100 ", 13) == 0);
    served_send(fd, body, strlen(body));
    served_read(fd, &a, 30);
    CHECK(a.status == 200 && answer_has(&a, "\"count\""));
    close(fd);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

typedef struct body_case {
    const char *claim, *path, *body;
    int status;
    const char *part;
} body_case;

/* clang-format off */
static const body_case bodies[] = {
    {"an empty body", CHAT, "", 400, NULL},
    {"a brace", CHAT, "{", 400, NULL},
    {"a list", CHAT, "[]", 400, "an array"},
    {"null", CHAT, "null", 400, NULL},
    {"a string", CHAT, "\"x\"", 400, NULL},
    {"something behind the JSON", CHAT, "{" HI "}x", 400, NULL},
    {"two documents", CHAT, "{" HI "}{}", 400, NULL},
    {"a field twice", CHAT, "{" HI "," HI "}", 400, NULL},
    {"overlong UTF-8", CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\xC0\x80\"}]}", 400, "UTF-8"},
    {"a surrogate in UTF-8", CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\xED\xA0\x80\"}]}", 400, "UTF-8"},
    {"beyond Unicode", CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\xF4\x90\x80\x80\"}]}", 400, "UTF-8"},
    {"half a character", CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\xE2\x82\"}]}", 400, "UTF-8"},
    {"a lone surrogate escape", CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}", 400, NULL},
    {"NUL in a string", CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\\u0000\"}]}", 400, NULL},
    {"unknown escape", CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\\x\"}]}", 400, NULL},
    {"1e400", TEXT, "{\"prompt\":\"a\",\"temperature\":1e400}", 400, NULL},
    {"NaN", TEXT, "{\"prompt\":\"a\",\"temperature\":NaN}", 400, NULL},
    {"01", TEXT, "{\"prompt\":\"a\",\"max_tokens\":01}", 400, NULL},
    {"+1", TEXT, "{\"prompt\":\"a\",\"max_tokens\":+1}", 400, NULL},
    {".5", TEXT, "{\"prompt\":\"a\",\"temperature\":.5}", 400, NULL},
    {"0x10", TEXT, "{\"prompt\":\"a\",\"max_tokens\":0x10}", 400, NULL},
    {"no messages", CHAT, "{}", 400, "messages"},
    {"messages null", CHAT, "{\"messages\":null}", 400, "messages"},
    {"messages empty", CHAT, "{\"messages\":[]}", 400, "messages"},
    {"messages an object", CHAT, "{\"messages\":{}}", 400, "messages"},
    {"a message 5", CHAT, "{\"messages\":[5]}", 400, NULL},
    {"a message without role", CHAT, "{\"messages\":[{}]}", 400, NULL},
    {"content 5", CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":5}]}", 400, NULL},
    {"role root", CHAT, "{\"messages\":[{\"role\":\"root\",\"content\":\"x\"}]}", 400, NULL},
    {"temperature -1", TEXT, "{\"prompt\":\"a\",\"temperature\":-1}", 400, "temperature"},
    {"temperature 1e30", TEXT, "{\"prompt\":\"a\",\"temperature\":1e30}", 400, "temperature"},
    {"top_p -0.1", TEXT, "{\"prompt\":\"a\",\"top_p\":-0.1}", 400, "top_p"},
    {"top_p 1.1", TEXT, "{\"prompt\":\"a\",\"top_p\":1.1}", 400, "top_p"},
    {"presence_penalty 1e30", TEXT, "{\"prompt\":\"a\",\"presence_penalty\":1e30}", 400, "presence_penalty"},
    {"n of a billion", TEXT, "{\"prompt\":\"a\",\"n\":1000000000}", 400, "n is"},
    {"no prompt", TEXT, "{}", 400, "prompt"},
    {"token -1", TEXT, "{\"prompt\":[-1]}", 400, "prompt"},
    {"token beyond the vocabulary", TEXT, "{\"prompt\":[1000000]}", 400, "prompt"},
    {"token 2^31", TEXT, "{\"prompt\":[2147483648]}", 400, "prompt"},
    {"token 1.5", TEXT, "{\"prompt\":[1,1.5]}", 400, "prompt"},
    {"logit_bias a number", TEXT, "{\"prompt\":\"a\",\"logit_bias\":5}", 400, "logit_bias"},
    {"logit_bias a list of numbers", TEXT, "{\"prompt\":\"a\",\"logit_bias\":[5]}", 400, "logit_bias"},
    {"logit_bias of token -1", TEXT, "{\"prompt\":\"a\",\"logit_bias\":[[-1,5]]}", 400, "logit_bias"},
    {"logit_bias of a list", TEXT, "{\"prompt\":\"a\",\"logit_bias\":[[[5],5]]}", 400, "logit_bias"},
    {"logit_bias of an empty text", TEXT, "{\"prompt\":\"a\",\"logit_bias\":{\"\":1}}", 400, "logit_bias"},
    {"logit_bias 101", TEXT, "{\"prompt\":\"a\",\"logit_bias\":{\"5\":101}}", 400, "logit_bias"},
    {"17 stops", TEXT, "{\"prompt\":\"a\",\"stop\":[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"]}", 400, "stop"},
    {"an empty stop", TEXT, "{\"prompt\":\"a\",\"stop\":\"\"}", 400, "stop"},
    {"top_logprobs alone", CHAT, "{" HI ",\"top_logprobs\":2}", 400, "top_logprobs"},
    {"top_logprobs 21", CHAT, "{" HI ",\"logprobs\":true,\"top_logprobs\":21}", 400, "top_logprobs"},
    {"a model as a number", CHAT, "{" HI ",\"model\":5}", 400, "model"},
    {"tools that are none", CHAT, "{" HI ",\"tools\":[5]}", 400, "tools"},
};
/* clang-format on */

static void check_body(void *arg)
{
    const body_case *c = arg;
    served_post(&s, c->path, c->body, &a);
    check_error(c->status, c->part);
    check_golden();
}

static void every_integer_field_has_its_range(void)
{
    static const char *const names[] = {"max_tokens",   "n",        "top_k",
                                        "min_tokens",   "logprobs", "max_completion_tokens",
                                        "repeat_last_n"};
    static const char *const values[] = {"-2",  "2147483648", "9223372036854775808",
                                         "1.5", "\"5\"",      "18446744073709551616"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) {
            char request[256];
            snprintf(request, sizeof request, "{\"prompt\":\"a\",\"%s\":%s}", names[i], values[k]);
            served_post(&s, TEXT, request, &a);
            if (!CHECK(a.status == 400))
                tap_note("%s gives %d", request, a.status);
        }
    check_golden();
}

static void nesting_has_a_limit(void)
{
    static const int depths[] = {65, 129, 1000000};
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        for (int is_object = 0; is_object < 2; is_object++) {
            const char *unit = is_object ? "{\"a\":" : "[";
            size_t n_unit = strlen(unit), n = (size_t)depths[i] * n_unit;
            char *body = malloc(n + 1);
            for (int k = 0; k < depths[i]; k++)
                memcpy(body + (size_t)k * n_unit, unit, n_unit);
            served_request(&s, "POST", CHAT, "Content-Type: application/json\r\n", body, n, &a);
            check_error(400, NULL);
            free(body);
        }
    }
    check_golden();
}

static void long_lists_are_refused(void)
{
    enum { N = 1000000 };
    char *body = malloc(4 * N + 64), *at = body;
    at += sprintf(at, "{\"prompt\":[");
    for (int i = 0; i < N; i++)
        at += sprintf(at, i ? ",7" : "7");
    sprintf(at, "]}");
    served_post(&s, TEXT, body, &a);
    check_error(400, NULL);
    at = body + sprintf(body, "{\"prompt\":[");
    for (int i = 0; i < N; i++)
        at += sprintf(at, i ? ",\"\"" : "\"\"");
    sprintf(at, "]}");
    served_post(&s, TEXT, body, &a);
    check_error(400, NULL);
    free(body);
    check_golden();
}

/* ---- Framing and access ---------------------------------------------------------------------- */

typedef struct raw_case {
    const char *claim, *request;
    int status;
} raw_case;

#define J "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
/* clang-format off */
static const raw_case raws[] = {
    {"bare LF is refused", "GET /health HTTP/1.1\nHost: localhost\n\n", 400},
    {"two framings are refused", "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
    {"a TLS greeting is refused", "\x16\x03\x01\x02\x01\x01\x01\x01", 400},
    {"HTTP/2 is refused", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
    {"an unknown path is 404", "GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n", 404},
    {"a wrong method is 405", "DELETE /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", 405},
    {"TRACE is 405", "TRACE /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 405},
    {"OPTIONS is 405 without CORS", "OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", 405},
    {"CONNECT is refused", "CONNECT a:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
    {"another Host is refused", "GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403},
    {"a Host that begins well is refused", "GET /v1/models HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", 403},
    {"another Origin is refused", "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n" J, 403},
    {"Origin null is refused", "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n" J, 403},
    {"text/plain is refused", "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", 415},
    {"no type is refused", "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 415},
    {"utf-16 is refused", "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json; charset=utf-16\r\nContent-Length: 2\r\n\r\n{}", 415},
    {"a compressed body is refused", "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\n" J, 415},
    {"a large body is refused", "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 8388609\r\n\r\n", 413},
    {"the server's own Origin is fine", "GET /v1/models HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://localhost:1\r\n\r\n", 200},
};
/* clang-format on */

static void check_raw(void *arg)
{
    const raw_case *c = arg;
    int fd = served_connect(&s);
    served_send(fd, c->request, strlen(c->request));
    served_read(fd, &a, 30);
    if (!CHECK(a.status == c->status))
        tap_note("status %d: %s", a.status, a.body);
    CHECK(c->status < 400 || a.is_closed);
    CHECK(!strcasestr(a.head, "Access-Control"));
    close(fd);
    check_golden();
}

static void a_body_cut_short_is_400(void)
{
    static const char half[] = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                               "application/json\r\nContent-Length: 100\r\n\r\n{\"content\":";
    int fd = served_connect(&s);
    served_send(fd, half, strlen(half));
    shutdown(fd, SHUT_WR);
    served_read(fd, &a, 30);
    check_error(400, "too early");
    close(fd);
}

static void silent_and_empty_connections_do_no_harm(void)
{
    for (int i = 0; i < 50; i++) {
        int fd = served_connect(&s);
        if (i % 3 == 1)
            served_send(fd, "GET", 3);
        if (i % 3 == 2)
            served_send(fd, "\r\n\r\n\r\n", 6);
        close(fd);
    }
    check_golden();
}

int main(void)
{
    if (!served_start(&s, "--alias tale -c 256 --threads 2")) {
        printf("Bail out! the server does not start\n");
        return 1;
    }
    read_golden(golden, sizeof golden);
    CASE(the_status_routes_answer);
    CASE(a_text_is_continued);
    CASE(several_prompts_get_their_choices_in_order);
    CASE(a_stream_has_exact_frames);
    CASE(a_chat_is_answered_with_a_message);
    CASE(tokens_and_templates_can_be_asked_for);
    CASE(a_prompt_that_is_too_long_is_refused_with_both_numbers);
    CASE(requests_follow_each_other_on_one_connection);
    CASE(a_body_may_come_in_chunks_and_after_100_continue);
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
        tap_case_arg(bodies[i].claim, check_body, (void *)&bodies[i]);
    CASE(every_integer_field_has_its_range);
    CASE(nesting_has_a_limit);
    CASE(long_lists_are_refused);
    for (size_t i = 0; i < sizeof raws / sizeof raws[0]; i++)
        tap_case_arg(raws[i].claim, check_raw, (void *)&raws[i]);
    CASE(a_body_cut_short_is_400);
    CASE(silent_and_empty_connections_do_no_harm);
    int code = served_stop(&s);
    if (code != 0)
        printf("Bail out! the server ended with %d\n", code);
    answer_free(&a);
    return code ? 1 : tap_end();
}
