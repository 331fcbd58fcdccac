/* A running `lace serve` in a test, and a client for it. */
#define _GNU_SOURCE
#include "served.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tap.h"

/* For a server to end: more than it gives its streams (30 s), on a machine that does much else. */
enum { PATIENCE_S = 120 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Until the model behind a router is loaded, or the router wants a key for the answer. */
static void wait_for_model(const served *s)
{
    answer a = {0};
    do {
        struct timespec pause = {.tv_nsec = 20000000};
        nanosleep(&pause, NULL);
        served_get(s, "/v1/models", &a);
    } while (a.status == 200 && !answer_has(&a, "\"state\":\"ready\""));
    answer_free(&a);
}

bool served_start(served *s, const char *arguments)
{
    const char *program = getenv("LACE_BIN") ? getenv("LACE_BIN") : "build/lace";
    char command[2048], line[512];
    int ends[2];
    /* The smaller story teller, where a test wants none of its own: it is six times as fast. */
    bool has_model =
        arguments[0] == '/' || strstr(arguments, ".gguf") || strstr(arguments, "--models");
    const char *model = has_model                      ? ""
                        : getenv("LACE_SERVED_MODELS") ? "--models tests/data/one_model.toml"
                                                       : "models/tales-4m.gguf";
    snprintf(command, sizeof command, "exec \"%s\" serve --port 0 %s %s", program, model,
             arguments);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    signal(SIGPIPE, SIG_IGN);
    s->pid = fork();
    if (s->pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        signal(SIGPIPE, SIG_DFL);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *out = fdopen(ends[0], "r");
    const char *colon = out && fgets(line, sizeof line, out) ? strrchr(line, ':') : NULL;
    s->port = colon ? atoi(colon + 1) : 0;
    if (out)
        fclose(out);
    if (!colon) {
        served_stop(s);
        return false;
    }
    if (!has_model && getenv("LACE_SERVED_MODELS"))
        wait_for_model(s);
    return true;
}

/* Whether it ends in this time; `status` is then what waitpid says. */
static bool ends_within(pid_t pid, int seconds, int *status)
{
    for (double until = now_s() + seconds; now_s() < until;) {
        pid_t ended = waitpid(pid, status, WNOHANG);
        if (ended != 0)
            return ended == pid;
        struct timespec pause = {.tv_nsec = 2000000};
        nanosleep(&pause, NULL);
    }
    return false;
}

int served_wait(served *s)
{
    int status = 0;
    if (s->pid <= 0)
        return -1;
    bool has_ended = ends_within(s->pid, PATIENCE_S, &status);
#ifdef __SANITIZE_THREAD__
    /* This sanitizer loses a signal now and then, in a program of ten lines too: 5 times in 1,500. */
    if (!has_ended) {
        tap_note("the server is told once more to end");
        kill(s->pid, SIGTERM);
        has_ended = ends_within(s->pid, PATIENCE_S, &status);
    }
#endif
    if (!has_ended) {
        tap_note("the server does not end; it is killed");
        kill(s->pid, SIGKILL);
        if (waitpid(s->pid, &status, 0) != s->pid)
            return -1;
    }
    s->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int served_stop(served *s)
{
    if (s->pid > 0)
        kill(s->pid, SIGTERM);
    return served_wait(s);
}

served_state served_look(const served *s)
{
    served_state state = {0};
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)s->pid);
    DIR *d = opendir(path);
    while (d && readdir(d))
        state.n_files++;
    if (d)
        closedir(d);
    snprintf(path, sizeof path, "/proc/%d/status", (int)s->pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        sscanf(line, "VmRSS: %ld", &state.rss_kb);
        sscanf(line, "Threads: %d", &state.n_threads);
    }
    if (f)
        fclose(f);
    return state;
}

int served_connect(const served *s)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

bool served_send(int fd, const char *data, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        data += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* ---- Reading --------------------------------------------------------------------------------- */

typedef struct reader {
    int fd;
    double until;
    char *data;
    size_t n, capacity;
    bool is_closed, is_late;
} reader;

static bool more(reader *r)
{
    struct pollfd p = {.fd = r->fd, .events = POLLIN};
    double left = r->until - now_s();
    if (r->n + 65536 > r->capacity)
        r->data = realloc(r->data, r->capacity = 2 * r->capacity + 131072);
    if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) <= 0) {
        r->is_late = true;
        return false;
    }
    ssize_t got = recv(r->fd, r->data + r->n, 65535, 0);
    if (got <= 0) {
        r->is_closed = true;
        return false;
    }
    r->n += (size_t)got;
    r->data[r->n] = 0;
    return true;
}

