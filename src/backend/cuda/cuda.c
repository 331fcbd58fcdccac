/* An NVIDIA GPU through the driver's C interface, which is looked up when it is first needed. */
#define _GNU_SOURCE
#include "backend/cuda/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* ---- The driver ------------------------------------------------------------------------------ */

/* Types and numbers of the driver's interface, as far as they are used: those of CUDA's cuda.h. */
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
    RESULT_OUT_OF_MEMORY = 2,
    RESULT_NO_CODE = 209, /* for the card, in what is loaded */
    RESULT_NEWER_PTX = 222,
    RESULT_FIRST_FATAL = 700, /* of those after which the context is good for nothing */
    RESULT_LAST_FATAL = 720,
    ATTRIBUTE_N_PROCESSORS = 16,
    ATTRIBUTE_MAJOR = 75,
    ATTRIBUTE_MINOR = 76,
    ATTRIBUTE_MAX_SHARED = 97,
    HOST_ALLOC_PORTABLE = 1,
    HOST_ALLOC_MAPPED = 2,
    STREAM_NON_BLOCKING = 1,
    CAPTURE_THREAD_LOCAL = 1,
    FUNCTION_COMPILED_FOR = 5,
    FUNCTION_MAX_SHARED = 8,
    FUNCTION_CARVEOUT = 9,
    FUNCTION_LARGE_CLUSTERS = 14,
    LAUNCH_CLUSTER = 4,
    LAUNCH_OVERLAPS = 6,
    TENSOR_F16 = 6,
    TENSOR_SWIZZLE_128 = 3,
    TENSOR_PROMOTE_256 = 3,
};

typedef struct launch_attribute {
    int id;
    char pad[4];
    union {
        char pad[64];
        struct {
            unsigned x, y, z;
        } cluster;
        int overlaps;
    } value;
} launch_attribute;

typedef struct launch_config {
    unsigned grid[3], block[3], shared_bytes;
    CUstream stream;
    launch_attribute *attributes;
    unsigned n_attributes;
} launch_config;

/* Every function once: the name that the library exports, and its arguments. */
#define DRIVER_LIST(X)                                                                             \
    X(cuInit, (unsigned flags))                                                                    \
    X(cuDriverGetVersion, (int *version))                                                          \
    X(cuGetErrorName, (CUresult r, const char **out))                                              \
    X(cuDeviceGetCount, (int *out))                                                                \
    X(cuDeviceGet, (CUdevice * out, int index))                                                    \
    X(cuDeviceGetName, (char *out, int size, CUdevice d))                                          \
    X(cuDeviceGetAttribute, (int *out, int attribute, CUdevice d))                                 \
    X(cuDevicePrimaryCtxRetain, (CUcontext * out, CUdevice d))                                     \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice d))                                                  \
    X(cuCtxSetCurrent, (CUcontext c))                                                              \
    X(cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                                \
    X(cuMemAlloc_v2, (CUdeviceptr * out, size_t n))                                                \
    X(cuMemFree_v2, (CUdeviceptr p))                                                               \
    X(cuMemHostAlloc, (void **out, size_t n, unsigned flags))                                      \
    X(cuMemFreeHost, (void *p))                                                                    \
    X(cuMemHostGetDevicePointer_v2, (CUdeviceptr * out, void *p, unsigned flags))                  \
    X(cuStreamCreate, (CUstream * out, unsigned flags))                                            \
    X(cuStreamDestroy_v2, (CUstream s))                                                            \
    X(cuStreamSynchronize, (CUstream s))                                                           \
    X(cuStreamWaitEvent, (CUstream s, CUevent e, unsigned flags))                                  \
    X(cuStreamBeginCapture_v2, (CUstream s, int mode))                                             \
    X(cuStreamEndCapture, (CUstream s, CUgraph * out))                                             \
    X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t n, CUstream s))              \
    X(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t n, CUstream s))                    \
    X(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s))              \
    X(cuMemsetD8Async, (CUdeviceptr to, unsigned char byte, size_t n, CUstream s))                 \
    X(cuEventCreate, (CUevent * out, unsigned flags))                                              \
    X(cuEventDestroy_v2, (CUevent e))                                                              \
    X(cuEventRecord, (CUevent e, CUstream s))                                                      \
    X(cuEventSynchronize, (CUevent e))                                                             \
    X(cuEventElapsedTime, (float *ms, CUevent a, CUevent b))                                       \
    X(cuModuleLoadData, (CUmodule * out, const void *image))                                       \
    X(cuModuleUnload, (CUmodule m))                                                                \
    X(cuModuleGetFunction, (CUfunction * out, CUmodule m, const char *name))                       \
    X(cuFuncGetAttribute, (int *out, int attribute, CUfunction f))                                 \
    X(cuFuncSetAttribute, (CUfunction f, int attribute, int value))                                \
    X(cuLaunchKernelEx, (const launch_config *c, CUfunction f, void **params, void **extra))       \
    X(cuGraphInstantiateWithFlags, (CUgraphExec * out, CUgraph g, unsigned long long flags))       \
    X(cuGraphUpload, (CUgraphExec g, CUstream s))                                                  \
    X(cuGraphLaunch, (CUgraphExec g, CUstream s))                                                  \
    X(cuGraphExecDestroy, (CUgraphExec g))                                                         \
    X(cuGraphDestroy, (CUgraph g))                                                                 \
    X(cuTensorMapEncodeTiled,                                                                      \
      (void *out, int type, uint32_t n_dims, void *address, const uint64_t *dims,                  \
       const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,        \
       int swizzle, int promotion, int fill))

