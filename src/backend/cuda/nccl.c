/* NCCL, looked up when it is first needed. */
#include "backend/cuda/nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Types and numbers of its interface, as far as they are used: those of nccl.h. */
typedef int ncclResult;
typedef struct ncclComm *ncclComm_t;

typedef struct ncclUniqueId {
    char internal[NCCL_ID_BYTES];
} ncclUniqueId;

enum { NCCL_BYTES = 0 }; /* ncclInt8 */

#define NCCL_LIST(X)                                                                               \
    X(ncclGetVersion, (int *out))                                                                  \
    X(ncclGetUniqueId, (ncclUniqueId * out))                                                       \
    X(ncclCommInitRank, (ncclComm_t * out, int n_ranks, ncclUniqueId id, int rank))                \
    X(ncclCommDestroy, (ncclComm_t c))                                                             \
    X(ncclGroupStart, (void))                                                                      \
    X(ncclGroupEnd, (void))                                                                        \
    X(ncclBroadcast,                                                                               \
      (const void *from, void *to, size_t n, int type, int root, ncclComm_t c, void *stream))

static struct {
    void *library;
    char why_not[256]; /* "": it is there */
    int version;
    const char *(*ncclGetErrorString)(ncclResult r);
#define X(name, args) ncclResult(*name) args;
    NCCL_LIST(X)
#undef X
} nccl;

struct nccl_comm {
    cuda_device *device;
    ncclComm_t comm;
    int32_t n_ranks;
};

static void write_version(int v, char out[32])
{
    int unit = v < 10000 ? 1000 : 10000;
    snprintf(out, 32, "%d.%d.%d", v / unit, v % unit / 100, v % 100);
}

static void look_for_library(void)
{
    nccl.library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!nccl.library) {
        snprintf(nccl.why_not, sizeof nccl.why_not, "no NCCL: libnccl.so.2 cannot be opened");
        return;
    }
    *(void **)&nccl.ncclGetErrorString = dlsym(nccl.library, "ncclGetErrorString");
#define X(name, args)                                                                              \
    *(void **)&nccl.name = dlsym(nccl.library, #name);                                             \
    if (!nccl.name) {                                                                              \
        snprintf(nccl.why_not, sizeof nccl.why_not, "NCCL is too old: it has no " #name);          \
        return;                                                                                    \
    }
    NCCL_LIST(X)
#undef X
    char found[32], oldest[32];
    if (nccl.ncclGetVersion(&nccl.version) != 0)
        nccl.version = 0;
    write_version(nccl.version, found);
    write_version(NCCL_OLDEST, oldest);
    if (nccl.version < NCCL_OLDEST)
        snprintf(nccl.why_not, sizeof nccl.why_not, "NCCL is too old: version %s, expected %s",
                 found, oldest);
}

lace_status nccl_find(lace_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look_for_library);
    return nccl.why_not[0] ? error_set(err, LACE_E_DEVICE, "%s", nccl.why_not) : LACE_OK;
}

bool nccl_can_be_recorded(void)
{
    return nccl.version >= NCCL_RECORDS;
}

static lace_status failed(ncclResult r, const char *call, lace_error *err)
{
    const char *text = nccl.ncclGetErrorString ? nccl.ncclGetErrorString(r) : NULL;
    return error_set(err, LACE_E_DEVICE, "NCCL: %s: %s", call, text ? text : "an unknown error");
}

#define CALL(name, ...)                                                                            \
    do {                                                                                           \
        ncclResult result_ = nccl.name(__VA_ARGS__);                                               \
        if (result_ != 0)                                                                          \
            return failed(result_, #name, err);                                                    \
    } while (0)

lace_status nccl_make_id(uint8_t out[NCCL_ID_BYTES], lace_error *err)
{
    ncclUniqueId id;
    TRY(nccl_find(err));
    CALL(ncclGetUniqueId, &id);
    memcpy(out, &id, sizeof id);
    return LACE_OK;
}

lace_status nccl_join(cuda_device *d, const uint8_t id[NCCL_ID_BYTES], int32_t n_ranks,
                      int32_t rank, nccl_comm **out, lace_error *err)
{
    ncclUniqueId group;
    *out = NULL;
    TRY(nccl_find(err));
    if (d)
        TRY(cuda_enter(d, err));
    nccl_comm *c = mem_calloc(1, sizeof *c);
    if (!c)
        return error_nomem(err, "a group of GPUs");
    memcpy(&group, id, sizeof group);
    ncclResult r = nccl.ncclCommInitRank(&c->comm, n_ranks, group, rank);
    if (r != 0) {
        mem_free(c);
        return failed(r, "ncclCommInitRank", err);
    }
    c->device = d;
    c->n_ranks = n_ranks;
    *out = c;
    return LACE_OK;
}

void nccl_leave(nccl_comm *c)
{
    if (!c)
        return;
    if (!c->device || cuda_enter(c->device, NULL) == LACE_OK)
        nccl.ncclCommDestroy(c->comm);
    mem_free(c);
}

lace_status nccl_share(nccl_comm *c, cuda_queue *q, void *const *parts, const uint64_t *n_bytes,
                       lace_error *err)
{
    if (c->device)
        TRY(cuda_enter(c->device, err));
    CALL(ncclGroupStart);
    for (int32_t k = 0; k < c->n_ranks; k++)
        if (n_bytes[k] > 0)
            CALL(ncclBroadcast, parts[k], parts[k], n_bytes[k], NCCL_BYTES, k, c->comm,
                 q ? cuda_queue_stream(q) : NULL);
    CALL(ncclGroupEnd);
    return LACE_OK;
}
