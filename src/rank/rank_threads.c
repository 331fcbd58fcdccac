/*
 * Ranks as groups of threads in one process: no port, no library. Parts are not copied on the way:
 * a rank reads what another one has written, in memory that the other does not write to again until
 * everybody has come to the exchange after the next.
 */
#include <pthread.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/threads.h"
#include "rank/rank.h"

/*
 * Ranks compute the same amount, so the others are there soon: giving the core away to another program
 * costs a whole time slice of that, 3 ms. SPIN_MANY is about 1 ms.
 */
enum { SPIN_MANY = 30000, SPIN_FEW = 100 };

/* Memory of parts. Others may still read what a larger one has replaced, so it stays to the end. */
typedef struct part_memory {
    struct part_memory *next;
    uint8_t *data;
    uint64_t n_bytes;
} part_memory;

typedef struct group {
    thread_word done[RANKS_MAX];  /* exchanges that a rank has given its part to */
    thread_word told;             /* records of rank 0 */
    thread_word heard[RANKS_MAX]; /* records that a rank has copied */
    uint8_t *parts[RANKS_MAX][2]; /* of exchanges in turn */
    int32_t *words;               /* the record */
    int64_t n_words, words_capacity;
    int32_t n_ranks;
    bool is_crowded; /* more ranks than cores */
    _Atomic int32_t n_open;
    _Atomic bool has_failed;
    pthread_mutex_t lock; /* of the failure and of the memory */
    lace_error fault;
    part_memory *memory; /* of all parts, under the lock */
} group;

typedef struct thread_rank {
    ranks base;
    group *g;
    uint64_t part_bytes;
    uint32_t n_exchanges, n_heard;
    int32_t *words; /* a copy of the record */
    int64_t words_capacity;
} thread_rank;

/* ---- Failure --------------------------------------------------------------------------------- */

static lace_status take_fault(thread_rank *t)
{
    pthread_mutex_lock(&t->g->lock);
    t->base.fault = t->g->fault;
    t->base.status = t->g->fault.status;
    pthread_mutex_unlock(&t->g->lock);
    return t->base.status;
}

static void bump(thread_word *w)
{
    thread_word_set(w, atomic_load(&w->value) + 1);
}

/* Everybody who waits for this rank is woken, and sees that the group has failed. */
static void fail(ranks *r)
{
    thread_rank *t = (thread_rank *)r;
    group *g = t->g;
    pthread_mutex_lock(&g->lock);
    if (!atomic_load(&g->has_failed))
        g->fault = r->fault;
    atomic_store(&g->has_failed, true);
    pthread_mutex_unlock(&g->lock);
    bump(&g->done[r->shares.rank]);
    bump(&g->heard[r->shares.rank]);
    if (r->shares.rank == 0)
        bump(&g->told);
}

/* Until the word is `least` or has passed it; false: the group has failed. */
static bool wait_for(group *g, thread_word *w, uint32_t least)
{
    for (uint32_t value; (int32_t)((value = atomic_load(&w->value)) - least) < 0;) {
        if (atomic_load(&g->has_failed))
            return false;
        thread_word_wait(w, value, g->is_crowded ? SPIN_FEW : SPIN_MANY);
    }
    return !atomic_load(&g->has_failed);
}

/* ---- Parts ----------------------------------------------------------------------------------- */

static lace_status reserve(ranks *r, uint64_t n_bytes, lace_error *err)
{
    thread_rank *t = (thread_rank *)r;
    if (n_bytes <= t->part_bytes)
        return LACE_OK;
    for (int i = 0; i < 2; i++) {
        part_memory *m = mem_alloc(sizeof *m);
        uint8_t *data = mem_map(n_bytes);
        if (!m || !data) {
            mem_free(m);
            mem_unmap(data, n_bytes);
            return error_nomem(err, "what ranks exchange");
        }
        pthread_mutex_lock(&t->g->lock);
        *m = (part_memory){t->g->memory, data, n_bytes};
        t->g->memory = m;
        pthread_mutex_unlock(&t->g->lock);
        t->g->parts[r->shares.rank][i] = data;
    }
    t->part_bytes = n_bytes;
    return LACE_OK;
}

static uint8_t *mine(ranks *r)
{
    thread_rank *t = (thread_rank *)r;
    return t->g->parts[r->shares.rank][t->n_exchanges & 1];
}

static const uint8_t *part(ranks *r, int32_t rank)
{
    thread_rank *t = (thread_rank *)r;
    return t->g->parts[rank][(t->n_exchanges - 1) & 1];
}

