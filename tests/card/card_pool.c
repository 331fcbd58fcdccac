#include "card_pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "card_options.h"

/*
 * A queue of teams. A thread takes the first one, runs it for a turn, and puts it at the end, so that
 * blocks which wait for each other, or for the host, all get on. As on a real card, no more blocks of
 * a launch are under way than its processors hold, in the order of their numbers.
 */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t is_work, is_done;
    team *first, *last;
    bool started;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .is_work = PTHREAD_COND_INITIALIZER,
          .is_done = PTHREAD_COND_INITIALIZER};

static void put(team *t)
{
    t->next = NULL;
    if (pool.last)
        pool.last->next = t;
    else
        pool.first = t;
    pool.last = t;
    pthread_cond_signal(&pool.is_work);
}

static team *take(void)
{
    team *t = pool.first;
    pool.first = t->next;
    if (!pool.first)
        pool.last = NULL;
    return t;
}

/* A team has ended: it becomes the next one of its launch, or nothing. */
static void next_of(team *t)
{
    launch *l = t->launch;
    l->n_left--;
    if (l->next_team < l->n_teams && !l->failed) {
        team_begin(t, l->next_team++);
        put(t);
        return;
    }
    if (l->failed)
        l->n_left -= l->n_teams - l->next_team, l->next_team = l->n_teams;
    team_free(t);
    if (l->n_left == 0)
        pthread_cond_broadcast(&pool.is_done);
}

static void *work(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (!pool.first)
            pthread_cond_wait(&pool.is_work, &pool.lock);
        team *t = take();
        pthread_mutex_unlock(&pool.lock);
        bool ended = team_run(t);
        pthread_mutex_lock(&pool.lock);
        if (ended)
            next_of(t);
        else
            put(t);
    }
    return NULL;
}

static void start(void)
{
    if (pool.started)
        return;
    pool.started = true;
    for (uint32_t n = 0; n < card_options_get()->threads; n++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL) == 0)
            pthread_detach(thread);
    }
}

/* How many blocks the processors of the card hold at a time: by threads and by shared memory. */
static uint32_t residents(const launch *l)
{
    const uint32_t n_threads = l->block[0] * l->block[1] * l->block[2];
    const uint32_t by_threads = 2048 / ((n_threads + 31) / 32 * 32);
    const uint32_t by_shared = (card_options_get()->shared + 1024) / (l->all_shared + 1024);
    uint32_t each = by_threads < by_shared ? by_threads : by_shared;
    each = each > 32 ? 32 : each;
    uint32_t n = (each ? each : 1) * l->n_processors / l->cluster;
    return n ? n : 1;
}

bool pool_run(launch *l)
{
    uint32_t n = residents(l);
    n = n < l->n_teams ? n : l->n_teams;
    pthread_mutex_lock(&pool.lock);
    start();
    l->n_left = l->n_teams;
    uint32_t begun = 0;
    for (; begun < n; begun++) {
        team *t = team_make(l);
        if (!t)
            break;
        team_begin(t, l->next_team++);
        put(t);
    }
    if (begun == 0)
        l->failed = true;
    while (begun && l->n_left)
        pthread_cond_wait(&pool.is_done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
    return !l->failed;
}
