/*
 * Connections that behave badly, and many at once: the server goes on, and is as before afterwards.
 *
 * $LACE_LOAD=1 runs the full sizes (1,000 streams, 10,000 idle connections, 10,000 disconnects);
 * without it the same cases are some seconds long.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "served.h"
#include "tap.h"

static served s;
static answer a;
static bool is_full;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void wait_ms(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

/* Sends a request for a text and leaves the answer to be read. */
static int ask(const char *prompt, int max_tokens, bool is_stream)
{
    char body[512], head[256];
    int n = snprintf(body, sizeof body,
                     "{\"prompt\":\"%s\",\"max_tokens\":%d,\"ignore_eos\":true,\"stream\":%s}",
                     prompt, max_tokens, is_stream ? "true" : "false");
    int n_head = snprintf(head, sizeof head,
                          "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                          "application/json\r\nContent-Length: %d\r\n\r\n",
                          n);
    int fd = served_connect(&s);
    if (fd >= 0 && (!served_send(fd, head, (size_t)n_head) || !served_send(fd, body, (size_t)n))) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Close with a reset in place of a farewell. */
static void reset(int fd)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
}

/* Until nothing runs and the pool is free; false if that does not come. */
static bool is_quiet(void)
{
    for (int i = 0; i < 300; i++) {
        if (served_metric(&s, "lace_requests_running") == 0 &&
            served_metric(&s, "lace_requests_waiting") == 0 &&
            served_metric(&s, "lace_kv_tokens_used") == 0)
            return true;
        wait_ms(50);
    }
    return false;
}

static bool settles_at(served_state before)
{
    served_state after = {0};
    for (int i = 0; i < 100; i++) {
        after = served_look(&s);
        if (after.n_files <= before.n_files + 1 && after.n_threads == before.n_threads)
            return true;
        wait_ms(50);
    }
    tap_note("%d files (before %d), %d threads (before %d)", after.n_files, before.n_files,
             after.n_threads, before.n_threads);
    return false;
}

/* ---- Clients that leave ---------------------------------------------------------------------- */

static void read_events(int fd, int n)
{
    char data[4096];
    while (n > 0) {
        ssize_t got = recv(fd, data, sizeof data, 0);
        if (got <= 0)
            return;
        for (ssize_t i = 0; i + 1 < got; i++)
            n -= data[i] == '\n' && data[i + 1] == '\n';
    }
}

static void clients_that_leave_a_stream_cost_nothing(void)
{
    int n_rounds = is_full ? 10000 : 200;
    served_state before = served_look(&s);
    double generated = served_metric(&s, "lace_generated_tokens_total");
    for (int i = 0; i < n_rounds; i++) {
        int fd = ask("Once upon a time", 200, true);
        if (!CHECK(fd >= 0))
            return;
        if (i % 21)
            read_events(fd, i % 21);
        if (i % 2)
            close(fd);
        else
            reset(fd);
    }
    CHECK(is_quiet());
    CHECK(settles_at(before));
    /* Had they gone on, they would have made 200 tokens each. */
    double made = served_metric(&s, "lace_generated_tokens_total") - generated;
    if (!CHECK(made < 100.0 * n_rounds))
        tap_note("%.0f tokens for %d clients", made, n_rounds);
}

static void clients_that_leave_before_an_answer_are_noticed(void)
{
    served_state before = served_look(&s);
    int fds[64];
    for (int i = 0; i < 64; i++) /* far more than run together: most of them wait */
        fds[i] = ask("The king said", 230, false);
    wait_ms(100);
    double generated = served_metric(&s, "lace_generated_tokens_total");
    for (int i = 0; i < 64; i++)
        close(fds[i]);
    CHECK(is_quiet());
    CHECK(served_metric(&s, "lace_generated_tokens_total") - generated < 64 * 120);
    CHECK(settles_at(before));
}

static void a_long_prompt_is_given_up_when_its_client_leaves(void)
{
    char prompt[400] = "";
    for (int i = 0; i < 60; i++)
        strcat(prompt, i % 2 ? " fox" : " hen");
    for (int i = 0; i < 20; i++) {
        int fd = ask(prompt, 100, false);
        close(fd);
    }
    CHECK(is_quiet());
}

