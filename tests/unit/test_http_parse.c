/* The parser of HTTP requests: what is a request, what is not, and with which status. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/http_parse.h"
#include "tap.h"

enum { MAX_BODY = 8 << 20 };

/* Feed in pieces of `step` bytes; goes on to the body by itself. */
static void feed(http_parser *p, const char *data, size_t n, size_t step)
{
    http_parser_init(p, MAX_BODY);
    for (size_t at = 0; at < n && p->state != HTTP_DONE && p->state != HTTP_BAD;) {
        size_t take = n - at < step ? n - at : step;
        size_t used = http_parser_feed(p, data + at, take);
        if (p->state == HTTP_HEAD_DONE)
            http_parser_read_body(p);
        else if (used == 0)
            break;
        at += used;
    }
}

/* The status of the refusal; 0: a complete request; -1: waits for more. Same for all steps. */
static int status_of(const char *data, size_t n)
{
    int status = -2;
    static const size_t steps[] = {1, 7, 4096, 1 << 24};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        http_parser p;
        if (steps[i] == 1 && n > 100000)
            continue;
        feed(&p, data, n, steps[i]);
        int now = p.state == HTTP_BAD ? p.status : p.state == HTTP_DONE ? 0 : -1;
        http_parser_deinit(&p);
        if (status != -2 && now != status)
            return -3;
        status = now;
    }
    return status;
}

typedef struct request_case {
    const char *claim;
    const char *request; /* H stands for "Host: localhost" and CRLF */
    int status;
} request_case;