/* Puts chunks together at the front of `at`. True when the last one has come. */
static bool join_chunks(const char *at, size_t n, char *to, size_t *n_to)
{
    *n_to = 0;
    for (;;) {
        const char *end = memmem(at, n, "\r\n", 2);
        if (!end)
            return false;
        size_t size = strtoul(at, NULL, 16), used = (size_t)(end - at) + 2;
        if (used + size + 2 > n)
            return false;
        memcpy(to + *n_to, at + used, size);
        *n_to += size;
        at += used + size + 2;
        n -= used + size + 2;
        if (size == 0)
            return true;
    }
}

void answer_free(answer *a)
{
    free(a->body);
    memset(a, 0, sizeof *a);
}

char *answer_text(const answer *a)
{
    json_t *json = json_loads(a->body ? a->body : "", 0, NULL);
    const json_t *choice = json_array_get(json_object_get(json, "choices"), 0);
    const char *words = json_string_value(json_object_get(choice, "text"));
    char *copy = words ? strdup(words) : NULL;
    json_decref(json);
    return copy;
}

bool answer_has(const answer *a, const char *part)
{
    return a->body && strstr(a->body, part) != NULL;
}

int answer_count(const answer *a, const char *part)
{
    int n = 0;
    for (const char *at = a->body; at && (at = strstr(at, part)); at += strlen(part))
        n++;
    return n;
}

void answer_check(const answer *a, int status, const char *part)
{
    bool ok = CHECK(a->status == status);
    ok = CHECK(!part || answer_has(a, part)) && ok;
    if (!ok)
        tap_note("status %d, expected %d with %s: %.400s", a->status, status,
                 part ? part : "anything", a->body ? a->body : "");
}

void served_read(int fd, answer *a, double timeout_s)
{
    reader r = {.fd = fd, .until = now_s() + timeout_s};
    free(a->body);
    memset(a, 0, sizeof *a);
    char *end = NULL;
    while (!(end = r.n ? memmem(r.data, r.n, "\r\n\r\n", 4) : NULL) && more(&r))
        continue;
    if (!end) {
        a->status = r.is_late ? -1 : 0;
        a->is_closed = r.is_closed;
        a->body = calloc(1, 1);
        free(r.data);
        return;
    }
    size_t n_head = (size_t)(end - r.data) + 4;
    snprintf(a->head, sizeof a->head, "%.*s", (int)n_head, r.data);
    a->status = atoi(r.data + 9);
    const char *length = strcasestr(a->head, "\r\nContent-Length: ");
    bool is_chunked = strcasestr(a->head, "\r\nTransfer-Encoding: chunked") != NULL;
    for (;;) {
        size_t n = r.n - n_head;
        free(a->body);
        a->body = malloc(n + 1);
        a->n_body = n;
        if (n)
            memcpy(a->body, r.data + n_head, n);
        bool is_done = is_chunked ? join_chunks(r.data + n_head, n, a->body, &a->n_body)
                       : length   ? n >= strtoul(length + 18, NULL, 10)
                                  : false;
        a->body[a->n_body] = 0;
        if (is_done || !more(&r))
            break;
    }
    /* Whether it closes is seen only by waiting, so only where the head says so. */
    if (strcasestr(a->head, "\r\nConnection: close"))
        while (!r.is_closed && more(&r))
            continue;
    a->is_closed = r.is_closed;
    free(r.data);
}

void served_request(const served *s, const char *method, const char *path, const char *headers,
                    const char *body, size_t n_body, answer *a)
{
    char head[4096];
    int n = snprintf(head, sizeof head,
                     "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%sContent-Length: %zu\r\n\r\n", method,
                     path, headers ? headers : "", n_body);
    int fd = served_connect(s);
    bool is_sent = fd >= 0 && served_send(fd, head, (size_t)n) && served_send(fd, body, n_body);
    (void)is_sent; /* a server that refuses early may close before all was sent */
    if (fd >= 0)
        served_read(fd, a, 60);
    else
        a->status = 0;
    if (fd >= 0)
        close(fd);
}

void served_post(const served *s, const char *path, const char *json, answer *a)
{
    served_request(s, "POST", path, "Content-Type: application/json\r\n", json, strlen(json), a);
}

void served_get(const served *s, const char *path, answer *a)
{
    served_request(s, "GET", path, NULL, "", 0, a);
}

double served_metric(const served *s, const char *name)
{
    answer a = {0};
    char line[128];
    double value = -1;
    served_get(s, "/metrics", &a);
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = a.body ? strstr(a.body, line) : NULL;
    if (at)
        value = atof(at + strlen(line));
    answer_free(&a);
    return value;
}
