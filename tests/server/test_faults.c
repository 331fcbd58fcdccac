/*
 * Thousands of mixed faults in one server, then the golden answer byte for byte, and descriptors,
 * threads, KV cache and memory as at the beginning.
 *
 * $LACE_FAULTS is how many (default 1,000; the full run has 10,000). The seed is printed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "served.h"
#include "tap.h"

/* AddressSanitizer keeps what was freed for a while, ThreadSanitizer who touched what. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KEEPS_MEMORY true
#elif defined(__has_feature)
#define KEEPS_MEMORY (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define KEEPS_MEMORY false
#endif

static served s;
static answer a;
static unsigned state = 1;

static unsigned draw(unsigned n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

static void wait_ms(int ms)
{
    struct timespec t = {0, ms * 1000000L};
    nanosleep(&t, NULL);
}

/* ---- Kinds of faults ------------------------------------------------------------------------- */

/* Requests as they are sent; what the server makes of them does not matter here. */
static const char *const raw_faults[] = {
    "",
    "G",
    "\r\n\r\n",
    "GET / HTTP/1.1\r\n",
    "GET / HTTP/1.1\nHost: a\n\n",
    "GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: "
    "chunked\r\n\r\n",
    "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
    "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Content-Length: 50\r\n\r\n{\"content\":",
    "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: "
    "2\r\n\r\n{}",
    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n",
    "\x16\x03\x01\x02\x01\x01\xFC\x03\x03",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "DELETE /v1/models/x HTTP/1.1\r\nHost: localhost\r\n\r\n",
};

static const char *const body_faults[] = {
    "",
    "{",
    "[]",
    "{\"messages\":5}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"\xFF\"}]}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}",
    "{\"prompt\":5}",
    "{\"prompt\":[99999999]}",
    "{\"prompt\":\"a\",\"n\":0}",
    "{\"prompt\":\"a\",\"temperature\":-3}",
    "{\"prompt\":\"a\",\"max_tokens\":99999999999999999999}",
    "{\"prompt\":\"a\",\"logit_bias\":{\"-1\":5}}",
    "{\"prompt\":\"a\",\"model\":\"../../etc/passwd\"}",
    "{\"prompt\":\"a\",\"stop\":[5]}",
    "{\"prompt\":\"a\",\"prompt\":\"b\"}",
    "{\"prompt\":\"a\",\"response_format\":{\"type\":\"banana\"}}",
    "{\"messages\":[{\"role\":\"root\",\"content\":\"x\"}]}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{}]}",
};

enum {
    N_RAW = sizeof raw_faults / sizeof raw_faults[0],
    N_BODY = sizeof body_faults / sizeof body_faults[0],
    N_OTHER = 6,
    N_KINDS = N_RAW + N_BODY + N_OTHER,
};

static void end(int fd)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    if (draw(2))
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
}

static void send_request(int fd, const char *path, const char *body)
{
    char head[512];
    int n = snprintf(head, sizeof head,
                     "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n",
                     path, strlen(body));
    served_send(fd, head, (size_t)n);
    served_send(fd, body, strlen(body));
}

/* Faults that need more than bytes. */
static void do_other(int fd, unsigned kind)
{
    char byte;
    switch (kind) {
    case 0: /* leaves while it waits or is computed */
        send_request(fd, "/v1/completions", "{\"prompt\":\"The king\",\"max_tokens\":200}");
        break;
    case 1: /* leaves in the middle of a stream */
        send_request(fd, "/v1/completions",
                     "{\"prompt\":\"The fox\",\"max_tokens\":200,\"stream\":true}");
        (void)!recv(fd, &byte, 1, 0);
        break;
    case 2: /* several choices, and leaves */
        send_request(fd, "/v1/completions",
                     "{\"prompt\":\"The hen\",\"max_tokens\":50,\"n\":5,\"stream\":true}");
        (void)!recv(fd, &byte, 1, 0);
        break;
    case 3: /* a head that is too long */
        for (int i = 0; i < 1000 && served_send(fd, "aaaaaaaaaaaaaaaa", 16); i++)
            continue;
        break;
    case 4: /* requests on top of each other, and leaves */
        for (int i = 0; i < 5; i++)
            send_request(fd, "/tokenize", "{\"content\":\"The king\"}");
        break;
    default: /* a prompt that is too long */
        send_request(
            fd, "/v1/completions",
            "{\"max_tokens\":5,\"truncate\":true,\"prompt\":\"x x x x x x x x x x x x x\"}");
        break;
    }
}

