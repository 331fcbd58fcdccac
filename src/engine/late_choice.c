/* The thread that makes choices which take long. */
#define _GNU_SOURCE
#include "engine/late_choice.h"

#include <assert.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"

#define MAX_NS (UINT64_C(500) * 1000000) /* for one token; a generation that needs more ends */

struct late_choice {
    pthread_t thread;
    bool is_started;
    pthread_mutex_t lock;
    pthread_cond_t has_work, has_done;
    lace_generation *waiting, *done; /* linked by next_late */
    lace_generation *current;        /* NULL: none */
    bool is_ending;
    atomic_bool stops; /* the current one is wanted back */
};

static bool is_recalled(void *user)
{
    return atomic_load(&((late_choice *)user)->stops);
}

/* The one with the least time so far, taken out of the list. */
static lace_generation *next_waiting(late_choice *l)
{
    lace_generation **best = &l->waiting;
    for (lace_generation **at = &l->waiting; *at; at = &(*at)->next_late)
        if ((*at)->late_ns < (*best)->late_ns)
            best = at;
    lace_generation *g = *best;
    if (g)
        *best = g->next_late;
    return g;
}

static void *run(void *arg)
{
    late_choice *l = arg;
    /* It is in no hurry: others on the machine go first. 0 is this thread, on Linux. */
    setpriority(PRIO_PROCESS, 0, 5);
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->waiting && !l->is_ending)
            pthread_cond_wait(&l->has_work, &l->lock);
        if (l->is_ending)
            break;
        lace_generation *g = next_waiting(l);
        l->current = g;
        atomic_store(&l->stops, false);
        pthread_mutex_unlock(&l->lock);
        work_limit limit;
        uint64_t begin = work_thread_ns();
        work_limit_init(&limit, MAX_NS, is_recalled, l);
        g->is_chosen =
            generation_try_choose(g, CHOICE_REFUSED, g->kept_logits, &limit) || !limit.was_unwanted;
        g->last_late_ns = work_thread_ns() - begin;
        g->late_ns += g->last_late_ns;
        pthread_mutex_lock(&l->lock);
        l->current = NULL;
        g->next_late = l->done;
        l->done = g;
        pthread_cond_broadcast(&l->has_done);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

void late_push(late_choice *l, lace_generation *g)
{
    pthread_mutex_lock(&l->lock);
    g->next_late = l->waiting;
    l->waiting = g;
    pthread_cond_signal(&l->has_work);
    pthread_mutex_unlock(&l->lock);
}

lace_generation *late_take(late_choice *l, uint64_t wait_ns)
{
    struct timespec until = clock_after(wait_ns);
    pthread_mutex_lock(&l->lock);
    while (!l->done && wait_ns && (l->waiting || l->current))
        if (pthread_cond_timedwait(&l->has_done, &l->lock, &until) != 0)
            break;
    lace_generation *g = l->done;
    if (g)
        l->done = g->next_late;
    pthread_mutex_unlock(&l->lock);
    return g;
}

static bool take_out(lace_generation **list, lace_generation *g)
{
    while (*list && *list != g)
        list = &(*list)->next_late;
    bool is_there = *list;
    if (is_there)
        *list = g->next_late;
    return is_there;
}

bool late_recall(late_choice *l, lace_generation *g)
{
    bool is_chosen = false;
    pthread_mutex_lock(&l->lock);
    if (!take_out(&l->waiting, g)) {
        if (l->current == g)
            atomic_store(&l->stops, true);
        while (l->current == g)
            pthread_cond_wait(&l->has_done, &l->lock);
        bool is_done = take_out(&l->done, g);
        assert(is_done);
        is_chosen = is_done && g->is_chosen;
    }
    pthread_mutex_unlock(&l->lock);
    return is_chosen;
}

lace_status late_create(late_choice **out, lace_error *err)
{
    *out = NULL;
    late_choice *l = mem_calloc(1, sizeof *l);
    if (!l)
        return error_nomem(err, "a batcher");
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->has_work, NULL);
    pthread_cond_init(&l->has_done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    l->is_started = pthread_create(&l->thread, NULL, run, l) == 0;
    if (!l->is_started) {
        late_free(l);
        return error_set(err, LACE_E_NOMEM, "cannot start a thread");
    }
    *out = l;
    return LACE_OK;
}

void late_free(late_choice *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->is_ending = true;
    pthread_cond_signal(&l->has_work);
    pthread_mutex_unlock(&l->lock);
    if (l->is_started)
        pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->has_work);
    pthread_cond_destroy(&l->has_done);
    pthread_mutex_destroy(&l->lock);
    mem_free(l);
}
