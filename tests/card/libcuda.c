/*
 * In the place of libcuda.so.1: NVIDIA's driver for cards made of software. Kernels are computed by
 * the processor from their PTX, in memory of the host. What a card checks, this checks; what it only
 * lets happen (an address in no allocation, a read of what nobody wrote, a missing wait), this says.
 *
 * The functions and numbers are those that src/backend/cuda/cuda.c names.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bulk_copy.h"
#include "card_memory.h"
#include "card_options.h"
#include "card_stream.h"
#include "fatbin.h"
#include "ptx_control.h"
#include "ptx_module.h"

typedef unsigned long long address;

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    STREAM_CAPTURE_INVALIDATED = 901,
    ATTRIBUTE_N_PROCESSORS = 16,
    ATTRIBUTE_MAJOR = 75,
    ATTRIBUTE_MINOR = 76,
    ATTRIBUTE_MAX_SHARED = 97,
    FUNCTION_COMPILED_FOR = 5,
    FUNCTION_MAX_SHARED = 8,
    FUNCTION_CARVEOUT = 9,
    FUNCTION_LARGE_CLUSTERS = 14,
    LAUNCH_CLUSTER = 4,
    LAUNCH_OVERLAPS = 6,
    DEFAULT_SHARED = 48 << 10,
    MAX_CARDS = 8,
    MAX_MODULES = 256,
};

typedef struct launch_attribute {
    int id;
    char pad[4];
    union {
        char pad[64];
        unsigned cluster[3];
    } value;
} launch_attribute;

typedef struct launch_config {
    unsigned grid[3], block[3], shared_bytes;
    stream *stream;
    launch_attribute *attributes;
    unsigned n_attributes;
} launch_config;

/* A kernel of a module that is loaded; what is set for it is kept here. */
typedef struct function {
    module_kernel *kernel;
    uint32_t max_shared; /* that a launch may ask for, beyond DEFAULT_SHARED in all */
    bool large_clusters;
} function;

typedef struct loaded_module {
    const void *image;
    module *module;
    function *functions;
} loaded_module;

static card cards[MAX_CARDS];
static _Thread_local card *current;

/* Modules stay until the program ends, as their images do. */
static struct {
    pthread_mutex_t lock;
    loaded_module all[MAX_MODULES];
    int n;
} modules = {.lock = PTHREAD_MUTEX_INITIALIZER};

#define API __attribute__((visibility("default")))

/* What every call of a card that failed says. */
#define REFUSE_IF_FAILED(c)                                                                        \
    do {                                                                                           \
        if (!(c))                                                                                  \
            return INVALID_CONTEXT;                                                                \
        if (__atomic_load_n(&(c)->failed, __ATOMIC_SEQ_CST))                                       \
            return ILLEGAL_ADDRESS;                                                                \
    } while (0)

/* ---- What was computed ------------------------------------------------------------------------ */

__attribute__((destructor)) static void report(void)
{
    if (!modules.n || !card_options_get()->report)
        return;
    double all = 0, all_ns = 0;
    for (int m = 0; m < modules.n; m++)
        for (uint32_t n = 0; n < module_count(modules.all[m].module); n++) {
            const kernel *k = module_kernel_done(module_at(modules.all[m].module, n));
            if (!k || !k->n_done)
                continue;
            fprintf(stderr,
                    "card: %-32s %9.2f s %9.1f M instructions, %5.1f lanes, %7.1f M lanes/s\n",
                    k->name, (double)k->cpu_ns / 1e9, (double)k->n_done / 1e6,
                    (double)k->n_lanes / (double)k->n_done,
                    (double)k->n_lanes * 1e3 / (double)k->cpu_ns);
            all += (double)k->n_lanes;
            all_ns += (double)k->cpu_ns;
        }
    fprintf(stderr, "card: %.1f s, %.1f M instructions of lanes a second\n", all_ns / 1e9,
            all * 1e3 / (all_ns + 1));
}

/* ---- Cards ----------------------------------------------------------------------------------- */