static void do_fault(unsigned kind)
{
    int fd = served_connect(&s);
    if (!CHECK(fd >= 0))
        return;
    if (kind < N_RAW)
        served_send(fd, raw_faults[kind], strlen(raw_faults[kind]));
    else if (kind < N_RAW + N_BODY)
        send_request(fd, kind % 2 ? "/v1/completions" : "/v1/chat/completions",
                     body_faults[kind - N_RAW]);
    else
        do_other(fd, kind - N_RAW - N_BODY);
    if (draw(3) == 0)
        wait_ms((int)draw(5));
    end(fd);
}

/* ---- The case -------------------------------------------------------------------------------- */

/* Without the prefix tree, so that all of it is computed, in the same batches. */
static void read_golden(char *out, size_t size)
{
    served_post(&s, "/v1/completions",
                "{\"prompt\":\"Once upon a time there was a king\",\"max_tokens\":32,"
                "\"temperature\":0,\"logprobs\":2,\"cache_prompt\":false}",
                &a);
    const char *choices = a.body ? strstr(a.body, "\"choices\"") : NULL;
    const char *usage = choices ? strstr(choices, ",\"usage\"") : NULL;
    snprintf(out, size, "%d %.*s", a.status, usage ? (int)(usage - choices) : 0,
             usage ? choices : "");
}

static bool is_quiet(int n_files)
{
    for (int i = 0; i < 400; i++) {
        if (served_metric(&s, "lace_requests_running") == 0 &&
            served_metric(&s, "lace_requests_waiting") == 0 &&
            served_metric(&s, "lace_kv_tokens_used") == 0 && served_look(&s).n_files <= n_files + 1)
            return true;
        wait_ms(50);
    }
    return false;
}

static void after_mixed_faults_the_server_is_as_before(void)
{
    static char golden[1 << 16], again[1 << 16];
    int n = getenv("LACE_FAULTS") ? atoi(getenv("LACE_FAULTS")) : 1000;
    read_golden(golden, sizeof golden);
    CHECK(strncmp(golden, "200 ", 4) == 0);
    /* Every kind once first: pools and caches of the allocator have grown by then. */
    for (unsigned kind = 0; kind < N_KINDS; kind++)
        do_fault(kind);
    CHECK(is_quiet(1 << 20));
    wait_ms(500);
    served_state before = served_look(&s);
    for (int i = 0; i < n; i++)
        do_fault(draw(N_KINDS));
    CHECK(is_quiet(before.n_files));
    served_state after = served_look(&s);
    read_golden(again, sizeof again);
    CHECK(strcmp(golden, again) == 0);
    CHECK(after.n_threads == before.n_threads);
    tap_note("%d faults of %d kinds: files %d to %d, threads %d to %d, memory %ld to %ld KB", n,
             N_KINDS, before.n_files, after.n_files, before.n_threads, after.n_threads,
             before.rss_kb, after.rss_kb);
    /* The tree fills the KV pool's 4 MB once; the allocator keeps some of what it had. */
    CHECK(KEEPS_MEMORY || after.rss_kb - before.rss_kb < 12 << 10);
    served_get(&s, "/health", &a);
    CHECK(a.status == 200);
}

int main(void)
{
    if (!served_start(&s, "-c 256 --threads 2 --kv-memory 4M 2>/dev/null")) {
        printf("Bail out! the server does not start\n");
        return 1;
    }
    CASE(after_mixed_faults_the_server_is_as_before);
    CHECK(served_stop(&s) == 0);
    answer_free(&a);
    return tap_end();
}
