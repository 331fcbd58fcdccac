/* What a refusal looks like: each family of clients sees its own form, whoever refuses, and errors
 * name the field as the client has written it. */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "served.h"
#include "tap.h"

static served s;
static answer a;

static const char *short_body(void)
{
    static char line[400];
    snprintf(line, sizeof line, "%s", a.body ? a.body : "");
    return line;
}

/* A path of each family. */
static const struct {
    const char *path;
    char family;
} families[] = {
    {"/v1/messages", 'a'},  {"/v1/messages/count_tokens", 'a'}, {"/api/chat", 'o'},
    {"/api/generate", 'o'}, {"/v1/chat/completions", 'i'},      {"/v1/responses", 'i'},
};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

static const char *string_at(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

/* The answer has this status and, in the family's form, an error of this type ("": any). */
static void check_form(const char *what, char family, int status, const char *type)
{
    json_t *json = json_loads(a.body ? a.body : "", 0, NULL);
    const json_t *error = json_object_get(json, "error");
    bool ok = a.status == status;
    if (family == 'o')
        ok = ok && json_object_size(json) == 1 && json_string_length(error) > 0;
    else
        ok = ok && *string_at(error, "message") &&
             (!*type || strcmp(string_at(error, "type"), type) == 0);
    if (family == 'a')
        ok =
            ok && strcmp(string_at(json, "type"), "error") == 0 && !json_object_get(error, "param");
    if (family == 'i')
        ok = ok && json_object_get(error, "param") && json_object_get(error, "code");
    if (!CHECK(ok))
        tap_note("%s: %d %s, expected %d %s", what, a.status, short_body(), status, type);
    json_decref(json);
}

static void send_raw(const char *request)
{
    int fd = served_connect(&s);
    served_send(fd, request, strlen(request));
    served_read(fd, &a, 30);
    close(fd);
}

#define JSON_TYPE "Content-Type: application/json\r\n"

static void refusals_before_routing_have_the_form_of_their_family(void)
{
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const char *path = families[i].path;
        char family = families[i].family, request[12000];
        served_request(&s, "GET", path, "", "", 0, &a);
        check_form(path, family, 405, "invalid_request_error");
        CHECK(strstr(a.head, "\r\nAllow: POST\r\n") != NULL);
        served_request(&s, "POST", path, "Content-Type: text/plain\r\n", "{}", 2, &a);
        check_form(path, family, 415, "invalid_request_error");
        served_request(&s, "POST", path, JSON_TYPE "Origin: https://x.example\r\n", "{}", 2, &a);
        check_form(path, family, 403, "permission_error");
        snprintf(request, sizeof request,
                 "POST %s HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE
                 "Content-Length: 999999999\r\n\r\n",
                 path);
        send_raw(request);
        check_form(path, family, 413, family == 'a' ? "request_too_large" : "");
        CHECK(strstr(a.body, "999999999 bytes") && strstr(a.body, "(--max-body)"));
        int n = snprintf(request, sizeof request,
                         "POST %s?x=1 HTTP/1.1\r\nHost: localhost\r\nX: ", path);
        memset(request + n, 'x', sizeof request - 1 - (size_t)n);
        request[sizeof request - 1] = 0;
        send_raw(request);
        check_form(path, family, 431, "invalid_request_error");
    }
    served_get(&s, "/v1/messages/nowhere", &a);
    check_form("nowhere", 'a', 404, "not_found_error");
    served_get(&s, "/api/nowhere", &a);
    check_form("nowhere", 'o', 404, "");
    served_get(&s, "/v1/nowhere", &a);
    check_form("nowhere", 'i', 404, "invalid_request_error");
    CHECK(strstr(a.body, "there is nothing at this path"));
}

static void paths_of_other_servers_say_what_to_use(void)
{
    static const struct {
        const char *path, *part;
    } rows[] = {
        {"/api/pull", "lace pull NAME"},
        {"/v1/v1/messages", "a base URL without /v1"},
        {"/v1/api/chat", "a base URL without /v1"},
        {"/slots/0", "/metrics says what runs"},
        {"/v1/images/generations", "makes no images"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        served_request(&s, "POST", rows[i].path, JSON_TYPE, "{}", 2, &a);
        if (!CHECK(a.status == 404 && strstr(a.body, rows[i].part)))
            tap_note("%s: %d %s", rows[i].path, a.status, a.body ? a.body : "");
    }
}

static void allow_names_the_methods_that_a_path_has(void)
{
    served_request(&s, "POST", "/health", JSON_TYPE, "{}", 2, &a);
    CHECK(a.status == 405 && strstr(a.head, "\r\nAllow: GET, HEAD\r\n"));
    served_request(&s, "DELETE", "/v1/models/x", "", "", 0, &a);
    CHECK(a.status == 405 && strstr(a.head, "\r\nAllow: GET, HEAD\r\n"));
    served_request(&s, "PUT", "/api/chat", "", "", 0, &a);
    CHECK(a.status == 405 && strstr(a.head, "\r\nAllow: POST\r\n"));
}

static void too_many_large_requests_are_refused_in_their_form(void)
{
    enum { N_LARGE = 64 };
    int fds[N_LARGE];
    static const char head[] = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE
                               "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (int i = 0; i < N_LARGE; i++) {
        char reply[64];
        fds[i] = served_connect(&s);
        CHECK(served_send(fds[i], head, strlen(head)) && read(fds[i], reply, sizeof reply) > 0);
    }
    for (size_t i = 0; i < N_FAMILIES; i++) {
        char request[512];
        snprintf(request, sizeof request,
                 "POST %s HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE
                 "Transfer-Encoding: chunked\r\n\r\n",
                 families[i].path);
        send_raw(request);
        check_form(families[i].path, families[i].family, 503,
                   families[i].family == 'a' ? "overloaded_error" : "");
        CHECK(strstr(a.head, "\r\nRetry-After: ") != NULL);
    }
    for (int i = 0; i < N_LARGE; i++)
        close(fds[i]);
}

