/* Where the server listens: sockets in the file system, stalled handshakes, epoll that fails. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sanitized.h"
#include "scratch.h"
#include "served.h"
#include "tap.h"

static served s;
static answer a;

static bool start(const char *format, const char *path)
{
    char arguments[512];
    snprintf(arguments, sizeof arguments, format, path);
    return served_start(&s, arguments);
}

/* ---- Sockets in the file system -------------------------------------------------------------- */

static int connect_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool is_healthy(const char *path)
{
    static const char request[] = "GET /health HTTP/1.1\r\nHost: any\r\n\r\n";
    int fd = connect_unix(path);
    if (fd < 0)
        return false;
    served_send(fd, request, strlen(request));
    served_read(fd, &a, 30);
    close(fd);
    return a.status == 200;
}

static void a_file_in_the_place_of_a_socket_stays(void)
{
    CHECK(scratch_write("file", "precious"));
    CHECK(!start("--threads 1 -c 64 --unix %s 2>/dev/null", scratch_path("file")));
    CHECK(scratch_holds("file", "precious"));
}

static void a_live_socket_is_not_taken_over(void)
{
    char path[108];
    snprintf(path, sizeof path, "%s", scratch_path("live"));
    if (!CHECK(start("--threads 1 -c 64 --unix %s", path)))
        return;
    served first = s;
    CHECK(!start("--threads 1 -c 64 --unix %s 2>/dev/null", path));
    CHECK(is_healthy(path));
    CHECK(served_stop(&first) == 0);
    struct stat st;
    CHECK(lstat(path, &st) != 0);
}

/* A connection to it fails, but not because nobody has it. */
static void a_socket_of_another_kind_is_not_taken_over(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat st;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", scratch_path("datagrams"));
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(!start("--threads 1 -c 64 --unix %s 2>/dev/null", address.sun_path));
    CHECK(lstat(address.sun_path, &st) == 0);
    close(fd);
    unlink(address.sun_path);
}

static void the_socket_of_a_killed_server_is_used_again(void)
{
    char path[108];
    struct stat st;
    snprintf(path, sizeof path, "%s", scratch_path("stale"));
    if (!CHECK(start("--threads 1 -c 64 --unix %s", path)))
        return;
    kill(s.pid, SIGKILL);
    served_wait(&s);
    CHECK(lstat(path, &st) == 0);
    if (CHECK(start("--threads 1 -c 64 --unix %s", path))) {
        CHECK(is_healthy(path));
        CHECK(served_stop(&s) == 0);
    }
}

static void what_took_the_place_of_the_socket_stays(void)
{
    char path[108];
    snprintf(path, sizeof path, "%s", scratch_path("moved"));
    if (!CHECK(start("--threads 1 -c 64 --unix %s", path)))
        return;
    CHECK(unlink(path) == 0 && scratch_write("moved", "precious"));
    CHECK(served_stop(&s) == 0);
    CHECK(scratch_holds("moved", "precious"));
}

/* ---- TLS ------------------------------------------------------------------------------------- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Connections that say nothing, or begin a handshake and stop, are closed like half heads. */
static void stalled_handshakes_are_closed(void)
{
    char command[1024], arguments[512];
    snprintf(command, sizeof command,
             "openssl req -x509 -newkey rsa:2048 -nodes -keyout %s -out %s -days 2 -subj "
             "/CN=localhost 2>/dev/null",
             scratch_path("key"), scratch_path("cert"));
    if (system(command) != 0)
        return tap_skip("no openssl");
    snprintf(arguments, sizeof arguments, "--threads 1 -c 64 --tls-key %s --tls-cert %s",
             scratch_path("key"), scratch_path("cert"));
    if (!CHECK(served_start(&s, arguments)))
        return;
    double begin = now_s();
    int silent = served_connect(&s), half = served_connect(&s);
    served_send(half, "\x16\x03\x01\x02\x00\x01\x00", 7); /* a ClientHello that never ends */
    struct pollfd ends[2] = {{.fd = silent, .events = POLLIN}, {.fd = half, .events = POLLIN}};
    for (int i = 0; i < 2; i++) {
        char byte;
        CHECK(poll(&ends[i], 1, 25000) == 1 && read(ends[i].fd, &byte, 1) <= 0);
        close(ends[i].fd);
    }
    CHECK(now_s() - begin > 5); /* it was the deadline, and not the first moment */
    CHECK(served_stop(&s) == 0);
}

