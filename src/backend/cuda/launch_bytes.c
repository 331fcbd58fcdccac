/*
 * Products of prompts in int8 (lace_model_options.fast_prompts): rows become bytes, 256 columns at a
 * time (batch_bytes.cu), and go through matmul_bytes_*. Single tokens and small batches are multiplied
 * as ever, and so are the logits.
 */
#include <stdlib.h>

#include "base/numbers.h"
#include "backend/cuda/bytes_params.h"
#include "backend/cuda/handover.h"
#include "backend/cuda/launch_bytes.h"

enum {
    /* Of fewer rows f16 products are as fast: a block is not filled. */
    BYTES_ROWS = 128,
    BYTES_WARPS = 8, /* of batch_bytes_rows */
    N_WIDTHS = 2
};

static const int32_t widths[N_WIDTHS] = {128, 256}; /* tokens of a block */
enum { OLD_WIDTH = 64 };                            /* without wgmma */

/* By name, and NULL where there is no kernel. */
static const char *const names[TILE_COUNT][N_WIDTHS + 1] = {
#define X(id)                                                                                      \
    [TILE_##                                                                                       \
        id] = {"matmul_bytes_" #id "_128", "matmul_bytes_" #id "_256", "matmul_bytes_" #id "_64"},
    LAUNCH_BYTES_KINDS(X)
#undef X
};

/* As matmul_bytes.cuh counts it. */
static uint32_t shared_bytes(const gpu *g, tile_kind kind, int n)
{
    int bytes = tile_bytes(kind), glu = GROUP_ROWS * (n + 1) * 4, all;
    if (g->can.wgmma) {
        int stride = bytes % 128 ? (bytes + 96 + 127) / 128 * 128 : bytes;
        int tile_stages = bytes > 3000 ? 2 : 3;
        int tiles = 8 * tile_stages * stride, stages = (227 * 1024 - 1024 - tiles) / (n * 264);
        stages = stages < 5 ? stages : 5;
        all = tiles + stages * (n * 264 + 16) + 8 * 8 * tile_stages;
    } else {
        all = 2 * n * 264 + 8 * 2 * bytes;
    }
    return (uint32_t)(all > glu ? all : glu);
}

bool gpu_product_is_bytes(const gpu *g, const step *s, int i, int64_t n_rows)
{
    tile_kind kind = tile_kind_of(s->a.matmul.weights[i]->type);
    return g->fast_prompts && n_rows > BYTES_ROWS && s->layer >= 0 && names[kind][0] &&
           (g->can.wgmma || shared_bytes(g, kind, OLD_WIDTH) <= (uint32_t)g->info.max_shared_bytes);
}

int32_t bytes_far(dtype type)
{
    return type == DTYPE_Q5_0 ? 16 : type == DTYPE_Q3_K ? 4 : type == DTYPE_Q6_K ? 32 : 128;
}

batch_kernel bytes_kernel_for(const gpu *g, const batch_matmul *p, tile_kind kind)
{
    batch_kernel k = {.n_groups = 2, .n_sharing = 1};
    if (!g->can.wgmma) {
        k.n_tokens = OLD_WIDTH;
        k.name = names[kind][N_WIDTHS];
    } else {
        /* Tests may set LACE_INT8_TILE=256 to try blocks of 256 tokens, which Q4_K and Q6_K have.
         * TODO: when both have been timed on an H200, keep the faster one. */
        const char *wanted = getenv("LACE_INT8_TILE");
        int i = wanted && atoi(wanted) == 256 && (kind == TILE_Q4_K || kind == TILE_Q6_K);
        k.n_tokens = widths[i];
        k.name = names[kind][i];
    }
    k.shared_bytes = shared_bytes(g, kind, k.n_tokens);
    return k;
}

lace_status bytes_make(const gpu_job *j, const operand *x, const int32_t *map, int64_t n_rows,
                       tile_kind kind, pile *scratch, atoms *out, lace_error *err)
{
    uint32_t n_k256 = (uint32_t)divide_up(x->width, 256);
    uint32_t n = (uint32_t)round_up((uint64_t)n_rows, 8);
    out->x = pile_take(scratch, (uint64_t)n * n_k256 * 256);
    out->units = pile_take(scratch, 8 * (uint64_t)n * n_k256);
    out->scales = pile_take(scratch, 4 * (uint64_t)n_rows);
    batch_bytes p = {.x = (const float *)x->data,
                     .map = map,
                     .out = out->x,
                     .units = out->units,
                     .ones = out->scales,
                     .x_stride = (int64_t)(x->stride / 4),
                     .width = (int32_t)x->width,
                     .n_rows = (int32_t)n_rows,
                     .rotates = tile_is_rotated(kind)};
    uint32_t grid[3] = {n / BYTES_WARPS, n_k256, 1};
    return gpu_start(j, "batch_bytes_rows", grid, 32 * BYTES_WARPS, 0, &p, err);
}
