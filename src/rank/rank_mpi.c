/*
 * Ranks over MPI: a plugin, built with mpicc alone. Parts go from each rank to each other one, all at
 * once, and are polled for against a deadline; who runs into it names the ranks that are silent.
 * MPI_THREAD_SERIALIZED: `ranks.lock` and the order of a plan's steps see to it that one thread at a
 * time is in here.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rank/rank_mpi.h"

enum {
    TAG_PART = 1,
    TAG_RECORD = 2,
    SPIN_US = 1000,
    YIELD_US = 5000,
    NAP_US = 200,
    HURRY_MS = 500
};

typedef struct mpi_rank {
    ranks base;
    uint8_t *parts[2]; /* [n_ranks, part_bytes] of exchanges in turn */
    uint64_t part_bytes;
    uint32_t n_exchanges;
    MPI_Request requests[2 * RANKS_MAX];
    int peers[2 * RANKS_MAX]; /* who sends or takes what a request waits for */
    int32_t *told;            /* the record on its way */
    int64_t told_capacity;
    MPI_Request told_requests[RANKS_MAX];
    int n_told;
    int32_t *heard;
    int64_t heard_capacity;
    bool is_crowded; /* more ranks than cores on this machine */
} mpi_rank;

/* ---- Small things ---------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static lace_status
set_error(lace_error *err, lace_status status, const char *format, ...)
{
    va_list args;
    if (!err)
        return status;
    err->status = status;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return status;
}

static lace_status lost(mpi_rank *t, const char *what)
{
    set_error(&t->base.fault, LACE_E_RANK, "%s", what);
    return t->base.status = LACE_E_RANK;
}

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/*
 * Between two looks: at once at first, because ranks compute the same amount and giving a core away
 * costs a time slice of another program; then others get the core, then asleep.
 */
static void pause_after(const mpi_rank *t, int64_t waited_us)
{
    if (waited_us > YIELD_US)
        usleep(NAP_US);
    else if (waited_us > SPIN_US || t->is_crowded)
        sched_yield();
}

/* How long to wait: less, once this process has been told to end. */
static int64_t deadline_us(const mpi_rank *t)
{
    int64_t ms = t->base.deadline_ms;
    return 1000 * (atomic_load(&t->base.hurries) && ms > HURRY_MS ? HURRY_MS : ms);
}

static const char *host_of(const mpi_rank *t, int rank)
{
    return t->base.hosts[rank][0] ? t->base.hosts[rank] : "unknown host";
}

/* ---- Parts ----------------------------------------------------------------------------------- */

static lace_status reserve(ranks *r, uint64_t n_bytes, lace_error *err)
{
    mpi_rank *t = (mpi_rank *)r;
    n_bytes = round_up(n_bytes, 64);
    if (n_bytes <= t->part_bytes)
        return LACE_OK;
    for (int i = 0; i < 2; i++) {
        uint8_t *more = aligned_alloc(64, n_bytes * (uint64_t)r->shares.n_ranks);
        if (!more)
            return set_error(err, LACE_E_NOMEM, "no memory for what ranks exchange");
        free(t->parts[i]);
        t->parts[i] = more;
    }
    t->part_bytes = n_bytes;
    return LACE_OK;
}

static uint8_t *mine(ranks *r)
{
    mpi_rank *t = (mpi_rank *)r;
    return t->parts[t->n_exchanges & 1] + (uint64_t)r->shares.rank * t->part_bytes;
}

static const uint8_t *part(ranks *r, int32_t rank)
{
    mpi_rank *t = (mpi_rank *)r;
    return t->parts[(t->n_exchanges - 1) & 1] + (uint64_t)rank * t->part_bytes;
}

