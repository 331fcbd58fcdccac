/*
 * Kernels of a GPU: how a step of a plan becomes launches.
 *
 * A plan for a GPU is built like any other, with a kernel table whose matrices want f32 activations
 * (so there are no quantize steps) and lie in tiles on the card (gpu_tiles.h). Its values, its KV
 * pages and its vectors are on the card too; steps hold addresses of the card. The plan is lowered to
 * lists of device steps (lower.h), which say how each step is launched.
 *
 * There are three ways, from general to fast:
 *
 *   1. launch_steps.c: every operation, any number of rows, f32 activations: all architectures run.
 *   2. launch_products.c, launch_experts.c, launch_attend.c, launch_between.c and, for up to 8 rows,
 *      launch_small_batch.c: many rows, that is prefill and several sequences.
 *   3. decode_*.cu: one token of one sequence; fused kernels for layers of known forms, and products
 *      with what is around them in layers of all others.
 */
#ifndef LACE_BACKEND_CUDA_GPU_H
#define LACE_BACKEND_CUDA_GPU_H

#include <pthread.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/gpu_tiles.h"
#include "backend/cpu/kernels.h"

/* ---- The card and its kernels ---------------------------------------------------------------- */

enum { GPU_MAX_MODULES = 48, GPU_MAX_GROUPS = 8, GPU_MAX_KERNELS = 512 };

/* Products end in gates of the kinds up to this one; others are steps of their own. */
#define GPU_LAST_FUSED_GLU GLU_CLAMPED

static inline bool gpu_glu_is_fused(glu_kind kind)
{
    return kind <= GPU_LAST_FUSED_GLU;
}

/* A kernel that has been asked for. */
typedef struct gpu_kernel {
    const char *name; /* NULL: a free place */
    cuda_kernel *kernel;
    uint32_t shared_bytes; /* that its blocks may ask for */
} gpu_kernel;

/* What the kernels that were loaded are written with; whoever launches them asks for nothing else. */
typedef struct gpu_abilities {
    bool overlaps; /* dependent launch: a kernel begins while the one in front of it ends */
    bool bulk;   /* rings are filled by bulk copies, which barriers in shared memory count; else by
                    * the threads' own copies */
    bool wgmma;  /* products of batches by whole warpgroups */
    bool rounds; /* products of one token add up some rows at a time, with little shared memory */
    int32_t most_cluster; /* blocks of a cluster; 1: there are none */
} gpu_abilities;

typedef struct gpu {
    cuda_device *device;
    cuda_info info;
    gpu_abilities can;
    bool
        fast_prompts; /* products of prompts in int8 (launch_bytes.c): what the model was opened with */
    cuda_module *modules[GPU_MAX_MODULES];
    int n_modules;
    void *tables;           /* on the card: what kernels look up (grids are decoded at load) */
    struct card_link *link; /* with cards of other ranks (card_link.h); NULL: none. The device's */
    pthread_mutex_t kernels_lock;
    gpu_kernel kernels[GPU_MAX_KERNELS]; /* by a hash of the name */
} gpu;

/* False if this program was built without kernels for GPUs. */
bool gpu_is_built(void);

/*
 * Tests may set LACE_CUDA_PRETEND=8.6,28,101376 to see how a card with that compute capability, so
 * many processors and so many bytes of shared memory for a block is used, on a card that has more.
 * Kernels of that capability must be loaded there: docs/adding-a-kernel.md says how.
 */
lace_status gpu_open(int index, gpu **out, lace_error *err);

/* Makes `info` that of a lesser card, as a text like the above says. LACE_E_ARG if it says something
 * else, or more than the card has. */
lace_status gpu_pretend(const char *text, cuda_info *info, lace_error *err);

/* Of kernels that were compiled for a compute capability: 80 is 8.0. */
gpu_abilities gpu_abilities_of(int compiled_for);
void gpu_close(gpu *g);

/* LACE_E_DEVICE if there is none of that name, which is a mistake in the build. */
lace_status gpu_find(gpu *g, const char *name, cuda_kernel **out, lace_error *err);

/* The same for launches, which are many: remembered, and allowed to use so much shared memory. The
 * name must stay where it is. */
lace_status gpu_prepare(gpu *g, const char *name, uint32_t shared_bytes, cuda_kernel **out,
                        lace_error *err);

/* ---- Weights --------------------------------------------------------------------------------- */

tile_kind tile_kind_of(dtype type);
gpu_act tile_kind_act(tile_kind kind);
bool tile_is_rotated(tile_kind kind);
gpu_act tile_block_act(tile_kind kind); /* the same where single steps are launched: no FLOATS */
int32_t tile_cols(tile_kind kind);
int32_t tile_bytes(tile_kind kind);

/* The whole matrix on the card. */
uint64_t tile_matrix_bytes(tile_kind kind, int64_t n_rows, int64_t n_cols);

/* One row of activations for a kind of weights, in bytes. */
uint64_t gpu_act_bytes(gpu_act act, int64_t n_cols);

/* Uploads matrices through pinned memory and puts them into tiles on the card. */
typedef struct gpu_uploader gpu_uploader;

