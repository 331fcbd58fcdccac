/*
 * Products of prompts in int8 (lace_model_options.fast_prompts): rows become bytes, 256 columns at a
 * time (batch_bytes.cu), and go through matmul_bytes_*. Single tokens and small batches are multiplied
 * as ever, and so are the logits.
 */
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "backend/cuda/bytes_params.h"
#include "backend/cuda/handover.h"
#include "backend/cuda/launch_bytes.h"

enum {
    /* Of fewer rows f16 products are as fast: a block is not filled. Since weights are unpacked apart, which
     * takes as long for few rows as for many, it may be twice as many: no card has timed that. */
    BYTES_ROWS = 128,
    BYTES_WARPS = 8, /* of batch_bytes_rows */
    N_WIDTHS = 2
};

static const int32_t widths[N_WIDTHS] = {128, 256}; /* tokens of a block */
/* Alone, or two with the same tokens that share what they bring. */
static const char *const wide_names[2][N_WIDTHS] = {
    {"matmul_bytes_groups_128", "matmul_bytes_groups_256"},
    {"matmul_bytes_pairs_128", "matmul_bytes_pairs_256"}};
enum { OLD_WIDTH = 64 }; /* without wgmma */

/* By kind, and NULL where there is no kernel: what makes atoms of weights, or, without wgmma, the
 * product. */
static const char *const names[TILE_COUNT][2] = {
#define X(id) [TILE_##id] = {"bytes_weights_" #id, "matmul_bytes_" #id "_64"},
    LAUNCH_BYTES_KINDS(X)
#undef X
};

/* As matmul_bytes.cuh counts it, and what gates need to meet. */
static uint32_t shared_bytes(const gpu *g, tile_kind kind)
{
    int all = 2 * OLD_WIDTH * 264 + 8 * 2 * tile_bytes(kind);
    int glu = GROUP_ROWS * (OLD_WIDTH + 1) * 4;
    return g->can.wgmma ? BYTES_SHARED : (uint32_t)(all > glu ? all : glu);
}

bool gpu_product_is_bytes(const gpu *g, const step *s, int i, int64_t n_rows)
{
    tile_kind kind = tile_kind_of(s->a.matmul.weights[i]->type);
    return g->fast_prompts && n_rows > BYTES_ROWS && s->layer >= 0 && names[kind][0] &&
           shared_bytes(g, kind) <= (uint32_t)g->info.max_shared_bytes;
}

int32_t bytes_far(dtype type)
{
    return type == DTYPE_Q5_0 ? 16 : type == DTYPE_Q3_K ? 4 : type == DTYPE_Q6_K ? 32 : 128;
}

/*
 * Blocks of 256 tokens are taken to be a tenth sooner done than two of 128, as weights are read once for
 * all of them: a guess, which no card has timed.
 * Of products that leave processors idle K is cut, unless they are gates.
 */
static int width_for(const gpu *g, const batch_matmul *p, int64_t n_blocks)
{
    static const int64_t each[N_WIDTHS] = {10, 18};
    int64_t n = g->info.n_processors, time[N_WIDTHS];
    for (int i = 0; i < N_WIDTHS; i++) {
        int64_t all = n_blocks * divide_up(p->n_tokens, widths[i]);
        time[i] = each[i] * (all < n && p->mode != BATCH_GLU ? all : n * divide_up(all, n));
    }
    return time[1] <= time[0];
}

/* Measurements set LACE_BYTES_BLOCKS to 128 or 256 (tokens of a block), alone, or both with a comma. */
static bool is_wished(const char *what)
{
    const char *wish = getenv("LACE_BYTES_BLOCKS");
    return wish && strstr(wish, what);
}

/*
 * Pairs take a third less from L2, which by its bytes is what decides how long a product takes (docs/journal,
 * 2026-11-19): no card has timed that, either.
 */
static uint32_t blocks_of_cluster(const gpu *g, int64_t n_blocks)
{
    return n_blocks % 2 == 0 && g->can.most_cluster > 1 && !is_wished("alone") ? 2 : 1;
}

batch_kernel bytes_kernel_for(const gpu *g, const batch_matmul *p, tile_kind kind, int64_t n_blocks)
{
    batch_kernel k = {.n_groups = 2, .n_sharing = 1, .shared_bytes = shared_bytes(g, kind)};
    if (!g->can.wgmma) {
        k.n_tokens = OLD_WIDTH;
        k.name = names[kind][1];
        return k;
    }
    int i = is_wished("128") ? 0 : is_wished("256") ? 1 : width_for(g, p, n_blocks);
    k.n_helping = 1;
    k.n_tokens = widths[i];
    k.cluster = blocks_of_cluster(g, n_blocks);
    k.name = wide_names[k.cluster - 1][i];
    return k;
}

/* Bytes of atoms and units of so many blocks of rows. */
static uint64_t weight_bytes(int64_t n_blocks, int64_t n_tiles)
{
    return (uint64_t)(n_blocks * n_tiles) * (BYTES_WEIGHTS + 4 * BYTES_BLOCK_ROWS) + 512;
}

uint64_t bytes_scratch(const gpu *g, const step *s, int64_t n_rows)
{
    int64_t n_blocks = 0;
    for (int i = 0; i < s->a.matmul.n_weights; i++)
        if (g->can.wgmma && gpu_product_is_bytes(g, s, i, n_rows))
            n_blocks += divide_up(s->a.matmul.weights[i]->n_rows, BYTES_BLOCK_ROWS) + 1;
    return n_blocks ? weight_bytes(n_blocks, divide_up(s->in[0].width, 256)) + 3 * 256 : 0;
}

lace_status bytes_weights(const gpu_job *j, bytes_matmul *b, tile_kind kind, int64_t n_blocks,
                          pile *scratch, lace_error *err)
{
    if (!j->g->can.wgmma)
        return LACE_OK;
    uint64_t n = (uint64_t)(n_blocks * b->m.n_tiles);
    b->weight_atoms = pile_take(scratch, n * BYTES_WEIGHTS);
    b->weight_units = pile_take(scratch, n * 4 * BYTES_BLOCK_ROWS);
    uint32_t grid[3] = {(uint32_t)b->m.n_tiles, (uint32_t)n_blocks, 1};
    return gpu_start(j, names[kind][0], grid, 2 * BYTES_BLOCK_ROWS, 0, b, err);
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