/* ---- Slow ones ------------------------------------------------------------------------------- */

static void heads_that_never_end_are_closed(void)
{
    enum { N = 200 };
    int fds[N], n = is_full ? N : 50;
    double begin = now_s();
    for (int i = 0; i < n; i++) {
        fds[i] = served_connect(&s);
        served_send(fds[i], "GET /health HTTP/1.1\r\nHost: local", 34);
    }
    served_post(&s, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1}", &a);
    CHECK(a.status == 200);
    for (int i = 0; i < n; i++) {
        while (now_s() - begin < 14) {
            struct pollfd p = {.fd = fds[i], .events = POLLIN};
            served_send(fds[i], "h", 1);
            if (poll(&p, 1, 200) > 0)
                break;
        }
        char byte;
        ssize_t got = recv(fds[i], &byte, 1, MSG_DONTWAIT);
        CHECK(got <= 0 || byte == 'H'); /* closed, or refused */
        close(fds[i]);
    }
    CHECK(now_s() - begin < 15);
}

static void a_reader_that_does_not_read_is_cut_off_and_others_go_on(void)
{
    enum { N = 8 };
    int fds[N], size = 2048;
    for (int i = 0; i < N; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s.port)};
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
        CHECK(connect(fds[i], (struct sockaddr *)&address, sizeof address) == 0);
        /* Many choices with log-probabilities make more text than buffers take. */
        static const char body[] =
            "{\"prompt\":\"a\",\"max_tokens\":220,\"n\":4,\"ignore_eos\":true,"
            "\"stream\":true,\"logprobs\":20}";
        char head[256];
        int n = snprintf(head, sizeof head,
                         "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                         "application/json\r\nContent-Length: %zu\r\n\r\n%s",
                         strlen(body), body);
        served_send(fds[i], head, (size_t)n);
    }
    for (int i = 0; i < 5; i++) {
        served_post(&s, "/v1/completions", "{\"prompt\":\"b\",\"max_tokens\":8}", &a);
        CHECK(a.status == 200);
    }
    double until = now_s() + 60;
    while (now_s() < until && served_metric(&s, "lace_connections") > 1)
        wait_ms(250);
    CHECK(served_metric(&s, "lace_connections") <= 1);
    CHECK(served_metric(&s, "lace_slow_readers_total") == N);
    CHECK(is_quiet());
    for (int i = 0; i < N; i++)
        close(fds[i]);
}

/* ---- Many ------------------------------------------------------------------------------------ */

/* Asks for /health again and again and keeps the slowest times. */
typedef struct prober {
    atomic_bool is_ending;
    double times[20000];
    int n;
} prober;

static prober probe;

static void *run_prober(void *arg)
{
    answer own = {0};
    while (!probe.is_ending && probe.n < 20000) {
        double begin = now_s();
        served_get(&s, "/health", &own);
        if (own.status == 200)
            probe.times[probe.n++] = now_s() - begin;
        wait_ms(5);
    }
    answer_free(&own);
    return NULL;
}

static int by_size(const void *x, const void *y)
{
    double p = *(const double *)x, q = *(const double *)y;
    return p < q ? -1 : p > q;
}

static void many_streams_end_and_health_answers_meanwhile(void)
{
    int n = is_full ? 1000 : 100, n_done = 0;
    int *fds = calloc((size_t)n, sizeof *fds);
    pthread_t thread;
    served_state before = served_look(&s);
    probe.n = 0;
    probe.is_ending = false;
    pthread_create(&thread, NULL, run_prober, NULL);
    for (int i = 0; i < n; i++)
        fds[i] = ask("Once upon a time", 16, true);
    for (int i = 0; i < n; i++) {
        served_read(fds[i], &a, 300);
        n_done += a.status == 200 && strstr(a.body, "data: [DONE]\n\n") &&
                  strstr(a.body, "\"finish_reason\":\"length\"");
        close(fds[i]);
    }
    probe.is_ending = true;
    pthread_join(thread, NULL);
    qsort(probe.times, (size_t)probe.n, sizeof probe.times[0], by_size);
    CHECK(n_done == n);
    CHECK(probe.n > 0);
    if (probe.n)
        tap_note("%d streams; /health p99 %.1f ms of %d", n, 1e3 * probe.times[probe.n * 99 / 100],
                 probe.n);
    CHECK(is_quiet());
    CHECK(settles_at(before));
    free(fds);
}