lace_status gpu_uploader_create(gpu *g, gpu_uploader **out, lace_error *err);
void gpu_uploader_free(gpu_uploader *u); /* waits; NULL is fine */

/*
 * `blocks`: n_rows rows of the file, of the type `type`. `kept`: the type whose tiles they become,
 * the same but for matrices that gpu_kept_as gives another. `out`: tile_matrix_bytes on the card.
 */
lace_status gpu_upload_matrix(gpu_uploader *u, dtype type, dtype kept, const uint8_t *blocks,
                              int64_t n_rows, int64_t n_cols, void *out, lace_error *err);

/* The type that stands for a matrix on a card: its own, but M8 for an M4 that tiles cannot hold. */
dtype gpu_kept_as(dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols);

/*
 * Panels [first, first + n) of 16 rows of an N24 or M4 matrix (tensor/sparse.h) as tiles: the host
 * does it, as panels have no fixed place for a row.
 */
void gpu_pack_n24(const uint8_t *where, int64_t first, int64_t n, int64_t n_cols, uint8_t *tiles);
void gpu_pack_m4(const uint8_t *where, int64_t first, int64_t n, int64_t n_cols, uint8_t *tiles);

/* Whether no value of n panels is the level that stands for zero in tiles. */
bool gpu_holds_m4(const uint8_t *where, int64_t n, int64_t n_cols);

/* Bytes as they are. */
lace_status gpu_upload_bytes(gpu_uploader *u, const void *bytes, uint64_t n, void *out,
                             lace_error *err);

/* What the embedding table is kept as: the file's own blocks, or F16 for types that the card does
 * not decode. */
dtype gpu_embedding_type(dtype type);
lace_status gpu_upload_embedding(gpu_uploader *u, dtype type, const uint8_t *blocks, int64_t n_rows,
                                 int64_t n_cols, void *out, lace_error *err);

lace_status gpu_uploader_wait(gpu_uploader *u, lace_error *err);

/* Where its copies are done. */
cuda_queue *gpu_uploader_queue(gpu_uploader *u);

/* ---- Batches --------------------------------------------------------------------------------- */

/* A batch, as kernels see it: arrays on the card. */
typedef struct gpu_batch {
    int32_t n_tokens, n_outputs;
    const int32_t *tokens;          /* [n_tokens] */
    const int32_t *positions;       /* [n_tokens] */
    const int32_t *segments, *seen; /* [n_tokens], or NULL */
    const int32_t *outputs;         /* [n_outputs] */
    const float *given; /* [n_tokens, given_width] rows that tokens bring along, or NULL */
    int64_t given_width;
    const int32_t *axes; /* [n_axes, n_tokens], or NULL */
    int32_t n_axes;
    const float *scales; /* [n_sequences, n_adapters] how much of each adapter, or NULL */
    int32_t n_adapters;
    const int32_t *turn;      /* [1] how far rotation is from the one token's position, or NULL */
    const int32_t *sequences; /* [n_tokens] rows of the page tables */
    const int32_t *tables[GPU_MAX_GROUPS]; /* [n_sequences, pages_per_sequence] page numbers */
    int32_t pages_per_sequence;
    const batch *host; /* the same on the host; pages[g][t] are equal for tokens of one sequence */
    const int32_t *host_sequences; /* [n_tokens] */
} gpu_batch;

/* Whether the card has a kernel for the operation. */
bool gpu_has_kernel(op o);

/* ---- Launching ------------------------------------------------------------------------------- */

typedef struct gpu_job {
    gpu *g;
    cuda_queue *queue;
    const gpu_batch *batch;
    uint8_t *scratch; /* on the card, for the launcher of a step alone; gpu_step_scratch_bytes */
    uint64_t scratch_bytes;
    struct gpu_handover *handover; /* what one step leaves for the next; NULL: nothing */
    bool is_exact;   /* the model's weights are floats, so nothing else may be rounded much */
    int32_t cluster; /* fused attention: log2 of the blocks that share a head's context, at most */
} gpu_job;

/* A step by the general kernels. */
lace_status gpu_launch_general(const gpu_job *j, const step *s, lace_error *err);

/* The parameters of attention and rotation, without their kind of launch. */
struct gpu_attend gpu_attend_of(const gpu_job *j, const step *s);
struct gpu_rope gpu_rope_of(const gpu_job *j, const step *s);

/* Scratch that a step's launchers need, for up to n_rows rows and contexts of n_context. */
uint64_t gpu_step_scratch_bytes(const gpu *g, const step *s, int64_t n_rows, int64_t n_context);

/* Starts a kernel by name with one struct of parameters. The kernel waits for the one before it by
 * itself (wait_previous of batch_common.cuh). */
lace_status gpu_start(const gpu_job *j, const char *name, const uint32_t grid[3], uint32_t threads,
                      uint32_t shared_bytes, const void *params, lace_error *err);

/* The same in clusters of so many blocks, along x. */
lace_status gpu_start_clusters(const gpu_job *j, const char *name, const uint32_t grid[3],
                               uint32_t cluster, uint32_t threads, uint32_t shared_bytes,
                               const void *params, lace_error *err);

#endif
