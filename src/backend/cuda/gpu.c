/* A card with its kernels loaded, and the sizes of what lies on it. */
#include "backend/cuda/gpu.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Fat binaries, ended by NULL; the Makefile makes the table. */
extern const void *const gpu_images[];

bool gpu_is_built(void)
{
    return gpu_images[0] != NULL;
}

gpu_abilities gpu_abilities_of(int compiled_for)
{
    return (gpu_abilities){.overlaps = compiled_for >= 90,
                           .bulk = compiled_for >= 90,
                           .wgmma = compiled_for == 90,
                           .rounds = compiled_for != 90,
                           /* More than 8 are not for all cards; that Hopper has 16 was seen. */
                           .most_cluster = compiled_for < 90    ? 1
                                           : compiled_for == 90 ? 16
                                                                : 8};
}

lace_status gpu_pretend(const char *text, cuda_info *info, lace_error *err)
{
    int major, minor, n_processors, shared_bytes, end = 0;
    if (sscanf(text, "%d.%d,%d,%d%n", &major, &minor, &n_processors, &shared_bytes, &end) != 4 ||
        text[end] || n_processors < 1 || shared_bytes < 48 * 1024)
        return error_set(err, LACE_E_ARG,
                         "LACE_CUDA_PRETEND is %s, expected one like 8.6,28,101376", text);
    if (10 * major + minor > 10 * info->major + info->minor || n_processors > info->n_processors ||
        shared_bytes > info->max_shared_bytes)
        return error_set(err, LACE_E_ARG,
                         "LACE_CUDA_PRETEND is %s, but %s has compute capability %d.%d, %d "
                         "processors and %d bytes",
                         text, info->name, info->major, info->minor, info->n_processors,
                         info->max_shared_bytes);
    info->major = major;
    info->minor = minor;
    info->n_processors = n_processors;
    info->max_shared_bytes = shared_bytes;
    return LACE_OK;
}

/* The driver takes of each image the kernels that suit the card best: which ones? */
static lace_status find_abilities(gpu *g, lace_error *err)
{
    cuda_kernel *any;
    int compiled_for;
    TRY(gpu_find(g, "fill_tokens", &any, err));
    TRY(cuda_kernel_compiled_for(any, &compiled_for, err));
    if (compiled_for > 10 * g->info.major + g->info.minor)
        return error_set(
            err, LACE_E_DEVICE,
            "kernels for compute capability %d.%d are loaded, where %d.%d is pretended: "
            "set CUDA_FORCE_PTX_JIT=1",
            compiled_for / 10, compiled_for % 10, g->info.major, g->info.minor);
    g->can = gpu_abilities_of(compiled_for);
    return LACE_OK;
}

lace_status gpu_open(int index, gpu **out, lace_error *err)
{
    *out = NULL;
    if (!gpu_is_built())
        return error_set(
            err, LACE_E_DEVICE,
            "this lace was built without CUDA: build it where nvcc is, or use --device "
            "vulkan or cpu");
    gpu *g = mem_calloc(1, sizeof *g);
    if (!g)
        return error_nomem(err, "a GPU");
    pthread_mutex_init(&g->kernels_lock, NULL);
    lace_status status;
    TRY_GOTO(status, done, cuda_open(index, &g->device, err));
    TRY_GOTO(status, done, cuda_describe(g->device, &g->info, err));
    const char *pretended = getenv("LACE_CUDA_PRETEND");
    if (pretended)
        TRY_GOTO(status, done, gpu_pretend(pretended, &g->info, err));
    if (g->info.major < 8) {
        status = error_set(err, LACE_E_DEVICE,
                           "GPU %d, %s, has compute capability %d.%d, expected 8.0 or above", index,
                           g->info.name, g->info.major, g->info.minor);
        goto done;
    }
    for (int i = 0; gpu_images[i]; i++) {
        assert(i < GPU_MAX_MODULES);
        TRY_GOTO(status, done, cuda_module_load(g->device, gpu_images[i], &g->modules[i], err));
        g->n_modules++;
    }
    status = find_abilities(g, err);
done:
    return GIVE_OR_FREE(status, g, out, gpu_close);
}

void gpu_close(gpu *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->n_modules; i++)
        cuda_module_free(g->modules[i]);
    cuda_close(g->device);
    pthread_mutex_destroy(&g->kernels_lock);
    mem_free(g);
}

lace_status gpu_find(gpu *g, const char *name, cuda_kernel **out, lace_error *err)
{
    *out = NULL;
    for (int i = 0; i < g->n_modules && !*out; i++)
        *out = cuda_module_find(g->modules[i], name);
    return *out ? LACE_OK : error_set(err, LACE_E_DEVICE, "there is no GPU kernel %s", name);
}

static uint32_t hash_name(const char *name)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return h;
}

