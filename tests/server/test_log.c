/* The log: one line for every request, also for those that are refused or cut. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scratch.h"
#include "served.h"
#include "tap.h"

static served s;
static answer a;
static json_t *lines[64];
static int n_lines;

static bool start(const char *options)
{
    char arguments[512];
    snprintf(arguments, sizeof arguments, "--threads 1 %s --log-json 2>%s", options,
             scratch_path("log"));
    return CHECK(served_start(&s, arguments));
}

static void read_log(void)
{
    char line[8192];
    while (n_lines)
        json_decref(lines[--n_lines]);
    FILE *f = fopen(scratch_path("log"), "r");
    while (f && n_lines < 64 && fgets(line, sizeof line, f))
        if ((lines[n_lines] = json_loads(line, 0, NULL)))
            n_lines++;
    if (f)
        fclose(f);
}

static int64_t number(int line, const char *key)
{
    return json_integer_value(json_object_get(lines[line], key));
}

static const char *word(int line, const char *key)
{
    const char *value = json_string_value(json_object_get(lines[line], key));
    return value ? value : "";
}

static void send_raw(const char *request)
{
    int fd = served_connect(&s);
    served_send(fd, request, strlen(request));
    served_read(fd, &a, 30);
    close(fd);
}

static void every_refusal_has_its_line(void)
{
    static const struct {
        const char *request;
        int status;
        const char *path;
    } rows[] = {
        {"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, "/health"},
        {"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", 401, "/v1/models"},
        {"GET /nothing HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\n\r\n", 404,
         "/nothing"},
        {"DELETE /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\n\r\n", 405,
         "/v1/models"},
        {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\n"
         "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
         415, "/v1/completions"},
        {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\n"
         "Content-Type: application/json\r\nContent-Length: 99999999\r\n\r\n",
         413, "/v1/completions"},
        {"NONSENSE\r\n\r\n", 400, ""},
    };
    enum { N = sizeof rows / sizeof rows[0] };
    if (!start("-c 64 --api-key k"))
        return;
    for (int i = 0; i < N; i++) {
        send_raw(rows[i].request);
        if (!CHECK(a.status == rows[i].status))
            tap_note("%d: %d, not %d", i, a.status, rows[i].status);
    }
    CHECK(served_stop(&s) == 0);
    read_log();
    CHECK(n_lines == N);
    for (int i = 0; i < N && i < n_lines; i++) {
        CHECK(number(i, "status") == rows[i].status && word(i, "why")[0]);
        CHECK(strcmp(word(i, "client"), "127.0.0.1") == 0);
        if (!CHECK(strcmp(word(i, "path"), rows[i].path) == 0))
            tap_note("%d: %s", i, word(i, "path"));
    }
}

static void a_line_has_the_tokens_that_were_generated(void)
{
    if (!start("-c 64"))
        return;
    served_post(&s, "/v1/completions",
                "{\"prompt\":\"Once\",\"max_tokens\":7,\"n\":2,\"ignore_eos\":true}", &a);
    CHECK(a.status == 200);
    CHECK(served_stop(&s) == 0);
    read_log();
    CHECK(n_lines == 1 && number(0, "generated_tokens") == 14 && number(0, "prompt_tokens") > 0);
    CHECK(strcmp(word(0, "client"), "127.0.0.1") == 0);
}

/* A long text, streamed or not, while the server is told to end and has no time for it. */
static void cut(bool is_stream)
{
    char body[256], request[1024];
    snprintf(body, sizeof body,
             "{\"prompt\":\"Once\",\"max_tokens\":29000,\"ignore_eos\":true,\"stream\":%s}",
             is_stream ? "true" : "false");
    int n = snprintf(request, sizeof request,
                     "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                     "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                     strlen(body), body);
    int fd = served_connect(&s);
    served_send(fd, request, (size_t)n);
    while (served_metric(&s, "lace_requests_running") < 1)
        usleep(10000);
    kill(s.pid, SIGTERM);
    served_read(fd, &a, 30);
    close(fd);
}

static void a_request_that_the_end_cuts_is_told_so_and_is_no_499(void)
{
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        if (!start("-c 30000 --drain 0"))
            return;
        cut(is_stream);
        CHECK(a.status == (is_stream ? 200 : 503));
        CHECK(a.body && strstr(a.body, "the server has shut down"));
        CHECK(served_wait(&s) == 0);
        read_log();
        bool is_found = false;
        for (int i = 0; i < n_lines; i++) {
            CHECK(number(i, "status") != 499);
            is_found = is_found || (strcmp(word(i, "path"), "/v1/completions") == 0 &&
                                    json_is_true(json_object_get(lines[i], "failed")));
        }
        CHECK(is_found);
    }
}

/* More lines than a pipe holds, and nobody who reads them. */
static void a_log_that_nobody_reads_stops_nothing(void)
{
    char arguments[512];
    CHECK(mkfifo(scratch_path("pipe"), 0600) == 0);
    int held = open(scratch_path("pipe"), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    snprintf(arguments, sizeof arguments, "--threads 1 -c 64 --log-json 2>%s",
             scratch_path("pipe"));
    if (!CHECK(held >= 0 && served_start(&s, arguments)))
        return;
    for (int i = 0; i < 900; i++) {
        served_get(&s, "/nothing-of-that-name-is-here-to-make-the-line-of-the-log-longer", &a);
        if (a.status != 404)
            break;
    }
    CHECK(a.status == 404);
    char text[1 << 17];
    CHECK(read(held, text, sizeof text) > 50000); /* full, but for ends of pages */
    close(held);
    CHECK(served_stop(&s) == 0);
}

int main(void)
{
    if (!scratch_create())
        return 1;
    CASE(every_refusal_has_its_line);
    CASE(a_line_has_the_tokens_that_were_generated);
    CASE(a_request_that_the_end_cuts_is_told_so_and_is_no_499);
    CASE(a_log_that_nobody_reads_stops_nothing);
    while (n_lines)
        json_decref(lines[--n_lines]);
    answer_free(&a);
    scratch_remove();
    return tap_end();
}
