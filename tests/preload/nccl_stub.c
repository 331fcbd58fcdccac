/*
 * A library in the place of NCCL's, for several ranks in one process, which may be on the same card:
 * each waits for what its stream has before it, then takes from the others what they have. Without a
 * driver addresses are the host's. STUB_NCCL_VERSION is what it says of itself; STUB_NCCL_FAIL names a
 * function that fails.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 64, MOST_CALLS = 64, MOST_GROUPS = 64, FAILED = 3 };

typedef struct unique_id {
    char internal[128];
} unique_id;

typedef struct call {
    const void *from;
    void *to;
    size_t n;
    int root;
    void *stream;
} call;

typedef struct group {
    char id[128];
    int n_ranks;
    pthread_barrier_t barrier;
    call calls[MOST_RANKS][MOST_CALLS];
} group;

typedef struct comm {
    group *g;
    int rank;
    int n_calls;
} comm;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static group groups[MOST_GROUPS];
static int n_groups, n_ids;
static __thread int depth;
static __thread comm *current;

/* ---- The driver ------------------------------------------------------------------------------ */

static int (*synchronize)(void *stream);
static int (*copy_async)(unsigned long long to, unsigned long long from, size_t n, void *stream);

static void find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    *(void **)&synchronize = dlsym(library, "cuStreamSynchronize");
    *(void **)&copy_async = dlsym(library, "cuMemcpyDtoDAsync_v2");
}

static int wait_stream(void *stream)
{
    return stream && synchronize ? synchronize(stream) : 0;
}

static int copy(const call *c, const void *from)
{
    if (from == c->to)
        return 0;
    if (c->stream && copy_async)
        return copy_async((uintptr_t)c->to, (uintptr_t)from, c->n, c->stream);
    memcpy(c->to, from, c->n);
    return 0;
}

/* ---- The interface --------------------------------------------------------------------------- */

static int fails(const char *name)
{
    const char *wish = getenv("STUB_NCCL_FAIL");
    return wish && strcmp(wish, name) == 0;
}

int ncclGetVersion(int *out);
int ncclGetUniqueId(unique_id *out);
int ncclCommInitRank(comm **out, int n_ranks, unique_id id, int rank);
int ncclCommDestroy(comm *c);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclBroadcast(const void *from, void *to, size_t n, int type, int root, comm *c, void *stream);
const char *ncclGetErrorString(int r);

int ncclGetVersion(int *out)
{
    const char *said = getenv("STUB_NCCL_VERSION");
    *out = said ? atoi(said) : 2804;
    return fails("ncclGetVersion") ? FAILED : 0;
}

int ncclGetUniqueId(unique_id *out)
{
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&lock);
    snprintf(out->internal, sizeof out->internal, "group %d", ++n_ids);
    pthread_mutex_unlock(&lock);
    return fails("ncclGetUniqueId") ? FAILED : 0;
}

int ncclCommInitRank(comm **out, int n_ranks, unique_id id, int rank)
{
    if (fails("ncclCommInitRank") || n_ranks > MOST_RANKS)
        return FAILED;
    comm *c = calloc(1, sizeof *c);
    if (!c)
        return FAILED;
    pthread_mutex_lock(&lock);
    find_driver();
    for (int i = 0; i < n_groups; i++)
        if (memcmp(groups[i].id, id.internal, sizeof id.internal) == 0)
            c->g = &groups[i];
    if (!c->g && n_groups < MOST_GROUPS) {
        c->g = &groups[n_groups++];
        memcpy(c->g->id, id.internal, sizeof id.internal);
        c->g->n_ranks = n_ranks;
        pthread_barrier_init(&c->g->barrier, NULL, (unsigned)n_ranks);
    }
    pthread_mutex_unlock(&lock);
    if (!c->g) {
        free(c);
        return FAILED;
    }
    c->rank = rank;
    pthread_barrier_wait(&c->g->barrier);
    *out = c;
    return 0;
}

int ncclCommDestroy(comm *c)
{
    free(c);
    return 0;
}

int ncclGroupStart(void)
{
    depth++;
    return fails("ncclGroupStart") ? FAILED : 0;
}

int ncclBroadcast(const void *from, void *to, size_t n, int type, int root, comm *c, void *stream)
{
    if (fails("ncclBroadcast") || type != 0 || depth != 1 || c->n_calls == MOST_CALLS)
        return FAILED;
    current = c;
    c->g->calls[c->rank][c->n_calls++] = (call){from, to, n, root, stream};
    return 0;
}

int ncclGroupEnd(void)
{
    comm *c = current;
    depth--;
    if (fails("ncclGroupEnd"))
        return FAILED;
    if (!c)
        return 0;
    const call *mine = c->g->calls[c->rank];
    int r = wait_stream(mine[0].stream);
    pthread_barrier_wait(&c->g->barrier);
    for (int i = 0; i < c->n_calls; i++) {
        const call *root = &c->g->calls[mine[i].root][i];
        if (root->n != mine[i].n || root->root != mine[i].root)
            r = FAILED;
        if (r == 0)
            r = copy(&mine[i], root->from);
    }
    if (r == 0)
        r = wait_stream(mine[0].stream);
    pthread_barrier_wait(&c->g->barrier);
    c->n_calls = 0;
    current = NULL;
    return r ? FAILED : 0;
}

const char *ncclGetErrorString(int r)
{
    return r == FAILED ? "internal error" : "no error";
}
