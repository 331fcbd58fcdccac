/*
 * A pool of persistent workers.
 *
 * Both the barrier and the start of a job wait on a 32-bit word that somebody else changes: first
 * by spinning, then by yielding, at last in the kernel (futex). Spinning is short where there are
 * more workers than cores, because then the one we wait for may need our core.
 */
#define _GNU_SOURCE
#include "base/threads.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/system.h"

/*
 * A pause takes 40 to 140 cycles, so SPIN_MANY is about 0.1 ms: longer than balanced workers ever
 * wait for each other, and short enough that waiting for one whose core was taken away burns
 * little.
 */
enum { SPIN_MANY = 4000, SPIN_FEW = 100, YIELDS = 10 };

struct pool {
    thread_word job;      /* grows by one for every job */
    thread_word arrived;  /* workers at the barrier */
    thread_word barrier;  /* grows by one for every barrier passed */
    thread_word handouts; /* n_sleepers of all handouts; the value is not used */
    pool_fn fn;
    void *arg;
    int n_threads;
    int n_spins;
    bool is_ending;
    pthread_t *threads; /* [n_threads - 1] */
};

typedef struct start {
    pool *p;
    int worker;
} start;

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wait_change(thread_word *l, uint32_t old, int n_spins)
{
    for (int i = 0; i < n_spins; i++) {
        if (atomic_load_explicit(&l->value, memory_order_acquire) != old)
            return;
        relax();
    }
    for (int i = 0; i < YIELDS; i++) {
        if (atomic_load_explicit(&l->value, memory_order_acquire) != old)
            return;
        sched_yield();
    }
    while (atomic_load(&l->value) == old) {
        atomic_fetch_add(&l->n_sleepers, 1);
        system_sleep_on(&l->value, old);
        atomic_fetch_sub(&l->n_sleepers, 1);
    }
}

void thread_word_wait(thread_word *w, uint32_t old, int n_spins)
{
    wait_change(w, old, n_spins);
}

void thread_word_set(thread_word *w, uint32_t value)
{
    atomic_store(&w->value, value);
    if (atomic_load(&w->n_sleepers))
        system_wake(&w->value);
}

void pool_barrier(pool *p)
{
    if (p->n_threads == 1)
        return;
    uint32_t old = atomic_load_explicit(&p->barrier.value, memory_order_relaxed);
    uint32_t n = atomic_fetch_add_explicit(&p->arrived.value, 1, memory_order_acq_rel) + 1;
    if (n == (uint32_t)p->n_threads) {
        atomic_store_explicit(&p->arrived.value, 0, memory_order_relaxed);
        thread_word_set(&p->barrier, old + 1);
    } else {
        wait_change(&p->barrier, old, p->n_spins);
    }
}

bool handout_claim(handout *g, uint32_t n, uint32_t *piece)
{
    /* Looking first keeps late workers from writing to a line that others read. */
    if (atomic_load_explicit(&g->n_claimed, memory_order_relaxed) >= n)
        return false;
    *piece = atomic_fetch_add_explicit(&g->n_claimed, 1, memory_order_relaxed);
    return *piece < n;
}

void handout_finish(pool *p, handout *g, uint32_t n)
{
    if (atomic_fetch_add(&g->n_done, 1) + 1 == n && atomic_load(&p->handouts.n_sleepers))
        system_wake(&g->n_done);
}

void handout_wait(pool *p, handout *g, uint32_t n)
{
    for (int i = 0; i < p->n_spins; i++) {
        if (atomic_load_explicit(&g->n_done, memory_order_acquire) >= n)
            return;
        relax();
    }
    for (int i = 0; i < YIELDS; i++) {
        if (atomic_load_explicit(&g->n_done, memory_order_acquire) >= n)
            return;
        sched_yield();
    }
    atomic_fetch_add(&p->handouts.n_sleepers, 1);
    for (uint32_t done; (done = atomic_load(&g->n_done)) < n;)
        system_sleep_on(&g->n_done, done);
    atomic_fetch_sub(&p->handouts.n_sleepers, 1);
}

static void *worker_main(void *arg)
{
    start *s = arg;
    pool *p = s->p;
    int worker = s->worker;
    mem_free(s);
    for (uint32_t seen = 0;; seen++) {
        wait_change(&p->job, seen, p->n_spins);
        if (p->is_ending)
            return NULL;
        p->fn(p->arg, worker, p->n_threads);
        pool_barrier(p);
    }
}

void pool_run(pool *p, pool_fn fn, void *arg)
{
    p->fn = fn;
    p->arg = arg;
    if (p->n_threads > 1)
        thread_word_set(&p->job, atomic_load(&p->job.value) + 1);
    fn(arg, 0, p->n_threads);
    pool_barrier(p);
}

/* Stop the first n_started workers and free everything. */
static void end_pool(pool *p, int n_started)
{
    p->is_ending = true;
    thread_word_set(&p->job, atomic_load(&p->job.value) + 1);
    for (int i = 0; i < n_started; i++)
        pthread_join(p->threads[i], NULL);
    mem_free(p->threads);
    mem_unmap(p, sizeof *p);
}

lace_status pool_create(int n_threads, pool **out, lace_error *err)
{
    assert(n_threads >= 1);
    *out = NULL;
    pool *p = mem_map(sizeof *p); /* a page of its own: aligned, and zeroed */
    if (!p)
        return error_nomem(err, "a thread pool");
    p->n_threads = n_threads;
    p->n_spins = n_threads > cpu_count() ? SPIN_FEW : SPIN_MANY;
    p->threads = mem_calloc((size_t)n_threads, sizeof *p->threads);
    if (!p->threads) {
        mem_unmap(p, sizeof *p);
        return error_nomem(err, "a thread pool");
    }
    for (int i = 1; i < n_threads; i++) {
        start *s = mem_alloc(sizeof *s);
        if (s)
            *s = (start){p, i};
        if (!s || pthread_create(&p->threads[i - 1], NULL, worker_main, s) != 0) {
            mem_free(s);
            end_pool(p, i - 1);
            return error_set(err, LACE_E_NOMEM, "cannot start thread %d of %d", i + 1, n_threads);
        }
    }
    *out = p;
    return LACE_OK;
}

void pool_free(pool *p)
{
    if (p)
        end_pool(p, p->n_threads - 1);
}

int pool_size(const pool *p)
{
    return p->n_threads;
}

void pool_share(int64_t n, int64_t grain, int worker, int n_workers, int64_t *begin, int64_t *end)
{
    int64_t n_grains = (n + grain - 1) / grain;
    *begin = n_grains * worker / n_workers * grain;
    *end = n_grains * (worker + 1) / n_workers * grain;
    if (*begin > n)
        *begin = n;
    if (*end > n)
        *end = n;
}