/* Who has not sent its part, or not taken ours. */
static lace_status name_silent(mpi_rank *t, int n)
{
    char text[400] = "";
    bool is_named[RANKS_MAX] = {false};
    for (int i = 0; i < n; i++) {
        int done = 1;
        if (is_named[t->peers[i]] || t->requests[i] == MPI_REQUEST_NULL)
            continue;
        MPI_Request_get_status(t->requests[i], &done, MPI_STATUS_IGNORE);
        is_named[t->peers[i]] = !done;
        size_t at = strlen(text);
        if (!done)
            snprintf(text + at, sizeof text - at, "%srank %d (%s)", at ? ", " : "", t->peers[i],
                     host_of(t, t->peers[i]));
    }
    size_t at = strlen(text);
    snprintf(text + at, sizeof text - at, "%s has not answered for %.1f s", at ? "" : "a rank",
             (double)deadline_us(t) / 1e6);
    return lost(t, text);
}

/* Until n requests are done. */
static lace_status wait_all(mpi_rank *t, MPI_Request *requests, int n)
{
    int done = 0, error = MPI_SUCCESS;
    int64_t begin = 0;
    for (int64_t spins = 0; !done && error == MPI_SUCCESS; spins++) {
        error = MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE);
        if (done || spins < 200)
            continue;
        int64_t now = now_us();
        begin = begin ? begin : now;
        if (now - begin > deadline_us(t))
            return LACE_E_RANK;
        pause_after(t, now - begin);
    }
    return error == MPI_SUCCESS ? LACE_OK : LACE_E_IO;
}

static lace_status exchange(ranks *r, const uint64_t *bytes)
{
    mpi_rank *t = (mpi_rank *)r;
    int n = 0, me = r->shares.rank, error = MPI_SUCCESS;
    uint8_t *all = t->parts[t->n_exchanges & 1];
    t->n_exchanges++;
    for (int k = 0; k < r->shares.n_ranks; k++)
        if (k != me && bytes[k]) {
            t->peers[n] = k;
            error |= MPI_Irecv(all + (uint64_t)k * t->part_bytes, (int)bytes[k], MPI_BYTE, k,
                               TAG_PART, MPI_COMM_WORLD, &t->requests[n++]);
        }
    for (int k = 0; k < r->shares.n_ranks; k++)
        if (k != me && bytes[me]) {
            t->peers[n] = k;
            error |= MPI_Isend(all + (uint64_t)me * t->part_bytes, (int)bytes[me], MPI_BYTE, k,
                               TAG_PART, MPI_COMM_WORLD, &t->requests[n++]);
        }
    if (error != MPI_SUCCESS)
        return lost(t, "MPI cannot send to another rank");
    lace_status status = wait_all(t, t->requests, n);
    return status == LACE_OK       ? LACE_OK
           : status == LACE_E_RANK ? name_silent(t, n)
                                   : lost(t, "the connection to another rank has failed");
}

/* ---- Records --------------------------------------------------------------------------------- */

static bool make_room(int32_t **words, int64_t *capacity, int64_t n)
{
    if (n <= *capacity)
        return true;
    int32_t *more = realloc(*words, (size_t)n * 2 * sizeof *more);
    if (!more)
        return false;
    *words = more;
    *capacity = 2 * n;
    return true;
}

static lace_status tell(ranks *r, const int32_t *words, int64_t n)
{
    mpi_rank *t = (mpi_rank *)r;
    if (wait_all(t, t->told_requests, t->n_told) != LACE_OK)
        return lost(t, "a rank does not take what rank 0 tells it");
    t->n_told = 0;
    if (!make_room(&t->told, &t->told_capacity, n))
        return lost(t, "no memory for what ranks tell each other");
    memcpy(t->told, words, (size_t)n * sizeof *words);
    for (int k = 1; k < r->shares.n_ranks; k++)
        if (MPI_Isend(t->told, (int)n, MPI_INT32_T, k, TAG_RECORD, MPI_COMM_WORLD,
                      &t->told_requests[t->n_told++]) != MPI_SUCCESS)
            return lost(t, "MPI cannot send to another rank");
    return LACE_OK;
}