static void a_missing_key_is_told_in_the_form_of_the_family(void)
{
    served_stop(&s);
    if (!CHECK(served_start(&s, "-c 256 --threads 1 --api-key secret")))
        return;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        served_post(&s, families[i].path, "{}", &a);
        check_form(families[i].path, families[i].family, 401, "authentication_error");
    }
}

static void a_full_queue_is_told_in_the_form_of_the_family(void)
{
    enum { N = 12 };
    served_stop(&s);
    if (!CHECK(served_start(&s, "-c 256 --threads 1 --max-running 1 --max-queue 1")))
        return;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        int fds[N], n_refused = 0;
        char request[1024], text[512];
        if (strstr(families[i].path, "count_tokens"))
            continue; /* it does not wait for anything */
        snprintf(text, sizeof text,
                 "{\"model\":\"default\",\"max_tokens\":240,\"ignore_eos\":true,\"%s\":\"a\","
                 "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
                 strstr(families[i].path, "generate") ? "prompt" : "input");
        snprintf(request, sizeof request,
                 "POST %s HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE
                 "Content-Length: %zu\r\n\r\n%s",
                 families[i].path, strlen(text), text);
        for (int k = 0; k < N; k++) {
            fds[k] = served_connect(&s);
            served_send(fds[k], request, strlen(request));
        }
        for (int k = 0; k < N; k++) {
            served_read(fds[k], &a, 60);
            close(fds[k]);
            if (a.status != 429)
                continue;
            n_refused++;
            check_form(families[i].path, families[i].family, 429, "rate_limit_error");
        }
        CHECK(n_refused > 0);
    }
}

/* Takes 25 seconds: only `make load` waits so long. */
static void a_body_that_does_not_come_is_told_in_the_form_of_the_family(void)
{
    int fds[N_FAMILIES];
    for (size_t i = 0; i < N_FAMILIES; i++) {
        char request[512];
        snprintf(request, sizeof request,
                 "POST %s HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Content-Length: 9\r\n\r\n{",
                 families[i].path);
        fds[i] = served_connect(&s);
        served_send(fds[i], request, strlen(request));
    }
    for (size_t i = 0; i < N_FAMILIES; i++) {
        served_read(fds[i], &a, 40);
        check_form(families[i].path, families[i].family, 408, "invalid_request_error");
        close(fds[i]);
    }
}

/* ---- Fields ---------------------------------------------------------------------------------- */

