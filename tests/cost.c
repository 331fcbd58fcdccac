/* Cost oracles: time and memory of a call in proportion to its input. */
#define _GNU_SOURCE
#include "cost.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "sanitized.h"
#include "tap.h"

enum {
    FIRST_BYTES = 4 << 10,
    MAX_BYTES = 8 << 20,
    N_RUNS = 3,
    N_ATTEMPTS = 8,
    TIMES = 8, /* three times twice as much, to level out caches */
    SLOW_NS = 200000000,
    LEAST_NS = 1500000,                        /* shorter runs say nothing */
    NS_PER_BYTE = IS_SANITIZED ? 50000 : 5000, /* most are below 50 */
    FREE_HEAP = 16 << 20,                      /* whatever the input */
};

/*
 * Of twice as much: 2 and some more. A table that leaves a processor's caches on the way, while others use
 * them, took 2.76 times as long; what grows with the square takes 4.
 */
static const double MAX_GROWTH = 3.0 * 3.0 * 3.0;

typedef struct cost {
    double ns, heap;
} cost;

static double thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

double cost_peak_bytes(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)use.ru_maxrss * 1024;
}

static cost measure_here(const cost_subject *s, span input)
{
    cost least = {1e30, 0};
    double before = cost_peak_bytes();
    for (int i = 0; i < N_RUNS; i++) {
        double start = thread_ns();
        s->run(input);
        double ns = thread_ns() - start;
        least.ns = ns < least.ns ? ns : least.ns;
        if (i == 0)
            least.heap = cost_peak_bytes() - before;
    }
    return least;
}

/* In a process of its own, whose peak of memory is that of the call. */
static cost measure(const cost_subject *s, size_t n_bytes)
{
    buf input;
    cost found = {1e30, 1e30};
    int ends[2];
    buf_init(&input, (size_t)1 << 30);
    s->make(n_bytes, &input);
    if (!CHECK(pipe(ends) == 0))
        return found;
    mem_trim(); /* or what the test has freed hides what the call takes */
    pid_t child = fork();
    if (child == 0) {
        cost c = measure_here(s, (span){(const uint8_t *)input.data, input.size});
        _exit(write(ends[1], &c, sizeof c) == (ssize_t)sizeof c ? 0 : 1);
    }
    int status = 1;
    close(ends[1]);
    CHECK(read(ends[0], &found, sizeof found) == (ssize_t)sizeof found);
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    buf_deinit(&input);
    return found;
}

static void check(void *arg)
{
    const cost_subject *s = arg;
    size_t most = s->max_bytes ? s->max_bytes : MAX_BYTES, n = FIRST_BYTES;
    double per_byte = s->heap_per_byte > 0 ? s->heap_per_byte : 64;
    cost few = measure(s, n), many = few;
    while (few.ns < LEAST_NS && 2 * TIMES * n <= most) {
        n *= 2;
        few = measure(s, n);
    }
    bool is_linear = false;
    for (int i = 0; i < N_ATTEMPTS && !is_linear; i++) {
        /* Where a cache ends, more takes much longer, once: then try beyond it. */
        if (i > 1 && many.ns < SLOW_NS && 2 * TIMES * n <= most)
            n *= 2;
        if (i > 0)
            few = measure(s, n);
        many = measure(s, TIMES * n);
        is_linear = many.ns <= MAX_GROWTH * few.ns || many.ns < LEAST_NS;
    }
    double bytes = (double)n * TIMES;
    tap_note("%.0f KB: %.1f ms, %.1f ns a byte, %.1f MB; %.2f times the time when twice as long",
             bytes / 1024, many.ns * 1e-6, many.ns / bytes, many.heap * 1e-6,
             cbrt(many.ns / few.ns));
    CHECK(is_linear);
    CHECK(many.ns <= NS_PER_BYTE * bytes);
    CHECK(IS_SANITIZED || many.heap <= FREE_HEAP + per_byte * bytes);
}

void cost_check(const cost_subject *s)
{
    tap_case_arg(s->name, check, (void *)s);
}

call_cost cost_of_call(int (*call)(const void *arg), const void *arg)
{
    call_cost out = {.code = -1};
    struct rusage used;
    double before = cost_peak_bytes();
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int code = call(arg);
        fflush(stdout);
        _exit(code);
    }
    if (child < 0 || wait4(child, &status, 0, &used) != child)
        return out;
    out.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    out.ms = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e3 +
             (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e3;
    out.mib = ((double)used.ru_maxrss * 1024 - before) / 0x1p20;
    return out;
}