static void idle_connections_are_held_and_given_back(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    int n = is_full ? 10000 : 1000, n_open = 0;
    if (limit.rlim_cur < (rlim_t)n + 64)
        return tap_skip("only %lu files may be open", (unsigned long)limit.rlim_cur);
    int *fds = calloc((size_t)n, sizeof *fds);
    served_state before = served_look(&s);
    static const char request[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (int i = 0; i < n; i++) {
        fds[i] = served_connect(&s);
        n_open += fds[i] >= 0 && served_send(fds[i], request, strlen(request));
    }
    CHECK(n_open == n);
    int n_answered = 0;
    char reply[512];
    for (int i = 0; i < n; i++) {
        struct pollfd p = {.fd = fds[i], .events = POLLIN};
        n_answered += poll(&p, 1, 30000) > 0 && recv(fds[i], reply, sizeof reply, 0) > 0;
    }
    CHECK(n_answered == n);
    CHECK(served_metric(&s, "lace_connections") == n + 1);
    double begin = now_s();
    served_post(&s, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":4}", &a);
    CHECK(a.status == 200);
    served_state held = served_look(&s);
    tap_note("%d idle: %ld KB more, a request beside them %.0f ms", n, held.rss_kb - before.rss_kb,
             1e3 * (now_s() - begin));
    for (int i = 0; i < n; i++)
        close(fds[i]);
    CHECK(settles_at(before));
    free(fds);
}

static void a_full_queue_answers_429_with_a_time(void)
{
    int fds[40], n_refused = 0;
    served_stop(&s);
    if (!CHECK(served_start(&s, "-c 256 --threads 2 --max-running 2 --max-queue 4")))
        return;
    for (int i = 0; i < 40; i++)
        fds[i] = ask("Once upon a time", 200, false);
    for (int i = 0; i < 40; i++) {
        served_read(fds[i], &a, 120);
        bool is_refused = a.status == 429 && strstr(a.head, "Retry-After: ");
        n_refused += is_refused;
        CHECK(a.status == 200 || is_refused);
        close(fds[i]);
    }
    CHECK(n_refused >= 20);
}

static void a_request_that_takes_too_long_is_ended(void)
{
    served_stop(&s);
    if (!CHECK(served_start(&s, "--threads 1 -c 1024 --timeout 1 --max-running 64")))
        return;
    int fds[64], n_late = 0;
    for (int i = 0; i < 64; i++) /* together they need far more than a second */
        fds[i] = ask("Once upon a time", 1000, i % 2);
    for (int i = 0; i < 64; i++) {
        served_read(fds[i], &a, 60);
        /* Before the first byte by the status, in a stream by an event. */
        n_late += strstr(a.body, "\"timeout\"") && a.status == (i % 2 ? 200 : 504);
        close(fds[i]);
    }
    if (!CHECK(n_late > 32))
        tap_note("%d of 64", n_late);
    CHECK(is_quiet());
}

/* ---- Ending ---------------------------------------------------------------------------------- */

/* Read streams to their end and close them; how many of them came to theirs. */
static int count_whole_streams(const int *fds, int n)
{
    int n_whole = 0;
    for (int i = 0; i < n; i++) {
        char data[65536];
        size_t n_kept = 0; /* the end of what came before, in which a mark may begin */
        ssize_t got;
        bool is_whole = false;
        while ((got = recv(fds[i], data + n_kept, sizeof data - 1 - n_kept, 0)) > 0) {
            size_t size = n_kept + (size_t)got;
            data[size] = 0;
            is_whole = strstr(data, "[DONE]") != NULL;
            n_kept = size < 40 ? size : 40;
            memmove(data, data + size - n_kept, n_kept);
        }
        n_whole += is_whole;
        close(fds[i]);
    }
    return n_whole;
}

static void sigterm_lets_streams_end_and_refuses_the_rest(void)
{
    int fds[16];
    served_stop(&s);
    if (!CHECK(served_start(&s, "-c 256 --threads 2 --drain 60")))
        return;
    for (int i = 0; i < 16; i++)
        fds[i] = ask("Once upon a time", 240, true);
    for (int i = 0; i < 16; i++)
        read_events(fds[i], 1);
    kill(s.pid, SIGTERM);
    wait_ms(50);
    served_get(&s, "/ready", &a);
    CHECK(a.status == 503 || a.status == 0); /* gone, if the streams were that quick */
    bool is_there = a.status == 503;
    served_post(&s, "/v1/completions", "{\"prompt\":\"a\"}", &a);
    CHECK(!is_there || a.status == 503 || a.status == 0);
    CHECK(count_whole_streams(fds, 16) == 16);
    CHECK(served_wait(&s) == 0);
}

/* The call is over, but its answer is larger than the buffers between the two. */
static void sigterm_lets_a_slow_reader_have_the_whole_answer(void)
{
    enum { N_WORDS = 300000 };
    char *body = malloc(N_WORDS * 5 + 64), head[256];
    if (!CHECK(body && served_start(&s, "-c 256 --threads 1 --drain 60")))
        return;
    char *at = stpcpy(body, "{\"content\":\"");
    for (int i = 0; i < N_WORDS; i++)
        at = stpcpy(at, " king");
    at = stpcpy(at, "\"}");
    int fd = served_connect(&s);
    int n = snprintf(head, sizeof head,
                     "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                     "application/json\r\nContent-Length: %zu\r\n\r\n",
                     (size_t)(at - body));
    CHECK(served_send(fd, head, (size_t)n) && served_send(fd, body, (size_t)(at - body)));
    CHECK(recv(fd, head, 1, MSG_PEEK) == 1); /* the answer begins */
    kill(s.pid, SIGTERM);
    wait_ms(1000); /* some ticks of the server */
    served_read(fd, &a, 60);
    if (!CHECK(a.status == 200 && a.n_body > 1 << 20 && a.body[a.n_body - 1] == '}'))
        tap_note("status %d, %zu bytes", a.status, a.n_body);
    close(fd);
    free(body);
    CHECK(served_wait(&s) == 0);
}

static void a_second_sigterm_ends_it_at_once(void)
{
    if (!CHECK(served_start(&s, "-c 1024 --threads 2 --drain 300")))
        return;
    int fds[8];
    for (int i = 0; i < 8; i++)
        fds[i] = ask("Once upon a time", 1000, true);
    for (int i = 0; i < 8; i++)
        read_events(fds[i], 1);
    kill(s.pid, SIGTERM);
    /* Two signals that nobody has looked at yet are one. A connection that the first one finds
     * without a request is closed. */
    a.status = 0;
    for (int i = 0; i < 100 && a.status != 503; i++)
        served_get(&s, "/ready", &a);
    CHECK(a.status == 503);
    kill(s.pid, SIGTERM);
    CHECK(count_whole_streams(fds, 8) < 8); /* some were cut, so it did not wait for them */
    CHECK(served_wait(&s) == 0);
}

int main(void)
{
    is_full = getenv("LACE_LOAD") != NULL;
    if (!served_start(&s, "-c 256 --threads 2 --max-queue 2000")) {
        printf("Bail out! the server does not start\n");
        return 1;
    }
    CASE(clients_that_leave_a_stream_cost_nothing);
    CASE(clients_that_leave_before_an_answer_are_noticed);
    CASE(a_long_prompt_is_given_up_when_its_client_leaves);
    CASE(many_streams_end_and_health_answers_meanwhile);
    CASE(idle_connections_are_held_and_given_back);
    CASE(heads_that_never_end_are_closed);
    CASE(a_reader_that_does_not_read_is_cut_off_and_others_go_on);
    CASE(a_full_queue_answers_429_with_a_time);
    CASE(a_request_that_takes_too_long_is_ended);
    CASE(sigterm_lets_streams_end_and_refuses_the_rest);
    CASE(sigterm_lets_a_slow_reader_have_the_whole_answer);
    CASE(a_second_sigterm_ends_it_at_once);
    served_stop(&s);
    answer_free(&a);
    return tap_end();
}
