/*
 * What the machine can do at most, measured on all threads at once.
 *
 * A limit is a maximum, so the best of several short trials counts: what a neighbour on the machine
 * takes away from one trial, it may leave to the next. Memory is read from huge pages where the
 * system has them, in two ways of which the better counts: through several streams a thread with
 * prefetch, and through two without. Arithmetic is timed by the threads' own clocks, which stop
 * while another process has the core; memory is shared, so its bytes are timed by the wall's.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/system.h"
#include "base/threads.h"
#include "cli/bench.h"
#include "backend/host_peak.h"

enum { N_TRIALS = 7, READ_TRIALS = 3, TRIAL_NS = 40 * 1000 * 1000 };
static const size_t READ_BYTES = (size_t)1 << 29; /* far more than any cache */

typedef struct trial {
    uint64_t (*read)(const uint8_t *data, size_t n_bytes);
    peak_loop loop; /* NULL: read */
    uint64_t n_rounds;
    const uint8_t *data;
    size_t share_bytes;      /* that each worker reads */
    double done[1024];       /* by each worker */
    double own_ns[1024];     /* that each worker ran; loops only */
    volatile uint64_t *sink; /* [n_workers] */
} trial;

static double thread_ns(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void work(void *arg, int worker, int n_workers)
{
    trial *t = arg;
    (void)n_workers;
    if (t->loop) {
        double begin = thread_ns();
        t->done[worker] = (double)t->loop(t->n_rounds);
        t->own_ns[worker] = thread_ns() - begin;
        return;
    }
    t->sink[worker] = t->read(t->data + (size_t)worker * t->share_bytes, t->share_bytes);
    t->done[worker] = (double)t->share_bytes;
}

/* Run it once; how much was done in a second by all. */
static double rate(trial *t, pool *workers, uint64_t *ns)
{
    uint64_t begin = clock_ns();
    pool_run(workers, work, t);
    *ns = clock_ns() - begin;
    double sum = 0;
    for (int i = 0; i < pool_size(workers); i++)
        sum += t->done[i] * 1e9 / (t->loop ? t->own_ns[i] + 1 : (double)*ns + 1);
    return sum;
}

static double best_of_trials(trial *t, pool *workers, int n_trials)
{
    double best = 0;
    uint64_t ns;
    for (int i = 0; i < n_trials; i++) {
        double found = rate(t, workers, &ns);
        best = found > best ? found : best;
    }
    return best;
}

static double measure_loop(peak_loop loop, pool *workers)
{
    static trial t;
    uint64_t ns = 0;
    t = (trial){.loop = loop, .n_rounds = 1000};
    while (rate(&t, workers, &ns), ns < TRIAL_NS)
        t.n_rounds *= 2;
    return best_of_trials(&t, workers, N_TRIALS);
}

/* Every worker touches its own part first, so that it lies near it. */
static void touch(void *arg, int worker, int n_workers)
{
    trial *t = arg;
    (void)n_workers;
    memset((uint8_t *)(uintptr_t)t->data + (size_t)worker * t->share_bytes, 1 + worker,
           t->share_bytes);
}

struct bench_reader {
    pool *workers;
    peak_loops loops;
    size_t n_bytes;
    trial t;
    volatile uint64_t sink[1024];
};

lace_status bench_reader_create(int32_t n_threads, bench_reader **out, lace_error *err)
{
    *out = NULL;
    bench_reader *r = mem_calloc(1, sizeof *r);
    if (!r)
        return error_nomem(err, "the measurement of memory");
    lace_status status = pool_create(n_threads, &r->workers, err);
    if (status != LACE_OK) {
        mem_free(r);
        return status;
    }
    peak_loops_init(&r->loops, cpu_level_detect());
    size_t share = READ_BYTES / (size_t)n_threads / PEAK_READ_GRAIN * PEAK_READ_GRAIN;
    r->n_bytes = share * (size_t)n_threads;
    r->t = (trial){.data = mem_map(r->n_bytes), .share_bytes = share, .sink = r->sink};
    if (!r->t.data) {
        bench_reader_free(r);
        return error_nomem(err, "the measurement of memory");
    }
    pool_run(r->workers, touch, &r->t);
    *out = r;
    return LACE_OK;
}

void bench_reader_free(bench_reader *r)
{
    if (!r)
        return;
    mem_unmap((void *)(uintptr_t)r->t.data, r->n_bytes);
    pool_free(r->workers);
    mem_free(r);
}

double bench_reader_measure(bench_reader *r)
{
    r->t.read = r->loops.read;
    double fetched = best_of_trials(&r->t, r->workers, READ_TRIALS);
    r->t.read = r->loops.read_in_order;
    double in_order = best_of_trials(&r->t, r->workers, READ_TRIALS);
    return fetched > in_order ? fetched : in_order;
}

lace_status bench_measure_limits(int32_t n_threads, bench_limits *out, lace_error *err)
{
    peak_loops loops;
    pool *workers;
    bench_reader *reader;
    *out = (bench_limits){0};
    TRY(bench_reader_create(n_threads, &reader, err));
    out->read = bench_reader_measure(reader);
    bench_reader_free(reader);
    peak_loops_init(&loops, cpu_level_detect());
    TRY(pool_create(n_threads, &workers, err));
    out->int8 = measure_loop(loops.int8_dot, workers);
    out->fp32 = measure_loop(loops.fp32_fma, workers);
    pool_free(workers);
    return LACE_OK;
}

void bench_describe_cpu(char name[128], const char **level)
{
    *level = cpu_level_name(cpu_level_detect());
    system_cpu_name(name);
}
