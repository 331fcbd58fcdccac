#include "card_stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "card_options.h"
#include "card_pool.h"

typedef struct queue {
    work_item *items;
    size_t n, room;
} queue;

struct graph {
    queue work;
    int n_users;
};

struct event {
    uint64_t recorded, passed;
    double ns;
};

struct stream {
    card *card;
    pthread_t thread;
    queue waiting;
    size_t next; /* of `waiting` */
    bool is_busy, ends;
    graph *recording;
    launch *early; /* of the next item: it has begun already */
};

/* One lock for all that is waited for: nothing long is done with it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static bool push(queue *q, work_item item)
{
    if (q->n == q->room) {
        size_t room = q->room ? 2 * q->room : 64;
        work_item *more = realloc(q->items, room * sizeof *more);
        if (!more)
            return false;
        q->items = more;
        q->room = room;
    }
    q->items[q->n++] = item;
    return true;
}

static launch *make_launch(const card *c, const work_item *item)
{
    const kernel *k = item->kernel;
    launch *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    *l = (launch){.kernel = k,
                  .cluster = item->cluster,
                  .shared_bytes = item->shared_bytes,
                  .all_shared = k->dynamic_begin + item->shared_bytes,
                  .params = item->owned,
                  .card = c->number,
                  .n_processors = card_options_get()->processors};
    memcpy(l->grid, item->grid, sizeof l->grid);
    memcpy(l->block, item->block, sizeof l->block);
    l->n_teams = l->grid[0] / l->cluster * l->grid[1] * l->grid[2];
    return l;
}

/* Whether the next launch begins while this one is under way, as on cards from 9.0 on. */
static bool begins_early(const work_item *item, const work_item *next)
{
    return card_options_get()->early && card_options_get()->major >= 9 && next &&
           next->kind == WORK_LAUNCH && next->overlaps && item->kernel->lets_next;
}

static void run_kernel(stream *s, const work_item *item, const work_item *next)
{
    launch *l = s->early ? s->early : make_launch(s->card, item);
    s->early = l && begins_early(item, next) ? make_launch(s->card, next) : NULL;
    if (s->early)
        pool_begin(s->early);
    if (!l || !pool_run(l))
        __atomic_store_n(&s->card->failed, true, __ATOMIC_SEQ_CST);
    free(l);
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void run_item(stream *s, const work_item *item, const work_item *next)
{
    /* What a card that failed leaves undone still lets others go on. */
    const bool works = !__atomic_load_n(&s->card->failed, __ATOMIC_SEQ_CST);
    switch (item->kind) {
    case WORK_LAUNCH:
        if (works) {
            run_kernel(s, item, next);
        } else if (s->early) {
            pool_drop(s->early);
            free(s->early);
            s->early = NULL;
        }
        break;
    case WORK_COPY:
        if (works)
            memmove(item->to, item->from, item->n);
        break;
    case WORK_FILL:
        if (works)
            memset(item->to, item->byte, item->n);
        break;
    case WORK_RECORD:
        pthread_mutex_lock(&lock);
        item->event->passed++;
        item->event->ns = now_ns();
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        break;
    case WORK_WAIT:
        pthread_mutex_lock(&lock);
        while (item->event->passed < item->ticket)
            pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        break;
    case WORK_GRAPH:
        for (size_t n = 0; n < item->graph->work.n; n++) {
            const work_item *each = &item->graph->work.items[n];
            run_item(s, each, n + 1 < item->graph->work.n ? each + 1 : NULL);
        }
        break;
    }
}

static void *run_stream(void *arg)
{
    stream *s = arg;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (s->next == s->waiting.n && !s->ends)
            pthread_cond_wait(&changed, &lock);
        if (s->next == s->waiting.n)
            break;
        work_item item = s->waiting.items[s->next++], next = {0};
        const bool has_next = s->next < s->waiting.n;
        if (has_next)
            next = s->waiting.items[s->next];
        s->is_busy = true;
        if (s->next == s->waiting.n)
            s->next = s->waiting.n = 0;
        pthread_mutex_unlock(&lock);
        run_item(s, &item, has_next ? &next : NULL);
        free(item.owned);
        if (item.graph)
            graph_drop(item.graph);
        pthread_mutex_lock(&lock);
        s->is_busy = false;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

stream *stream_create(card *c)
{
    stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->card = c;
    if (pthread_create(&s->thread, NULL, run_stream, s) != 0) {
        free(s);
        return NULL;
    }
    return s;
}

void stream_free(stream *s)
{
    pthread_mutex_lock(&lock);
    s->ends = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(s->thread, NULL);
    if (s->recording)
        graph_drop(s->recording);
    free(s->waiting.items);
    free(s);
}

card *stream_card(const stream *s)
{
    return s->card;
}

bool stream_add(stream *s, work_item item)
{
    pthread_mutex_lock(&lock);
    bool done = push(s->recording ? &s->recording->work : &s->waiting, item);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return done;
}

void stream_wait(stream *s)
{
    pthread_mutex_lock(&lock);
    while (s->is_busy || s->next < s->waiting.n)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* ---- Graphs ---------------------------------------------------------------------------------- */

void stream_record_begin(stream *s)
{
    if (!s->recording) {
        s->recording = calloc(1, sizeof *s->recording);
        if (s->recording)
            s->recording->n_users = 1;
    }
}

graph *stream_record_end(stream *s)
{
    graph *g = s->recording;
    s->recording = NULL;
    return g;
}

bool stream_is_recording(const stream *s)
{
    return s->recording != NULL;
}

graph *graph_keep(graph *g)
{
    __atomic_add_fetch(&g->n_users, 1, __ATOMIC_SEQ_CST);
    return g;
}

void graph_drop(graph *g)
{
    if (__atomic_sub_fetch(&g->n_users, 1, __ATOMIC_SEQ_CST) > 0)
        return;
    for (size_t n = 0; n < g->work.n; n++)
        free(g->work.items[n].owned);
    free(g->work.items);
    free(g);
}

/* ---- Events ---------------------------------------------------------------------------------- */

event *event_create(void)
{
    return calloc(1, sizeof(event));
}

/* Whoever frees an event may do so while it is in a queue. */
void event_free(event *e)
{
    event_wait(e);
    free(e);
}

uint64_t event_next(event *e)
{
    pthread_mutex_lock(&lock);
    uint64_t n = ++e->recorded;
    pthread_mutex_unlock(&lock);
    return n;
}

uint64_t event_last(event *e)
{
    pthread_mutex_lock(&lock);
    uint64_t n = e->recorded;
    pthread_mutex_unlock(&lock);
    return n;
}

void event_wait(event *e)
{
    pthread_mutex_lock(&lock);
    while (e->passed < e->recorded)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

double event_ns(event *e)
{
    pthread_mutex_lock(&lock);
    double ns = e->ns;
    pthread_mutex_unlock(&lock);
    return ns;
}