static lace_status hear(ranks *r, const int32_t **words, int64_t *n)
{
    mpi_rank *t = (mpi_rank *)r;
    int is_there = 0, count = 0;
    MPI_Status status;
    int64_t begin = now_us();
    while (!is_there) {
        if (MPI_Iprobe(0, TAG_RECORD, MPI_COMM_WORLD, &is_there, &status) != MPI_SUCCESS)
            return lost(t, "the connection to rank 0 has failed");
        int64_t waited = now_us() - begin;
        if (is_there)
            break;
        if (waited > deadline_us(t)) {
            char text[128];
            snprintf(text, sizeof text, "rank 0 (%s) has said nothing for %.1f s", host_of(t, 0),
                     (double)waited / 1e6);
            return lost(t, text);
        }
        pause_after(t, waited);
    }
    MPI_Get_count(&status, MPI_INT32_T, &count);
    if (count < 0 || !make_room(&t->heard, &t->heard_capacity, count + 1))
        return lost(t, "no memory for what ranks tell each other");
    if (MPI_Recv(t->heard, count, MPI_INT32_T, 0, TAG_RECORD, MPI_COMM_WORLD, MPI_STATUS_IGNORE) !=
        MPI_SUCCESS)
        return lost(t, "the connection to rank 0 has failed");
    *words = t->heard;
    *n = count;
    return LACE_OK;
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* The others find out by their deadlines, or by mpirun when this process ends. */
static void fail(ranks *r)
{
    (void)r;
}

/* After a failure MPI_Finalize would wait for a rank that is gone. */
static void close_rank(ranks *r)
{
    mpi_rank *t = (mpi_rank *)r;
    if (r->status == LACE_OK) {
        wait_all(t, t->told_requests, t->n_told);
        MPI_Finalize();
    }
    pthread_mutex_destroy(&r->lock);
    free(t->parts[0]);
    free(t->parts[1]);
    free(t->told);
    free(t->heard);
    free(t);
}

static const rank_calls calls = {.reserve = reserve,
                                 .mine = mine,
                                 .part = part,
                                 .exchange = exchange,
                                 .tell = tell,
                                 .hear = hear,
                                 .fail = fail,
                                 .close = close_rank};

/* One machine needs no network: nothing listens. Several talk over the one that was named. */
static void choose_network(const rank_mpi_options *o)
{
    setenv("OMPI_MCA_pml", "ob1", 0);
    setenv("OMPI_MCA_btl", o->net ? "self,vader,tcp" : "self,vader", 0);
    if (o->net) {
        setenv("OMPI_MCA_btl_tcp_if_include", o->net, 1);
        setenv("OMPI_MCA_btl_tcp_eager_limit", "1048576", 0);
        setenv("OMPI_MCA_btl_tcp_rndv_eager_limit", "1048576", 0);
    }
}

static lace_status open_rank(const rank_mpi_options *o, ranks **out, lace_error *err)
{
    int provided, rank, n_ranks;
    *out = NULL;
    choose_network(o);
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS ||
        provided < MPI_THREAD_SERIALIZED)
        return set_error(err, LACE_E_RANK, "MPI cannot be used by several threads");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    mpi_rank *t = n_ranks <= RANKS_MAX ? calloc(1, sizeof *t) : NULL;
    if (!t)
        return set_error(err, LACE_E_LIMIT, "%d ranks, expected 1 to %d", n_ranks, RANKS_MAX);
    t->base.calls = &calls;
    t->base.shares.rank = rank;
    t->base.shares.n_ranks = n_ranks;
    t->base.deadline_ms = o->deadline_ms;
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    t->is_crowded = local && strtol(local, NULL, 10) > sysconf(_SC_NPROCESSORS_ONLN);
    for (int k = 0; k < n_ranks; k++)
        t->base.shares.parts[k] = 1;
    pthread_mutex_init(&t->base.lock, NULL);
    lace_status status = reserve(&t->base, RANKS_LEAST_BYTES, err);
    if (status != LACE_OK) {
        close_rank(&t->base);
        return status;
    }
    *out = &t->base;
    return LACE_OK;
}

/* The one name that others see. */
__attribute__((visibility("default"))) const rank_mpi_plugin lace_rank_mpi = {
    .version = LACE_VERSION, .ranks_bytes = sizeof(ranks), .open = open_rank};
