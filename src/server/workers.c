/* Threads that run routes, so that a long prompt or a heavy template never stops the loop. */
#include "base/mem.h"
#include "server/core.h"

struct workers {
    server *s;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    call *first, **end;
    bool is_ending;
    int n;
    pthread_t *threads; /* [n] */
};

static void *run_worker(void *arg)
{
    workers *w = arg;
    for (;;) {
        pthread_mutex_lock(&w->lock);
        while (!w->first && !w->is_ending)
            pthread_cond_wait(&w->wake, &w->lock);
        call *c = w->first;
        if (c) {
            w->first = c->next_posted;
            if (!w->first)
                w->end = &w->first;
        }
        pthread_mutex_unlock(&w->lock);
        if (!c)
            return NULL;
        call_run(c);
        server_post_call(w->s, c);
    }
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

lace_status workers_create(server *s, int n, workers **out, lace_error *err)
{
    *out = NULL;
    workers *w = mem_calloc(1, sizeof *w);
    if (!w)
        return error_nomem(err, "workers");
    w->s = s;
    w->end = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    w->threads = mem_calloc((size_t)n, sizeof *w->threads);
    while (w->threads && w->n < n && pthread_create(&w->threads[w->n], NULL, run_worker, w) == 0)
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
    mem_free(w->threads);
    mem_free(w);
}