API int cuInit(unsigned flags)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)flags;
    for (int n = 0; n < MAX_CARDS; n++)
        cards[n].number = n;
    pthread_once(&once, decode_prepare);
    card_options_get();
    return SUCCESS;
}

API int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return SUCCESS;
}

API int cuGetErrorName(int code, const char **out)
{
    static const struct {
        int code;
        const char *name;
    } names[] = {
        {SUCCESS, "CUDA_SUCCESS"},
        {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
        {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
        {INVALID_PTX, "CUDA_ERROR_INVALID_PTX"},
        {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
        {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
        {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
        {STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
        {STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
    };
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        if (names[n].code == code) {
            *out = names[n].name;
            return SUCCESS;
        }
    return INVALID_VALUE;
}

API int cuDeviceGetCount(int *out)
{
    *out = (int)card_options_get()->cards;
    return SUCCESS;
}

API int cuDeviceGet(int *out, int index)
{
    if (index < 0 || index >= (int)card_options_get()->cards)
        return INVALID_DEVICE;
    *out = index;
    return SUCCESS;
}

API int cuDeviceGetName(char *out, int size, int device)
{
    (void)device;
    snprintf(out, (size_t)size, "a card of software");
    return SUCCESS;
}

API int cuDeviceGetAttribute(int *out, int attribute, int device)
{
    const card_options *o = card_options_get();
    (void)device;
    switch (attribute) {
    case ATTRIBUTE_N_PROCESSORS:
        *out = (int)o->processors;
        return SUCCESS;
    case ATTRIBUTE_MAJOR:
        *out = (int)o->major;
        return SUCCESS;
    case ATTRIBUTE_MINOR:
        *out = (int)o->minor;
        return SUCCESS;
    case ATTRIBUTE_MAX_SHARED:
        *out = (int)o->shared;
        return SUCCESS;
    default:
        return INVALID_VALUE;
    }
}

API int cuDevicePrimaryCtxRetain(card **out, int device)
{
    *out = &cards[device];
    return SUCCESS;
}

API int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    return SUCCESS;
}

API int cuCtxSetCurrent(card *c)
{
    current = c;
    return SUCCESS;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

API int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    REFUSE_IF_FAILED(current);
    const uint64_t all = card_options_get()->memory;
    *total_bytes = all;
    *free_bytes = all - memory_used(current->number);
    return SUCCESS;
}

API int cuMemAlloc_v2(address *out, size_t n)
{
    REFUSE_IF_FAILED(current);
    if (n == 0)
        return INVALID_VALUE;
    void *p = memory_take(current->number, n, card_options_get()->memory);
    *out = (address)(uintptr_t)p;
    return p ? SUCCESS : OUT_OF_MEMORY;
}

API int cuMemFree_v2(address p)
{
    memory_give((void *)(uintptr_t)p);
    return SUCCESS;
}

API int cuMemHostAlloc(void **out, size_t n, unsigned flags)
{
    (void)flags;
    REFUSE_IF_FAILED(current);
    *out = memory_take(EVERY_CARD, n, 0);
    return *out ? SUCCESS : OUT_OF_MEMORY;
}

API int cuMemFreeHost(void *p)
{
    memory_give(p);
    return SUCCESS;
}

API int cuMemHostGetDevicePointer_v2(address *out, void *p, unsigned flags)
{
    uint64_t from, to;
    (void)flags;
    if (!memory_span(EVERY_CARD, (uintptr_t)p, &from, &to))
        return INVALID_VALUE;
    *out = (address)(uintptr_t)p;
    return SUCCESS;
}

/* ---- Streams and events ---------------------------------------------------------------------- */

API int cuStreamCreate(stream **out, unsigned flags)
{
    (void)flags;
    REFUSE_IF_FAILED(current);
    *out = stream_create(current);
    return *out ? SUCCESS : OUT_OF_MEMORY;
}

API int cuStreamDestroy_v2(stream *s)
{
    stream_free(s);
    return SUCCESS;
}

API int cuStreamSynchronize(stream *s)
{
    if (stream_is_recording(s))
        return STREAM_CAPTURE_UNSUPPORTED;
    stream_wait(s);
    REFUSE_IF_FAILED(stream_card(s));
    return SUCCESS;
}

API int cuEventCreate(event **out, unsigned flags)
{
    (void)flags;
    *out = event_create();
    return *out ? SUCCESS : OUT_OF_MEMORY;
}

API int cuEventDestroy_v2(event *e)
{
    event_free(e);
    return SUCCESS;
}

API int cuEventRecord(event *e, stream *s)
{
    REFUSE_IF_FAILED(stream_card(s));
    if (stream_is_recording(s))
        return STREAM_CAPTURE_UNSUPPORTED;
    event_next(e);
    return stream_add(s, (work_item){.kind = WORK_RECORD, .event = e}) ? SUCCESS : OUT_OF_MEMORY;
}

API int cuStreamWaitEvent(stream *s, event *e, unsigned flags)
{
    (void)flags;
    REFUSE_IF_FAILED(stream_card(s));
    if (stream_is_recording(s))
        return STREAM_CAPTURE_UNSUPPORTED;
    return stream_add(s, (work_item){.kind = WORK_WAIT, .event = e, .ticket = event_last(e)})
               ? SUCCESS
               : OUT_OF_MEMORY;
}

API int cuEventSynchronize(event *e)
{
    event_wait(e);
    if (current)
        REFUSE_IF_FAILED(current);
    return SUCCESS;
}

API int cuEventElapsedTime(float *ms, event *a, event *b)
{
    *ms = (float)((event_ns(b) - event_ns(a)) / 1e6);
    return SUCCESS;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static bool is_inside(const stream *s, address at, size_t n)
{
    uint64_t from, to;
    return n == 0 || (memory_span(stream_card(s)->number, at, &from, &to) && at + n <= to);
}

static bool is_pinned(const void *p, size_t n)
{
    uint64_t from, to;
    return memory_span(EVERY_CARD, (uintptr_t)p, &from, &to) && (uintptr_t)p + n <= to;
}

/* Memory that is not pinned is read before this returns. */
API int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t n, stream *s)
{
    REFUSE_IF_FAILED(stream_card(s));
    if (!is_inside(s, to, n))
        return INVALID_VALUE;
    work_item item = {.kind = WORK_COPY, .to = (void *)(uintptr_t)to, .from = from, .n = n};
    if (!is_pinned(from, n)) {
        item.owned = malloc(n + 1);
        if (!item.owned)
            return OUT_OF_MEMORY;
        memcpy(item.owned, from, n);
        item.from = item.owned;
    }
    return stream_add(s, item) ? SUCCESS : OUT_OF_MEMORY;
}

API int cuMemcpyDtoHAsync_v2(void *to, address from, size_t n, stream *s)
{
    REFUSE_IF_FAILED(stream_card(s));
    if (!is_inside(s, from, n))
        return INVALID_VALUE;
    work_item item = {.kind = WORK_COPY, .to = to, .from = (void *)(uintptr_t)from, .n = n};
    if (!stream_add(s, item))
        return OUT_OF_MEMORY;
    if (!is_pinned(to, n) && !stream_is_recording(s)) {
        stream_wait(s);
        REFUSE_IF_FAILED(stream_card(s));
    }
    return SUCCESS;
}

API int cuMemcpyDtoDAsync_v2(address to, address from, size_t n, stream *s)
{
    REFUSE_IF_FAILED(stream_card(s));
    if (!is_inside(s, to, n) || !is_inside(s, from, n))
        return INVALID_VALUE;
    work_item item = {
        .kind = WORK_COPY, .to = (void *)(uintptr_t)to, .from = (void *)(uintptr_t)from, .n = n};
    return stream_add(s, item) ? SUCCESS : OUT_OF_MEMORY;
}

API int cuMemsetD8Async(address to, unsigned char byte, size_t n, stream *s)
{
    REFUSE_IF_FAILED(stream_card(s));
    if (!is_inside(s, to, n))
        return INVALID_VALUE;
    work_item item = {.kind = WORK_FILL, .to = (void *)(uintptr_t)to, .byte = byte, .n = n};
    return stream_add(s, item) ? SUCCESS : OUT_OF_MEMORY;
}

/* ---- Modules --------------------------------------------------------------------------------- */

static loaded_module *load(const void *image, int *result)
{
    for (int n = 0; n < modules.n; n++)
        if (modules.all[n].image == image)
            return &modules.all[n];
    const card_options *o = card_options_get();
    uint32_t arch;
    char *text = fatbin_ptx(image, o->major * 10 + o->minor, &arch);
    *result = NO_BINARY_FOR_GPU;
    if (!text || modules.n == MAX_MODULES)
        return NULL;
    *result = INVALID_PTX;
    loaded_module m = {.image = image, .module = module_read(text, arch)};
    if (!m.module)
        return NULL;
    m.functions = calloc(module_count(m.module) + 1, sizeof *m.functions);
    if (!m.functions) {
        module_free(m.module);
        return NULL;
    }
    for (uint32_t n = 0; n < module_count(m.module); n++)
        m.functions[n] = (function){.kernel = module_at(m.module, n)};
    modules.all[modules.n] = m;
    return &modules.all[modules.n++];
}

API int cuModuleLoadData(loaded_module **out, const void *image)
{
    int result = SUCCESS;
    REFUSE_IF_FAILED(current);
    pthread_mutex_lock(&modules.lock);
    *out = load(image, &result);
    pthread_mutex_unlock(&modules.lock);
    return *out ? SUCCESS : result;
}

API int cuModuleUnload(loaded_module *m)
{
    (void)m;
    return SUCCESS;
}

API int cuModuleGetFunction(function **out, loaded_module *m, const char *name)
{
    module_kernel *k = module_find(m->module, name);
    for (uint32_t n = 0; k && n < module_count(m->module); n++)
        if (module_at(m->module, n) == k) {
            *out = &m->functions[n];
            return SUCCESS;
        }
    return NOT_FOUND;
}

API int cuModuleGetFunctionCount(unsigned *out, loaded_module *m)
{
    *out = module_count(m->module);
    return SUCCESS;
}

API int cuModuleEnumerateFunctions(function **out, unsigned n, loaded_module *m)
{
    for (unsigned k = 0; k < n && k < module_count(m->module); k++)
        out[k] = &m->functions[k];
    return SUCCESS;
}

/* Kernels are decoded when they are launched: a program launches few of those that it loads. */
API int cuFuncLoad(function *f)
{
    (void)f;
    return SUCCESS;
}

API int cuFuncGetAttribute(int *out, int attribute, function *f)
{
    if (attribute != FUNCTION_COMPILED_FOR)
        return INVALID_VALUE;
    *out = (int)module_kernel_arch(f->kernel);
    return SUCCESS;
}

API int cuFuncSetAttribute(function *f, int attribute, int value)
{
    switch (attribute) {
    case FUNCTION_MAX_SHARED:
        if (value < 0 || (uint32_t)value > card_options_get()->shared)
            return INVALID_VALUE;
        f->max_shared = (uint32_t)value;
        return SUCCESS;
    case FUNCTION_LARGE_CLUSTERS:
        f->large_clusters = value != 0;
        return card_options_get()->major >= 9 ? SUCCESS : INVALID_VALUE;
    case FUNCTION_CARVEOUT:
        return SUCCESS;
    default:
        return INVALID_VALUE;
    }
}

/* ---- Launches -------------------------------------------------------------------------------- */

static bool say(const kernel *k, const char *what, uint64_t n)
{
    fprintf(stderr, "card: %s: %s: %llu\n", k->name, what, (unsigned long long)n);
    return false;
}

static bool can_launch(const function *f, const kernel *k, const work_item *item)
{
    const card_options *o = card_options_get();
    const uint64_t n_threads = (uint64_t)item->block[0] * item->block[1] * item->block[2];
    const uint32_t n_blocks = item->cluster;
    if (n_threads == 0 || n_threads > 1024 || (k->max_threads && n_threads > k->max_threads))
        return say(k, "so many threads a block cannot have", n_threads);
    if (item->grid[0] == 0 || item->grid[1] == 0 || item->grid[2] == 0 ||
        item->grid[0] > INT32_MAX || item->grid[1] > 65535 || item->grid[2] > 65535)
        return say(k, "a grid cannot have so many blocks along y or z, or none",
                   item->grid[1] > item->grid[2] ? item->grid[1] : item->grid[2]);
    const uint32_t all_shared = k->dynamic_begin + item->shared_bytes;
    if (all_shared > o->shared ||
        (item->shared_bytes > f->max_shared && all_shared > DEFAULT_SHARED))
        return say(k, "so much shared memory was not allowed", all_shared);
    if (n_blocks > 1 &&
        (o->major < 9 || n_blocks > (f->large_clusters ? 16 : 8) || item->grid[0] % n_blocks))
        return say(k, "so many blocks a cluster cannot have here", n_blocks);
    return true;
}

API int cuLaunchKernelEx(const launch_config *c, function *f, void **params, void **extra)
{
    (void)extra;
    REFUSE_IF_FAILED(stream_card(c->stream));
    const kernel *k = module_kernel_code(f->kernel);
    if (!k)
        return INVALID_PTX;
    work_item item = {
        .kind = WORK_LAUNCH, .kernel = k, .cluster = 1, .shared_bytes = c->shared_bytes};
    memcpy(item.grid, c->grid, sizeof item.grid);
    memcpy(item.block, c->block, sizeof item.block);
    for (unsigned n = 0; n < c->n_attributes; n++)
        if (c->attributes[n].id == LAUNCH_CLUSTER)
            item.cluster = c->attributes[n].value.cluster[0];
        else if (c->attributes[n].id == LAUNCH_OVERLAPS)
            item.overlaps = c->attributes[n].value.cluster[0] != 0;
    if (!can_launch(f, k, &item))
        return INVALID_VALUE;
    item.owned = aligned_alloc(64, ((size_t)k->param_bytes + 64) / 64 * 64);
    if (!item.owned)
        return OUT_OF_MEMORY;
    for (uint32_t n = 0; n < k->n_params; n++)
        memcpy((uint8_t *)item.owned + k->params[n].offset, params[n], k->params[n].n_bytes);
    return stream_add(c->stream, item) ? SUCCESS : OUT_OF_MEMORY;
}

/* ---- Graphs ---------------------------------------------------------------------------------- */

API int cuStreamBeginCapture_v2(stream *s, int mode)
{
    (void)mode;
    REFUSE_IF_FAILED(stream_card(s));
    if (stream_is_recording(s))
        return INVALID_VALUE;
    stream_record_begin(s);
    return stream_is_recording(s) ? SUCCESS : OUT_OF_MEMORY;
}

API int cuStreamEndCapture(stream *s, graph **out)
{
    *out = stream_record_end(s);
    return *out ? SUCCESS : STREAM_CAPTURE_INVALIDATED;
}

API int cuGraphInstantiateWithFlags(graph **out, graph *g, unsigned long long flags)
{
    (void)flags;
    *out = graph_keep(g);
    return SUCCESS;
}

API int cuGraphUpload(graph *g, stream *s)
{
    (void)g;
    REFUSE_IF_FAILED(stream_card(s));
    return SUCCESS;
}

API int cuGraphLaunch(graph *g, stream *s)
{
    REFUSE_IF_FAILED(stream_card(s));
    return stream_add(s, (work_item){.kind = WORK_GRAPH, .graph = graph_keep(g)}) ? SUCCESS
                                                                                  : OUT_OF_MEMORY;
}

API int cuGraphExecDestroy(graph *g)
{
    graph_drop(g);
    return SUCCESS;
}

API int cuGraphDestroy(graph *g)
{
    graph_drop(g);
    return SUCCESS;
}

API int cuTensorMapEncodeTiled(void *out, int type, uint32_t n_dims, void *at, const uint64_t *dims,
                               const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                               int interleave, int swizzle, int promotion, int fill)
{
    const char *wrong = tensor_map_encode(out, type, n_dims, at, dims, strides, box, steps,
                                          interleave, swizzle, promotion, fill);
    if (wrong)
        fprintf(stderr, "card: a tensor map: %s\n", wrong);
    return wrong ? INVALID_VALUE : SUCCESS;
}