/* Those that older drivers do not have. */
#define NEWER_LIST(X)                                                                              \
    X(cuModuleGetFunctionCount, (unsigned *out, CUmodule m))                                       \
    X(cuModuleEnumerateFunctions, (CUfunction * out, unsigned n, CUmodule m))                      \
    X(cuFuncLoad, (CUfunction f))

static struct {
    void *library;
    char why_not[256]; /* why there is none; "": there is */
    int version;
    int n_devices;
#define X(name, args) CUresult(*name) args;
    DRIVER_LIST(X)
    NEWER_LIST(X)
#undef X
} driver;

static const char *result_name(CUresult r)
{
    const char *name = NULL;
    if (!driver.cuGetErrorName || driver.cuGetErrorName(r, &name) != 0 || !name)
        return "an unknown error";
    return name;
}

static void look_for_driver(void)
{
    driver.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver.library) {
        snprintf(driver.why_not, sizeof driver.why_not,
                 "no NVIDIA driver: libcuda.so.1 cannot be opened");
        return;
    }
#define X(name, args)                                                                              \
    *(void **)&driver.name = dlsym(driver.library, #name);                                         \
    if (!driver.name) {                                                                            \
        snprintf(driver.why_not, sizeof driver.why_not,                                            \
                 "the NVIDIA driver is too old: it has no " #name);                                \
        return;                                                                                    \
    }
    DRIVER_LIST(X)
#undef X
#define X(name, args) *(void **)&driver.name = dlsym(driver.library, #name);
    NEWER_LIST(X)
#undef X
    CUresult r = driver.cuInit(0);
    if (r == 0)
        r = driver.cuDeviceGetCount(&driver.n_devices);
    if (r == 0)
        r = driver.cuDriverGetVersion(&driver.version);
    if (r != 0) {
        driver.n_devices = 0;
        snprintf(driver.why_not, sizeof driver.why_not, "the NVIDIA driver does not start: %s",
                 result_name(r));
    }
}

static void find_driver(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look_for_driver);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

static lace_status failed(CUresult r, const char *call, lace_error *err)
{
    lace_status status = r == RESULT_OUT_OF_MEMORY ? LACE_E_MEMORY : LACE_E_DEVICE;
    if (r >= RESULT_FIRST_FATAL && r <= RESULT_LAST_FATAL)
        return error_set(err, status,
                         "GPU: %s: %s; the GPU computes nothing more for this process; start lace "
                         "again",
                         call, result_name(r));
    return error_set(err, status, "GPU: %s: %s", call, result_name(r));
}

#define CALL(name, ...)                                                                            \
    do {                                                                                           \
        CUresult result_ = driver.name(__VA_ARGS__);                                               \
        if (result_ != 0)                                                                          \
            return failed(result_, #name, err);                                                    \
    } while (0)

/* ---- Devices --------------------------------------------------------------------------------- */

struct cuda_device {
    int index;
    CUdevice device;
    CUcontext context;
};

struct cuda_queue {
    cuda_device *device;
    CUstream stream;
};

struct cuda_event {
    cuda_device *device;
    CUevent event;
};

struct cuda_module {
    cuda_device *device;
    CUmodule module;
};

struct cuda_graph {
    cuda_device *device;
    CUgraphExec exec;
};

int cuda_count(void)
{
    find_driver();
    return driver.n_devices;
}

/* Contexts belong to threads: every call says which one it means. */
static lace_status enter(const cuda_device *d, lace_error *err)
{
    CALL(cuCtxSetCurrent, d->context);
    return LACE_OK;
}

lace_status cuda_enter(const cuda_device *d, lace_error *err)
{
    return enter(d, err);
}

lace_status cuda_open(int index, cuda_device **out, lace_error *err)
{
    *out = NULL;
    find_driver();
    if (driver.why_not[0])
        return error_set(err, LACE_E_DEVICE, "%s", driver.why_not);
    if (index < 0 || index >= driver.n_devices)
        return error_set(err, LACE_E_DEVICE, "there is no GPU number %d: this machine has %d",
                         index, driver.n_devices);
    cuda_device *d = mem_calloc(1, sizeof *d);
    if (!d)
        return error_nomem(err, "a GPU");
    d->index = index;
    CUresult r = driver.cuDeviceGet(&d->device, index);
    if (r == 0)
        r = driver.cuDevicePrimaryCtxRetain(&d->context, d->device);
    if (r != 0) {
        mem_free(d);
        return failed(r, "cuDevicePrimaryCtxRetain", err);
    }
    *out = d;
    return LACE_OK;
}

void cuda_close(cuda_device *d)
{
    if (!d)
        return;
    driver.cuDevicePrimaryCtxRelease_v2(d->device);
    mem_free(d);
}

lace_status cuda_describe(cuda_device *d, cuda_info *out, lace_error *err)
{
    size_t free_bytes, total_bytes;
    *out = (cuda_info){.index = d->index,
                       .driver_major = driver.version / 1000,
                       .driver_minor = driver.version % 1000 / 10};
    TRY(enter(d, err));
    CALL(cuDeviceGetName, out->name, sizeof out->name, d->device);
    CALL(cuDeviceGetAttribute, &out->major, ATTRIBUTE_MAJOR, d->device);
    CALL(cuDeviceGetAttribute, &out->minor, ATTRIBUTE_MINOR, d->device);
    CALL(cuDeviceGetAttribute, &out->n_processors, ATTRIBUTE_N_PROCESSORS, d->device);
    CALL(cuDeviceGetAttribute, &out->max_shared_bytes, ATTRIBUTE_MAX_SHARED, d->device);
    CALL(cuMemGetInfo_v2, &free_bytes, &total_bytes);
    out->free_bytes = free_bytes;
    out->total_bytes = total_bytes;
    return LACE_OK;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static CUdeviceptr number_of(const void *address)
{
    return (CUdeviceptr)(uintptr_t)address;
}

lace_status cuda_alloc(cuda_device *d, uint64_t n_bytes, void **out, lace_error *err)
{
    CUdeviceptr p = 0;
    *out = NULL;
    TRY(enter(d, err));
    CUresult r = driver.cuMemAlloc_v2(&p, n_bytes ? (size_t)n_bytes : 1);
    if (r == RESULT_OUT_OF_MEMORY) {
        size_t left = 0, total = 0;
        driver.cuMemGetInfo_v2(&left, &total);
        return error_set(
            err, LACE_E_MEMORY, "GPU: %.1f MiB are needed, but only %.1f of %.1f MiB are free",
            (double)n_bytes / 1048576, (double)left / 1048576, (double)total / 1048576);
    }
    if (r != 0)
        return failed(r, "cuMemAlloc", err);
    *out = (void *)(uintptr_t)p;
    return LACE_OK;
}

void cuda_free(cuda_device *d, void *address)
{
    if (address && enter(d, NULL) == LACE_OK)
        driver.cuMemFree_v2(number_of(address));
}

lace_status cuda_alloc_host(cuda_device *d, uint64_t n_bytes, void **out, void **out_device,
                            lace_error *err)
{
    *out = NULL;
    TRY(enter(d, err));
    CALL(cuMemHostAlloc, out, n_bytes ? (size_t)n_bytes : 1,
         HOST_ALLOC_PORTABLE | HOST_ALLOC_MAPPED);
    if (out_device) {
        CUdeviceptr p = 0;
        CUresult r = driver.cuMemHostGetDevicePointer_v2(&p, *out, 0);
        if (r != 0) {
            driver.cuMemFreeHost(*out);
            *out = NULL;
            return failed(r, "cuMemHostGetDevicePointer", err);
        }
        *out_device = (void *)(uintptr_t)p;
    }
    return LACE_OK;
}

void cuda_free_host(cuda_device *d, void *address)
{
    if (address && enter(d, NULL) == LACE_OK)
        driver.cuMemFreeHost(address);
}

lace_status cuda_host_address(cuda_device *d, void *address, void **out, lace_error *err)
{
    CUdeviceptr p = 0;
    *out = NULL;
    TRY(enter(d, err));
    CALL(cuMemHostGetDevicePointer_v2, &p, address, 0);
    *out = (void *)(uintptr_t)p;
    return LACE_OK;
}

lace_status cuda_describe_boxes(const void *rows, uint32_t n_cols, uint32_t n_rows,
                                uint64_t page_bytes, uint32_t box_rows, void *out, lace_error *err)
{
    /* No page is beyond the space of addresses, nor has a number of more than 31 bits. */
    const uint64_t n_pages = ((uint64_t)1 << 47) / page_bytes, most = INT32_MAX;
    const uint64_t dims[3] = {n_cols, n_rows, n_pages < most ? n_pages : most};
    const uint64_t strides[2] = {2 * (uint64_t)n_cols, page_bytes};
    const uint32_t box[3] = {64, box_rows, 1}, steps[3] = {1, 1, 1};
    CALL(cuTensorMapEncodeTiled, out, TENSOR_F16, 3, (void *)(uintptr_t)rows, dims, strides, box,
         steps, 0, TENSOR_SWIZZLE_128, TENSOR_PROMOTE_256, 0);
    return LACE_OK;
}

/* ---- Queues ---------------------------------------------------------------------------------- */

lace_status cuda_queue_create(cuda_device *d, cuda_queue **out, lace_error *err)
{
    *out = NULL;
    TRY(enter(d, err));
    cuda_queue *q = mem_calloc(1, sizeof *q);
    if (!q)
        return error_nomem(err, "a queue");
    q->device = d;
    CUresult r = driver.cuStreamCreate(&q->stream, STREAM_NON_BLOCKING);
    if (r != 0) {
        mem_free(q);
        return failed(r, "cuStreamCreate", err);
    }
    *out = q;
    return LACE_OK;
}

void cuda_queue_free(cuda_queue *q)
{
    if (!q)
        return;
    if (enter(q->device, NULL) == LACE_OK) {
        driver.cuStreamSynchronize(q->stream);
        driver.cuStreamDestroy_v2(q->stream);
    }
    mem_free(q);
}

cuda_device *cuda_queue_device(const cuda_queue *q)
{
    return q->device;
}

void *cuda_queue_stream(const cuda_queue *q)
{
    return q->stream;
}

lace_status cuda_copy_to(cuda_queue *q, void *device, const void *host, uint64_t n, lace_error *err)
{
    TRY(enter(q->device, err));
    CALL(cuMemcpyHtoDAsync_v2, number_of(device), host, n, q->stream);
    return LACE_OK;
}

lace_status cuda_copy_from(cuda_queue *q, void *host, const void *device, uint64_t n,
                           lace_error *err)
{
    TRY(enter(q->device, err));
    CALL(cuMemcpyDtoHAsync_v2, host, number_of(device), n, q->stream);
    return LACE_OK;
}

lace_status cuda_copy_on(cuda_queue *q, void *to, const void *from, uint64_t n, lace_error *err)
{
    TRY(enter(q->device, err));
    CALL(cuMemcpyDtoDAsync_v2, number_of(to), number_of(from), n, q->stream);
    return LACE_OK;
}

lace_status cuda_fill(cuda_queue *q, void *device, uint8_t byte, uint64_t n, lace_error *err)
{
    TRY(enter(q->device, err));
    CALL(cuMemsetD8Async, number_of(device), byte, n, q->stream);
    return LACE_OK;
}

lace_status cuda_wait(cuda_queue *q, lace_error *err)
{
    TRY(enter(q->device, err));
    CALL(cuStreamSynchronize, q->stream);
    return LACE_OK;
}

lace_status cuda_event_create(cuda_device *d, cuda_event **out, lace_error *err)
{
    *out = NULL;
    TRY(enter(d, err));
    cuda_event *e = mem_calloc(1, sizeof *e);
    if (!e)
        return error_nomem(err, "an event");
    e->device = d;
    CUresult r = driver.cuEventCreate(&e->event, 0);
    if (r != 0) {
        mem_free(e);
        return failed(r, "cuEventCreate", err);
    }
    *out = e;
    return LACE_OK;
}

void cuda_event_free(cuda_event *e)
{
    if (!e)
        return;
    if (enter(e->device, NULL) == LACE_OK)
        driver.cuEventDestroy_v2(e->event);
    mem_free(e);
}

lace_status cuda_event_record(cuda_event *e, cuda_queue *q, lace_error *err)
{
    TRY(enter(e->device, err));
    CALL(cuEventRecord, e->event, q->stream);
    return LACE_OK;
}

lace_status cuda_queue_wait_event(cuda_queue *q, const cuda_event *e, lace_error *err)
{
    TRY(enter(q->device, err));
    CALL(cuStreamWaitEvent, q->stream, e->event, 0);
    return LACE_OK;
}

lace_status cuda_event_wait(cuda_event *e, lace_error *err)
{
    TRY(enter(e->device, err));
    CALL(cuEventSynchronize, e->event);
    return LACE_OK;
}

lace_status cuda_event_elapsed(cuda_event *from, cuda_event *to, double *out, lace_error *err)
{
    float ms = 0;
    *out = 0;
    TRY(enter(from->device, err));
    CALL(cuEventElapsedTime, &ms, from->event, to->event);
    *out = 1000.0 * (double)ms;
    return LACE_OK;
}

/* ---- Kernels --------------------------------------------------------------------------------- */

lace_status cuda_module_load(cuda_device *d, const void *image, cuda_module **out, lace_error *err)
{
    *out = NULL;
    TRY(enter(d, err));
    cuda_module *m = mem_calloc(1, sizeof *m);
    if (!m)
        return error_nomem(err, "a module");
    m->device = d;
    CUresult r = driver.cuModuleLoadData(&m->module, image);
    if (r != 0) {
        mem_free(m);
        if (r == RESULT_NEWER_PTX || r == RESULT_NO_CODE)
            return error_set(err, LACE_E_DEVICE,
                             "the NVIDIA driver (CUDA %d.%d) is too old for the kernels of this "
                             "lace: %s",
                             driver.version / 1000, driver.version % 1000 / 10, result_name(r));
        return failed(r, "cuModuleLoadData", err);
    }
    *out = m;
    return LACE_OK;
}

void cuda_module_free(cuda_module *m)
{
    if (!m)
        return;
    if (enter(m->device, NULL) == LACE_OK)
        driver.cuModuleUnload(m->module);
    mem_free(m);
}

lace_status cuda_module_load_all(cuda_module *m, lace_error *err)
{
    const char *loading = getenv("CUDA_MODULE_LOADING");
    if (loading && strcmp(loading, "EAGER") == 0)
        return LACE_OK;
    if (!driver.cuModuleGetFunctionCount || !driver.cuModuleEnumerateFunctions ||
        !driver.cuFuncLoad)
        return error_set(err, LACE_E_DEVICE,
                         "the NVIDIA driver loads kernels one by one: set "
                         "CUDA_MODULE_LOADING=EAGER");
    unsigned n = 0;
    TRY(enter(m->device, err));
    CALL(cuModuleGetFunctionCount, &n, m->module);
    CUfunction *all = mem_calloc((size_t)n + 1, sizeof *all);
    if (!all)
        return error_nomem(err, "kernels");
    CUresult r = driver.cuModuleEnumerateFunctions(all, n, m->module);
    for (unsigned i = 0; r == 0 && i < n; i++)
        r = driver.cuFuncLoad(all[i]);
    mem_free(all);
    return r == 0 ? LACE_OK : failed(r, "cuFuncLoad", err);
}

/* A cuda_kernel is the driver's own handle. */
cuda_kernel *cuda_module_find(cuda_module *m, const char *name)
{
    CUfunction f = NULL;
    if (enter(m->device, NULL) != LACE_OK || driver.cuModuleGetFunction(&f, m->module, name) != 0)
        return NULL;
    return (cuda_kernel *)f;
}

lace_status cuda_kernel_compiled_for(cuda_kernel *k, int *out, lace_error *err)
{
    *out = 0;
    CALL(cuFuncGetAttribute, out, FUNCTION_COMPILED_FOR, (CUfunction)k);
    return LACE_OK;
}

lace_status cuda_kernel_allow(cuda_kernel *k, uint32_t shared_bytes, bool large_clusters,
                              lace_error *err)
{
    CUfunction f = (CUfunction)k;
    CALL(cuFuncSetAttribute, f, FUNCTION_MAX_SHARED, (int)shared_bytes);
    /* All of the on-chip memory as shared memory: a change between kernels would drain the chip. */
    CALL(cuFuncSetAttribute, f, FUNCTION_CARVEOUT, 100);
    if (large_clusters)
        CALL(cuFuncSetAttribute, f, FUNCTION_LARGE_CLUSTERS, 1);
    return LACE_OK;
}

static unsigned at_least_1(uint32_t n)
{
    return n ? n : 1;
}

lace_status cuda_run(cuda_queue *q, const cuda_launch *l, void **params, lace_error *err)
{
    launch_attribute attributes[2];
    memset(attributes, 0, sizeof attributes);
    launch_config c = {
        .shared_bytes = l->shared_bytes, .stream = q->stream, .attributes = attributes};
    for (int i = 0; i < 3; i++) {
        c.grid[i] = at_least_1(l->grid[i]);
        c.block[i] = at_least_1(l->block[i]);
    }
    if (l->overlaps) {
        attributes[c.n_attributes].id = LAUNCH_OVERLAPS;
        attributes[c.n_attributes++].value.overlaps = 1;
    }
    if (l->cluster > 1) {
        attributes[c.n_attributes].id = LAUNCH_CLUSTER;
        attributes[c.n_attributes].value.cluster.x = l->cluster;
        attributes[c.n_attributes].value.cluster.y = 1;
        attributes[c.n_attributes++].value.cluster.z = 1;
    }
    TRY(enter(q->device, err));
    CALL(cuLaunchKernelEx, &c, (CUfunction)l->kernel, params, NULL);
    return LACE_OK;
}

/* ---- Graphs ---------------------------------------------------------------------------------- */

lace_status cuda_record_begin(cuda_queue *q, lace_error *err)
{
    TRY(enter(q->device, err));
    CALL(cuStreamBeginCapture_v2, q->stream, CAPTURE_THREAD_LOCAL);
    return LACE_OK;
}

lace_status cuda_record_end(cuda_queue *q, cuda_graph **out, lace_error *err)
{
    *out = NULL;
    TRY(enter(q->device, err));
    CUgraph recorded = NULL;
    CALL(cuStreamEndCapture, q->stream, &recorded);
    cuda_graph *g = mem_calloc(1, sizeof *g);
    if (!g) {
        driver.cuGraphDestroy(recorded);
        return error_nomem(err, "a graph");
    }
    g->device = q->device;
    CUresult r = driver.cuGraphInstantiateWithFlags(&g->exec, recorded, 0);
    driver.cuGraphDestroy(recorded);
    if (r != 0) {
        mem_free(g);
        return failed(r, "cuGraphInstantiate", err);
    }
    *out = g;
    return LACE_OK;
}

lace_status cuda_graph_upload(cuda_queue *q, const cuda_graph *g, lace_error *err)
{
    TRY(enter(q->device, err));
    CALL(cuGraphUpload, g->exec, q->stream);
    return LACE_OK;
}

lace_status cuda_graph_run(cuda_queue *q, const cuda_graph *g, lace_error *err)
{
    TRY(enter(q->device, err));
    CALL(cuGraphLaunch, g->exec, q->stream);
    return LACE_OK;
}

void cuda_graph_free(cuda_graph *g)
{
    if (!g)
        return;
    if (enter(g->device, NULL) == LACE_OK)
        driver.cuGraphExecDestroy(g->exec);
    mem_free(g);
}
