/*
 * A pool of persistent workers. The caller is worker 0; the others spin briefly between jobs and
 * then sleep, so an idle pool costs nothing and a preempted worker does not stall a spinning one
 * for long.
 *
 * One thread at a time may call pool_run.
 */
#ifndef LACE_BASE_THREADS_H
#define LACE_BASE_THREADS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/*
 * A number that somebody changes and others wait for: first by spinning, then by yielding, at last
 * in the kernel. On a cache line of its own.
 */
typedef struct thread_word {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic uint32_t n_sleepers;
} thread_word;

/*
 * Wait until the value is no longer `old`; spin n_spins times before the core is given away. A spin is
 * 10 to 50 ns.
 */
void thread_word_wait(thread_word *w, uint32_t old, int n_spins);
void thread_word_set(thread_word *w, uint32_t value);

typedef struct pool pool;

/* n_threads >= 1, the caller included. */
lace_status pool_create(int n_threads, pool **out, lace_error *err);
void pool_free(pool *p);
int pool_size(const pool *p);

typedef void (*pool_fn)(void *arg, int worker, int n_workers);

/* Run fn on every worker and wait for all of them. */
void pool_run(pool *p, pool_fn fn, void *arg);

/* Inside fn: wait until every worker has arrived here. What they wrote before is visible after. */
void pool_barrier(pool *p);

/*
 * A phase of work that is handed out in pieces: whoever is free takes the next one, and nobody
 * waits for a worker that holds none. That is what a barrier cannot do: a worker whose core was
 * taken away by another program only delays the piece that it holds.
 *
 *     while (handout_claim(g, n, &piece)) { ...; handout_finish(p, g, n); }
 *     handout_wait(p, g, n);
 *
 * A handout starts as {0} and serves one phase.
 */
typedef struct handout {
    _Alignas(64) _Atomic uint32_t n_claimed;
    _Atomic uint32_t n_done;
} handout;

bool handout_claim(handout *g, uint32_t n, uint32_t *piece); /* false: all n are taken */
void handout_finish(pool *p, handout *g, uint32_t n);        /* a claimed piece is done */
void handout_wait(pool *p, handout *g, uint32_t n);          /* until all n are done, by whomever */

/* The share [*begin, *end) of n items for this worker, in multiples of `grain`. */
void pool_share(int64_t n, int64_t grain, int worker, int n_workers, int64_t *begin, int64_t *end);

#endif
