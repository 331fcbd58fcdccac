#include "card_pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "card_options.h"

/*
 * A queue of teams. A thread takes the first one, runs it for a turn, and puts it at the end, so that
 * blocks which wait for each other, or for the host, all get on. Another block of a launch begins when
 * one has ended, or has used up a turn. As on a real card, no more of them are under way than its
 * processors hold, in the order of their numbers.
 */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t is_work, is_done;
    team *first, *last;
    uint32_t n_idle; /* threads */
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
    if (pool.n_idle)
        pthread_cond_signal(&pool.is_work);
}

/* The first team, of this launch alone if one is named. NULL: there is none. */
static team *take(const launch *only)
{
    team *before = NULL, *t = pool.first;
    while (t && only && t->launch != only) {
        before = t;
        t = t->next;
    }
    if (!t)
        return NULL;
    if (before)
        before->next = t->next;
    else
        pool.first = t->next;
    if (pool.last == t)
        pool.last = before;
    return t;
}

/* A block more that is under way. */
static bool begin_one(launch *l)
{
    team *t = team_make(l);
    if (!t)
        return false;
    l->n_under_way++;
    team_begin(t, l->next_team++);
    put(t);
    return true;
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
    if (l->failed) {
        l->n_left -= l->n_teams - l->next_team;
        l->next_team = l->n_teams;
    }
    team_free(t);
    if (l->n_left == 0)
        pthread_cond_broadcast(&pool.is_done);
}

/* A turn of a team. One that goes on may wait for blocks that are not under way yet. */
static void run_turn(team *t)
{
    launch *l = t->launch;
    pthread_mutex_unlock(&pool.lock);
    const bool ended = team_run(t);
    pthread_mutex_lock(&pool.lock);
    if (ended) {
        next_of(t);
        return;
    }
    if (l->n_under_way < l->most_under_way && l->next_team < l->n_teams)
        begin_one(l);
    put(t);
}

static void *work(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        team *t = take(NULL);
        if (t) {
            run_turn(t);
            continue;
        }
        pool.n_idle++;
        pthread_cond_wait(&pool.is_work, &pool.lock);
        pool.n_idle--;
    }
    return NULL;
}

/* Streams compute, too, while they wait: one thread less. */
static void start(void)
{
    if (pool.started)
        return;
    pool.started = true;
    for (uint32_t n = 1; n < card_options_get()->threads; n++) {
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

static void prepare(launch *l)
{
    const uint32_t most = residents(l);
    l->most_under_way = most < l->n_teams ? most : l->n_teams;
    l->n_left = l->n_teams;
}

/* A block that ends here did not wait for what is in front of it. */
void pool_begin(launch *l)
{
    enum { MOST_TURNS = 4 };
    prepare(l);
    l->is_early = true;
    for (uint32_t n = 0; n < l->most_under_way && !l->failed; n++) {
        team *t = team_make(l);
        bool ended = false;
        if (!t)
            break;
        team_begin(t, l->next_team++);
        for (int turn = 0; turn < MOST_TURNS && !ended; turn++)
            ended = team_run(t);
        if (ended) {
            l->n_left--;
            team_free(t);
        } else {
            t->next = l->parked;
            l->parked = t;
            l->n_under_way++;
        }
    }
    l->is_early = false;
}

void pool_drop(launch *l)
{
    while (l->parked) {
        team *t = l->parked;
        l->parked = t->next;
        team_free(t);
    }
}

bool pool_run(launch *l)
{
    const uint32_t n_threads = card_options_get()->threads;
    if (!l->most_under_way)
        prepare(l);
    if (l->failed) {
        pool_drop(l);
        return false;
    }
    pthread_mutex_lock(&pool.lock);
    start();
    while (l->parked) {
        team *t = l->parked;
        l->parked = t->next;
        put(t);
    }
    while (l->n_under_way < l->most_under_way && l->n_under_way < n_threads &&
           l->next_team < l->n_teams && begin_one(l))
        continue;
    if (l->n_under_way == 0 && l->n_left)
        l->failed = true;
    while (l->n_under_way && l->n_left) {
        team *t = take(l);
        if (t)
            run_turn(t);
        else
            pthread_cond_wait(&pool.is_done, &pool.lock);
    }
    pthread_mutex_unlock(&pool.lock);
    return !l->failed;
}