static lace_status prepare(gpu *g, const char *name, uint32_t shared_bytes, cuda_kernel **out,
                           lace_error *err)
{
    uint32_t at = hash_name(name) % GPU_MAX_KERNELS;
    while (g->kernels[at].name && strcmp(g->kernels[at].name, name) != 0)
        at = (at + 1) % GPU_MAX_KERNELS; /* there are fewer kernels than places */
    gpu_kernel *k = &g->kernels[at];
    if (!k->name) {
        TRY(gpu_find(g, name, &k->kernel, err));
        k->name = name;
        k->shared_bytes = 48 * 1024; /* without asking */
    }
    if (shared_bytes > k->shared_bytes) {
        TRY(cuda_kernel_allow(k->kernel, shared_bytes, false, err));
        k->shared_bytes = shared_bytes;
    }
    *out = k->kernel;
    return LACE_OK;
}

lace_status gpu_prepare(gpu *g, const char *name, uint32_t shared_bytes, cuda_kernel **out,
                        lace_error *err)
{
    *out = NULL;
    pthread_mutex_lock(&g->kernels_lock);
    lace_status status = prepare(g, name, shared_bytes, out, err);
    pthread_mutex_unlock(&g->kernels_lock);
    return status;
}

/* ---- Sizes ----------------------------------------------------------------------------------- */

static const struct {
    int32_t n_bytes, n_cols;
} kinds[TILE_COUNT] = {
#define X(id, name, n_bytes, n_cols) [TILE_##id] = {n_bytes, n_cols},
    TILE_LIST(X)
#undef X
};

tile_kind tile_kind_of(dtype type)
{
    switch (type) {
    case DTYPE_F32:
        return TILE_F32;
    case DTYPE_BF16:
        return TILE_BF16;
    case DTYPE_Q8_0:
    case DTYPE_Q5_0:
    case DTYPE_M8: /* with its zeros: values are bytes */
        return TILE_Q8_0;
    case DTYPE_M4:
        return TILE_M4;
    case DTYPE_N24:
        return TILE_N24;
    case DTYPE_Q5_1:
        return TILE_Q8_1;
    case DTYPE_Q4_0:
        return TILE_Q4_0;
    case DTYPE_Q4_1:
        return TILE_Q4_1;
    case DTYPE_IQ4_NL:
        return TILE_NL4;
    case DTYPE_MXFP4:
        return TILE_FP4;
    case DTYPE_Q2_K:
        return TILE_Q2_K;
    case DTYPE_Q4_K:
        return TILE_Q4_K;
    case DTYPE_Q5_K:
        return TILE_Q5_K;
    case DTYPE_IQ4_XS:
        return TILE_IQ4_XS;
    case DTYPE_Q6_K:
    case DTYPE_Q3_K:
        return TILE_Q6_K;
    case DTYPE_S3:
        return TILE_S3;
    case DTYPE_S4:
        return TILE_S4;
    case DTYPE_S2:
    case DTYPE_S5:
    case DTYPE_S6:
    case DTYPE_S8:
        return TILE_S8;
    default:
        return TILE_F16;
    }
}

int32_t tile_cols(tile_kind kind)
{
    return kinds[kind].n_cols;
}

int32_t tile_bytes(tile_kind kind)
{
    return kinds[kind].n_bytes;
}

gpu_act tile_kind_act(tile_kind kind)
{
    return kind == TILE_F32                      ? GPU_ACT_F32
           : kind == TILE_F16                    ? GPU_ACT_F16
           : kind == TILE_BF16                   ? GPU_ACT_BF16
           : tile_is_rotated(kind)               ? GPU_ACT_ROTATED
           : kind == TILE_N24 || kind == TILE_M4 ? GPU_ACT_FLOATS
                                                 : GPU_ACT_INT;
}

bool tile_is_rotated(tile_kind kind)
{
    return kind == TILE_S3 || kind == TILE_S4 || kind == TILE_S8;
}

gpu_act tile_block_act(tile_kind kind)
{
    gpu_act act = tile_kind_act(kind);
    return act == GPU_ACT_ROTATED || act == GPU_ACT_FLOATS ? GPU_ACT_INT : act;
}

uint64_t tile_matrix_bytes(tile_kind kind, int64_t n_rows, int64_t n_cols)
{
    if (kind == TILE_F32)
        return 4 * (uint64_t)n_rows * (uint64_t)n_cols;
    uint64_t down = (uint64_t)(n_rows + TILE_ROWS - 1) / TILE_ROWS;
    uint64_t across = (uint64_t)(n_cols + tile_cols(kind) - 1) / (uint64_t)tile_cols(kind);
    return down * across * (uint64_t)tile_bytes(kind);
}

uint64_t gpu_act_bytes(gpu_act act, int64_t n_cols)
{
    if (act == GPU_ACT_F32)
        return 4 * (uint64_t)n_cols;
    uint64_t k = (uint64_t)(n_cols + GPU_K_ALIGN - 1) / GPU_K_ALIGN * GPU_K_ALIGN;
    if (act == GPU_ACT_ROTATED || act == GPU_ACT_FLOATS)
        return 4 * k;
    return (act == GPU_ACT_INT ? 2 : 4) * k + k / GPU_GROUP * 8;
}