/* ---- epoll ----------------------------------------------------------------------------------- */

/* The library that lets epoll_ctl fail lies beside the tests. */
static bool set_deaf(const char *when)
{
    static char path[4096];
    const char *build = getenv("LACE_TESTS") ? getenv("LACE_TESTS") : "build/tests";
    snprintf(path, sizeof path, "%s/preload/deaf.so", build);
    if (access(path, R_OK) != 0) {
        tap_skip("no %s", path);
        return false;
    }
    char full[4096];
    setenv("LD_PRELOAD", realpath(path, full), 1);
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
    setenv("LACE_DEAF", when, 1);
    return true;
}

static void clear_deaf(void)
{
    unsetenv("LD_PRELOAD");
    unsetenv("LACE_DEAF");
}

static void a_listener_that_cannot_be_watched_is_an_error(void)
{
    if (!set_deaf("0,1"))
        return;
    bool is_up = served_start(&s, "--threads 1 -c 64 2>/dev/null");
    clear_deaf();
    CHECK(!is_up);
    if (is_up)
        served_stop(&s);
}

static void a_listener_that_fails_once_is_tried_again(void)
{
    if (!set_deaf("1,1"))
        return;
    bool is_up = served_start(&s, "--threads 1 -c 64 --max-connections 1");
    clear_deaf();
    if (!CHECK(is_up))
        return;
    served_get(&s, "/health", &a); /* one connection is the limit: the listener is turned off */
    CHECK(a.status == 200);
    served_get(&s, "/health", &a);
    CHECK(a.status == 200);
    served_get(&s, "/health", &a);
    CHECK(a.status == 200);
    CHECK(served_stop(&s) == 0);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Long texts at once, so that every worker's heap has had one. */
static void memory_of_large_bodies_is_given_back(void)
{
    enum { N = 7 << 20, CLIENTS = 4, SPARE_KB = 32 << 10 };
    if (IS_SANITIZED)
        return tap_skip("the sanitizer's heap keeps what is freed");
    if (!CHECK(served_start(&s, "--threads 1 -c 64")))
        return;
    served_get(&s, "/health", &a);
    long before = served_look(&s).rss_kb, after = 0;
    char *body = malloc(N + 64);
    size_t n = (size_t)sprintf(body, "{\"content\":\"");
    while (n < N)
        n += (size_t)sprintf(body + n, "the cat sat on a mat ");
    n += (size_t)sprintf(body + n, "\"}");
    pid_t clients[CLIENTS];
    for (int i = 0; i < CLIENTS; i++)
        if ((clients[i] = fork()) == 0) {
            served_request(&s, "POST", "/tokenize", "Content-Type: application/json\r\n", body, n,
                           &a);
            _exit(a.status == 200 ? 0 : 1);
        }
    for (int i = 0; i < CLIENTS; i++) {
        int status;
        CHECK(waitpid(clients[i], &status, 0) == clients[i] && status == 0);
    }
    free(body);
    for (int i = 0; i < 40; i++) { /* it is given back at a tick */
        nanosleep(&(struct timespec){.tv_nsec = 250000000}, NULL);
        after = served_look(&s).rss_kb;
        if (after < before + SPARE_KB)
            break;
    }
    tap_note("resident: %ld MB before, %ld after", before >> 10, after >> 10);
    CHECK(after < before + SPARE_KB);
    CHECK(served_stop(&s) == 0);
}

int main(void)
{
    if (!scratch_create())
        return 1;
    CASE(a_file_in_the_place_of_a_socket_stays);
    CASE(a_live_socket_is_not_taken_over);
    CASE(a_socket_of_another_kind_is_not_taken_over);
    CASE(the_socket_of_a_killed_server_is_used_again);
    CASE(what_took_the_place_of_the_socket_stays);
    CASE(stalled_handshakes_are_closed);
    CASE(a_listener_that_cannot_be_watched_is_an_error);
    CASE(a_listener_that_fails_once_is_tried_again);
    CASE(memory_of_large_bodies_is_given_back);
    answer_free(&a);
    scratch_remove();
    return tap_end();
}