#define H    "Host: localhost\r\n"
#define POST "POST /x HTTP/1.1\r\n" H
/* clang-format off */
static const request_case cases[] = {
    {"a plain request", "GET / HTTP/1.1\r\n" H "\r\n", 0},
    {"a request with a query", "GET /a/b?c=d HTTP/1.1\r\n" H "\r\n", 0},
    {"HTTP/1.0 without Host", "GET / HTTP/1.0\r\n\r\n", 0},
    {"a body by its length", POST "Content-Length: 3\r\n\r\nabc", 0},
    {"a body in chunks", POST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 0},
    {"chunks with extension and trailer", POST "Transfer-Encoding: Chunked\r\n\r\n1;a=b\r\nx\r\n0\r\nA: b\r\n\r\n", 0},
    {"no bytes yet", "", -1},
    {"half a line", "GET", -1},
    {"half a body", POST "Content-Length: 3\r\n\r\nab", -1},
    {"only an empty line", "\r\n\r\n", 400},
    {"a TLS greeting", "\x16\x03\x01\x02", 400},
    {"control characters", "\x01\x02", 400},
    {"bare LF", "GET / HTTP/1.1\nHost: a\n\n", 400},
    {"bare CR", "GET / HTTP/1.1\rHost: a\r\r", 400},
    {"CR CR LF", "GET / HTTP/1.1\r\r\n" H "\r\n", 400},
    {"HTTP/0.9", "GET /\r\n\r\n", 400},
    {"HTTP/1.2", "GET / HTTP/1.2\r\n" H "\r\n", 505},
    {"HTTP/2.0", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
    {"a blank behind the version", "GET / HTTP/1.1 \r\n" H "\r\n", 400},
    {"two blanks", "GET  / HTTP/1.1\r\n" H "\r\n", 400},
    {"a tab in the request line", "GET\t/ HTTP/1.1\r\n" H "\r\n", 400},
    {"a lower-case version", "GET / http/1.1\r\n" H "\r\n", 400},
    {"a target that is no path", "GET http://a/ HTTP/1.1\r\n" H "\r\n", 400},
    {"a star for GET", "GET * HTTP/1.1\r\n" H "\r\n", 400},
    {"a fragment in the target", "GET /a#b HTTP/1.1\r\n" H "\r\n", 400},
    {"bytes above ASCII in the target", "GET /\xC3\xA4 HTTP/1.1\r\n" H "\r\n", 400},
    {"a method with a slash", "G/T / HTTP/1.1\r\n" H "\r\n", 400},
    {"a header without colon", "GET / HTTP/1.1\r\n" H "abc\r\n\r\n", 400},
    {"an empty name", "GET / HTTP/1.1\r\n" H ": b\r\n\r\n", 400},
    {"a blank before the colon", "GET / HTTP/1.1\r\n" H "A : b\r\n\r\n", 400},
    {"a folded line", "GET / HTTP/1.1\r\n" H "A: b\r\n c\r\n\r\n", 400},
    {"no Host", "GET / HTTP/1.1\r\n\r\n", 400},
    {"two Hosts", "GET / HTTP/1.1\r\n" H H "\r\n", 400},
    {"Host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
    {"Host with a user", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400},
    {"an empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 400},
    {"length -1", POST "Content-Length: -1\r\n\r\n", 400},
    {"length +5", POST "Content-Length: +5\r\n\r\n", 400},
    {"length 5x", POST "Content-Length: 5x\r\n\r\n", 400},
    {"length 5 5", POST "Content-Length: 5 5\r\n\r\n", 400},
    {"length 0x5", POST "Content-Length: 0x5\r\n\r\n", 400},
    {"length 1e3", POST "Content-Length: 1e3\r\n\r\n", 400},
    {"length with 20 digits", POST "Content-Length: 99999999999999999999\r\n\r\n", 400},
    {"an empty length", POST "Content-Length:\r\n\r\n", 400},
    {"two lengths", POST "Content-Length: 5\r\nContent-Length: 10\r\n\r\n", 400},
    {"two equal lengths", POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400},
    {"a list of lengths", POST "Content-Length: 5, 5\r\n\r\n", 400},
    {"length beside chunks", POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    {"chunks in HTTP/1.0", "POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    {"another coding", POST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
    {"two codings", POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    {"chunk -2", POST "Transfer-Encoding: chunked\r\n\r\n-2\r\n", 400},
    {"a chunk of 16 hex digits", POST "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n", 400},
    {"a chunk of 17 hex digits", POST "Transfer-Encoding: chunked\r\n\r\n00000000000000001\r\n", 400},
    {"chunk 0x5", POST "Transfer-Encoding: chunked\r\n\r\n0x5\r\n", 400},
    {"a blank before a chunk's semicolon", POST "Transfer-Encoding: chunked\r\n\r\n5 ;\r\n", 400},
    {"an empty chunk size", POST "Transfer-Encoding: chunked\r\n\r\n\r\n", 400},
    {"a chunk longer than its size", POST "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", 400},
    {"a chunk ended by LF", POST "Transfer-Encoding: chunked\r\n\r\n1\r\na\n", 400},
    {"a chunk's size ended by LF", POST "Transfer-Encoding: chunked\r\n\r\n1\n", 400},
    {"a large chunk", POST "Transfer-Encoding: chunked\r\n\r\nFFFFFFF\r\n", 413},
    {"a large length", POST "Content-Length: 8388609\r\n\r\n", 413},
    {"an unknown expectation", POST "Expect: tea\r\n\r\n", 417},
};
/* clang-format on */

static void check_case(void *arg)
{
    const request_case *c = arg;
    int status = status_of(c->request, strlen(c->request));
    if (!CHECK(status == c->status))
        tap_note("status %d, expected %d", status, c->status);
}

/* before + n times `unit` + after */
static int status_of_long(const char *before, const char *unit, size_t n, const char *after)
{
    size_t size = strlen(before) + n * strlen(unit) + strlen(after);
    char *request = malloc(size + 1), *at = request;
    at += sprintf(at, "%s", before);
    for (size_t i = 0; i < n; i++)
        at += sprintf(at, "%s", unit);
    sprintf(at, "%s", after);
    int status = status_of(request, size);
    free(request);
    return status;
}

static void limits_hold_while_bytes_arrive(void)
{
    CHECK(status_of_long("GET /", "a", 8000, " HTTP/1.1\r\n" H "\r\n") == 0);
    CHECK(status_of_long("GET /", "a", 8192, "") == 414);
    CHECK(status_of_long("GET /", "a", 1 << 20, "") == 414);
    CHECK(status_of_long("", "G", 1 << 10, " / HTTP/1.1\r\n" H "\r\n") == 400);
    CHECK(status_of_long("GET / HTTP/1.1\r\n" H, "A: b\r\n", 99, "\r\n") == 0);
    CHECK(status_of_long("GET / HTTP/1.1\r\n" H, "A: b\r\n", 100, "\r\n") == 431);
    CHECK(status_of_long("GET / HTTP/1.1\r\n" H "A: ", "b", 64 << 10, "\r\n\r\n") == 431);
    CHECK(status_of_long("GET / HTTP/1.1\r\n", "A: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n", 4000,
                         "") == 431);
    CHECK(status_of_long(POST "Transfer-Encoding: chunked\r\n\r\n5;", "x", 1 << 20, "") == 400);
    CHECK(status_of_long(POST "Transfer-Encoding: chunked\r\n\r\n", "400\r\n", 0, "") == -1);
    CHECK(status_of_long(POST "Transfer-Encoding: chunked\r\n\r\n0\r\n", "A: b\r\n", 2000, "") ==
          431);
}

static void a_nul_is_refused_everywhere_in_the_head(void)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n\r\n";
    for (size_t i = 0; i + 1 < sizeof request; i++) {
        char copy[sizeof request];
        memcpy(copy, request, sizeof request);
        copy[i] = 0;
        CHECK(status_of(copy, sizeof request - 1) == 400);
    }
}

static void chunks_without_end_stop_at_the_limit_of_the_body(void)
{
    http_parser p;
    static char chunk[65536 + 16];
    size_t n = (size_t)sprintf(chunk, "10000\r\n");
    memset(chunk + n, 'x', 65536);
    memcpy(chunk + n + 65536, "\r\n", 2);
    feed(&p, POST "Transfer-Encoding: chunked\r\n\r\n", strlen(POST) + 30, 4096);
    int n_chunks = 0;
    while (p.state != HTTP_BAD && n_chunks < 1000) {
        http_parser_feed(&p, chunk, n + 65536 + 2);
        n_chunks++;
    }
    CHECK(p.status == 413 && n_chunks == 129);
    CHECK(p.body.capacity <= (size_t)MAX_BODY + (MAX_BODY >> 2));
    http_parser_deinit(&p);
}

static void a_request_is_taken_apart_and_the_next_one_left(void)
{
    static const char two[] = "POST /v1/x?a=1 HTTP/1.1\r\nhOsT: h:1\r\nX:  y z \r\n"
                              "Content-Length: 2\r\n\r\nhiGET / HTTP/1.1\r\n";
    http_parser p;
    http_parser_init(&p, MAX_BODY);
    CHECK(http_parser_is_idle(&p));
    size_t used = http_parser_feed(&p, two, strlen(two));
    CHECK(p.state == HTTP_HEAD_DONE);
    http_parser_read_body(&p);
    used += http_parser_feed(&p, two + used, strlen(two) - used);
    CHECK(p.state == HTTP_DONE && strcmp(two + used, "GET / HTTP/1.1\r\n") == 0);
    CHECK(text_is(p.method, "POST") && text_is(p.path, "/v1/x") && text_is(p.query, "a=1"));
    CHECK(text_is(http_parser_header(&p, "x"), "y z"));
    CHECK(text_is(http_parser_header(&p, "HOST"), "h:1"));
    CHECK(!http_parser_header(&p, "y").data && p.keeps_alive);
    CHECK(p.body.size == 2 && memcmp(p.body.data, "hi", 2) == 0);
    http_parser_deinit(&p);
}

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        tap_case_arg(cases[i].claim, check_case, (void *)&cases[i]);
    CASE(limits_hold_while_bytes_arrive);
    CASE(a_nul_is_refused_everywhere_in_the_head);
    CASE(chunks_without_end_stop_at_the_limit_of_the_body);
    CASE(a_request_is_taken_apart_and_the_next_one_left);
    return tap_end();
}