static lace_status exchange(ranks *r, const uint64_t *bytes)
{
    thread_rank *t = (thread_rank *)r;
    group *g = t->g;
    t->n_exchanges++;
    thread_word_set(&g->done[r->shares.rank], t->n_exchanges);
    for (int32_t k = 0; k < g->n_ranks; k++)
        if (!wait_for(g, &g->done[k], t->n_exchanges))
            return take_fault(t);
    return LACE_OK;
}

/* ---- Records --------------------------------------------------------------------------------- */

static bool make_room(int32_t **words, int64_t *capacity, int64_t n)
{
    if (n <= *capacity)
        return true;
    int32_t *more = mem_realloc(*words, (size_t)n * 2 * sizeof *more);
    if (!more)
        return false;
    *words = more;
    *capacity = 2 * n;
    return true;
}

static lace_status no_room(thread_rank *t)
{
    ranks_fail(&t->base, LACE_E_NOMEM, "no memory for what ranks tell each other");
    return t->base.status;
}

static lace_status tell(ranks *r, const int32_t *words, int64_t n)
{
    thread_rank *t = (thread_rank *)r;
    group *g = t->g;
    uint32_t told = atomic_load(&g->told.value);
    for (int32_t k = 1; k < g->n_ranks; k++)
        if (!wait_for(g, &g->heard[k], told))
            return take_fault(t);
    if (!make_room(&g->words, &g->words_capacity, n))
        return no_room(t);
    memcpy(g->words, words, (size_t)n * sizeof *words);
    g->n_words = n;
    thread_word_set(&g->told, told + 1);
    return LACE_OK;
}

static lace_status hear(ranks *r, const int32_t **words, int64_t *n)
{
    thread_rank *t = (thread_rank *)r;
    group *g = t->g;
    if (!wait_for(g, &g->told, t->n_heard + 1))
        return take_fault(t);
    if (!make_room(&t->words, &t->words_capacity, g->n_words))
        return no_room(t);
    memcpy(t->words, g->words, (size_t)g->n_words * sizeof *t->words);
    *words = t->words;
    *n = g->n_words;
    thread_word_set(&g->heard[r->shares.rank], ++t->n_heard);
    return LACE_OK;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static void free_group(group *g)
{
    for (part_memory *next; g->memory; g->memory = next) {
        next = g->memory->next;
        mem_unmap(g->memory->data, g->memory->n_bytes);
        mem_free(g->memory);
    }
    pthread_mutex_destroy(&g->lock);
    mem_free(g->words);
    mem_unmap(g, sizeof *g);
}

static void close_rank(ranks *r)
{
    thread_rank *t = (thread_rank *)r;
    pthread_mutex_destroy(&r->lock);
    if (atomic_fetch_sub(&t->g->n_open, 1) == 1)
        free_group(t->g);
    mem_free_all(t->words, t);
}

static const rank_calls calls = {.reserve = reserve,
                                 .mine = mine,
                                 .part = part,
                                 .exchange = exchange,
                                 .tell = tell,
                                 .hear = hear,
                                 .fail = fail,
                                 .close = close_rank};

static void close_all(ranks **all, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        ranks_close(all[i]);
        all[i] = NULL;
    }
}

lace_status rank_threads_open(const rank_shares *shares, ranks **out, lace_error *err)
{
    memset(out, 0, (size_t)shares->n_ranks * sizeof *out);
    group *g = mem_map(sizeof *g); /* aligned, and zeroed */
    if (!g)
        return error_nomem(err, "a group of ranks");
    g->n_ranks = shares->n_ranks;
    g->is_crowded = shares->n_ranks > cpu_count();
    pthread_mutex_init(&g->lock, NULL);
    for (int32_t i = 0; i < shares->n_ranks; i++) {
        thread_rank *t = mem_calloc(1, sizeof *t);
        if (!t) {
            if (i == 0)
                free_group(g);
            close_all(out, i);
            return error_nomem(err, "a group of ranks");
        }
        pthread_mutex_init(&t->base.lock, NULL);
        t->base.calls = &calls;
        t->base.shares = *shares;
        t->base.is_here = true;
        t->base.shares.rank = i;
        t->g = g;
        atomic_fetch_add(&g->n_open, 1);
        out[i] = &t->base;
    }
    lace_status status = LACE_OK;
    for (int32_t i = 0; i < shares->n_ranks && status == LACE_OK; i++)
        status = reserve(out[i], RANKS_LEAST_BYTES, err);
    if (status != LACE_OK)
        close_all(out, shares->n_ranks);
    return status;
}