static void an_error_names_the_field_as_it_was_written(void)
{
    /* clang-format off */
    static const struct { const char *path, *body, *param, *begin; } rows[] = {
        {"/v1/responses", "{\"input\":\"a\",\"max_output_tokens\":\"x\"}", "max_output_tokens", "max_output_tokens is "},
        {"/v1/responses", "{\"input\":\"a\",\"max_output_tokens\":-7}", "max_output_tokens", "max_output_tokens is -7"},
        {"/v1/responses", "{\"input\":\"a\",\"text\":{\"format\":{\"type\":\"xml\"}}}", "text.format", "text.format has no type"},
        {"/v1/responses", "{\"input\":\"a\",\"text\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"banana\"}}}}", "text.format", "text.format: "},
        {"/v1/responses", "{\"input\":[{\"role\":\"nobody\",\"content\":\"a\"}]}", "input", "input[0] "},
        {"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":\"x\"}", "max_tokens", "max_tokens is "},
        {"/v1/messages", "{\"max_tokens\":5,\"stop_sequences\":[\"\"],\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", "", "stop_sequences: "},
        {"/api/chat", "{\"model\":\"default\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"options\":{\"num_predict\":\"x\"}}", "", "options.num_predict is "},
        {"/api/generate", "{\"model\":\"default\",\"prompt\":\"a\",\"options\":{\"top_p\":7}}", "", "options.top_p is 7"},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        served_post(&s, rows[i].path, rows[i].body, &a);
        json_t *json = json_loads(a.body ? a.body : "", 0, NULL);
        const json_t *error = json_object_get(json, "error");
        const char *message =
            json_is_string(error) ? json_string_value(error) : string_at(error, "message");
        if (!CHECK(a.status == 400 && strcmp(string_at(error, "param"), rows[i].param) == 0 &&
                   strncmp(message, rows[i].begin, strlen(rows[i].begin)) == 0))
            tap_note("%s %s: %d %s", rows[i].path, rows[i].body, a.status, short_body());
        json_decref(json);
    }
    char words[20000] = "";
    for (size_t n = 0; n < 16000; n += 6)
        memcpy(words + n, " hello", 7);
    static const struct {
        const char *path, *field;
    } fields[] = {{"/v1/completions", "prompt"}, {"/v1/responses", "input"}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        char body[21000], param[64];
        snprintf(body, sizeof body, "{\"%s\":\"%s\"}", fields[i].field, words);
        snprintf(param, sizeof param, "\"param\":\"%s\"", fields[i].field);
        served_post(&s, fields[i].path, body, &a);
        if (!CHECK(a.status == 400 && strstr(a.body, "context_length") && strstr(a.body, param)))
            tap_note("%s: %d %s", fields[i].path, a.status, short_body());
    }
}

/* Each of these was passed over once. */
static void a_field_of_the_wrong_type_is_refused(void)
{
    /* clang-format off */
    static const struct { const char *path, *field; } rows[] = {
        {"/v1/responses", "\"instructions\":5"}, {"/v1/responses", "\"instructions\":[\"be kind\"]"},
        {"/v1/responses", "\"tools\":\"all\""}, {"/v1/responses", "\"tools\":{}"},
        {"/v1/responses", "\"tools\":[5]"}, {"/v1/responses", "\"tools\":[{\"type\":\"function\"}]"},
        {"/v1/responses", "\"text\":\"json\""}, {"/v1/responses", "\"text\":[]"},
        {"/v1/responses", "\"text\":{\"format\":\"json\"}"},
        {"/v1/responses", "\"reasoning\":\"high\""}, {"/v1/responses", "\"reasoning\":{\"effort\":3}"},
        {"/v1/messages", "\"output_config\":\"json\""}, {"/v1/messages", "\"output_config\":[]"},
        {"/v1/messages", "\"output_config\":{\"effort\":3}"}, {"/v1/messages", "\"output_config\":{\"format\":\"json\"}"},
        {"/v1/messages", "\"system\":5"}, {"/v1/messages", "\"tools\":\"all\""},
        {"/api/generate", "\"system\":5"}, {"/api/generate", "\"system\":[\"be kind\"]"},
        {"/api/generate", "\"raw\":\"yes\""}, {"/api/generate", "\"suffix\":5"}, {"/api/generate", "\"think\":5"},
        {"/api/chat", "\"tools\":\"all\""}, {"/api/chat", "\"tools\":{}"}, {"/api/chat", "\"tools\":[5]"},
        {"/api/chat", "\"think\":[]"}, {"/api/chat", "\"format\":5"}, {"/api/chat", "\"options\":5"},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char body[512];
        snprintf(body, sizeof body, "{\"model\":\"default\",\"max_tokens\":2,%s,\"%s\":%s}",
                 rows[i].field,
                 strstr(rows[i].path, "responses")  ? "input"
                 : strstr(rows[i].path, "generate") ? "prompt"
                                                    : "messages",
                 strstr(rows[i].path, "responses") || strstr(rows[i].path, "generate")
                     ? "\"a\""
                     : "[{\"role\":\"user\",\"content\":\"a\"}]");
        served_post(&s, rows[i].path, body, &a);
        if (!CHECK(a.status == 400))
            tap_note("%s %s: %d %s", rows[i].path, body, a.status, short_body());
    }
}

int main(void)
{
    if (!served_start(&s, "-c 256 --threads 1")) {
        printf("1..0 # SKIP the server does not start\n");
        return 1;
    }
    CASE(refusals_before_routing_have_the_form_of_their_family);
    CASE(paths_of_other_servers_say_what_to_use);
    CASE(allow_names_the_methods_that_a_path_has);
    CASE(too_many_large_requests_are_refused_in_their_form);
    CASE(an_error_names_the_field_as_it_was_written);
    CASE(a_field_of_the_wrong_type_is_refused);
    if (getenv("LACE_LOAD"))
        CASE(a_body_that_does_not_come_is_told_in_the_form_of_the_family);
    CASE(a_missing_key_is_told_in_the_form_of_the_family);
    CASE(a_full_queue_is_told_in_the_form_of_the_family);
    tap_note("exit code %d", served_stop(&s));
    answer_free(&a);
    return tap_end();
}
