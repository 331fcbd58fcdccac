/*
 * Threads that run routes, so that a long prompt or a heavy template never stops the loop.
 *
 * Calls wait in the order of their coming, but clients take turns: next is the first call of a
 * client that has the fewest calls running. Small requests have threads of their own; those with
 * large bodies, and those whose grammar turns out to take long, are for slow threads.
 */
#define _GNU_SOURCE
#include <sys/resource.h>

#include "base/mem.h"
#include "server/core.h"

enum { SLOW_NICE = 5 };

struct workers {
    server *s;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    call *first, **end;
    bool is_ending;
    bool is_slow;
    int n;              /* threads that were made */
    pthread_t *threads; /* [n] */
    call **running;     /* [n_slots] by thread; NULL: none */
    int n_slots, n_started;
};

static int count_running(const workers *w, uint64_t turn)
{
    int n = 0;
    for (int i = 0; i < w->n_slots; i++)
        n += w->running[i] && w->running[i]->turn == turn;
    return n;
}

/* Under the lock. NULL: none waits. */
static call *take_call(workers *w)
{
    call **best = &w->first;
    int least = w->n_slots + 1;
    for (call **at = &w->first; *at && least > 0; at = &(*at)->next_posted) {
        int n = count_running(w, (*at)->turn);
        if (n < least) {
            least = n;
            best = at;
        }
    }
    call *c = *best;
    if (c) {
        *best = c->next_posted;
        if (!*best)
            w->end = best;
    }
    return c;
}

static void *run_worker(void *arg)
{
    workers *w = arg;
    if (w->is_slow)
        setpriority(PRIO_PROCESS, 0, SLOW_NICE); /* of this thread, on Linux */
    pthread_mutex_lock(&w->lock);
    int self = w->n_started++;
    for (;;) {
        call *c;
        while (!(c = take_call(w)) && !w->is_ending)
            pthread_cond_wait(&w->wake, &w->lock);
        if (!c)
            break;
        w->running[self] = c;
        pthread_mutex_unlock(&w->lock);
        c->is_slow = w->is_slow;
        bool is_done = call_run(c);
        pthread_mutex_lock(&w->lock);
        w->running[self] = NULL;
        if (is_done)
            server_post_call(w->s, c);
        else
            workers_push(w->s->slow_workers, c);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

void workers_push(workers *w, call *c)
{
    c->next_posted = NULL;
    pthread_mutex_lock(&w->lock);
    *w->end = c;
    w->end = &c->next_posted;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

lace_status workers_create(server *s, int n, bool is_slow, workers **out, lace_error *err)
{
    *out = NULL;
    workers *w = mem_calloc(1, sizeof *w);
    if (!w)
        return error_nomem(err, "workers");
    w->s = s;
    w->is_slow = is_slow;
    w->n_slots = n;
    w->end = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    w->threads = mem_calloc((size_t)n, sizeof *w->threads);
    w->running = mem_calloc((size_t)n, sizeof *w->running);
    while (w->threads && w->running && w->n < n &&
           pthread_create(&w->threads[w->n], NULL, run_worker, w) == 0)
        w->n++;
    if (w->n < n) {
        workers_free(w);
        return error_set(err, LACE_E_NOMEM, "cannot start %d threads", n);
    }
    *out = w;
    return LACE_OK;
}

void workers_free(workers *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->is_ending = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n; i++)
        pthread_join(w->threads[i], NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    mem_free_all(w->threads, w->running, w);
}
