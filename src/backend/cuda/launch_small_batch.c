/*
 * Products of 2 to 8 tokens on cards whose kernels overlap (small_batch_product.cu): how they are cut, and
 * what makes their slabs.
 *
 * All weights of a step go in one launch, whatever their types. Rows and K are cut so that every
 * processor has one block. Gates are left as sums, and what makes slabs of them multiplies.
 */
#include "base/numbers.h"
#include "backend/cuda/handover.h"
#include "backend/cuda/small_batch_params.h"

enum {
    SHARED_MOST = 216 * 1024, /* the rest is for kernels beside it */
    RING_MOST = 112 * 1024,
    SLOTS_MOST = 64 * 1024,
    LINE = 128,
    PART_COST = 7 * 1024 /* of one part more, as bytes of a block, beside its results */
};

static bool takes_kind(tile_kind kind)
{
    switch (kind) {
    case TILE_Q8_0:
    case TILE_Q8_1:
    case TILE_Q4_0:
    case TILE_Q4_1:
    case TILE_NL4:
    case TILE_FP4:
    case TILE_Q4_K:
    case TILE_Q5_K:
    case TILE_IQ4_XS:
    case TILE_Q6_K:
        return true;
    default:
        return false;
    }
}

uint64_t gpu_slab_bytes(int64_t n_cols)
{
    return (uint64_t)divide_up(n_cols, SMALL_COLS) * SMALL_SLAB_BYTES;
}

static bool is_product(const step *s)
{
    return s->op == OP_MATMUL || s->op == OP_MATMUL_ADD || s->op == OP_MATMUL_GROUP ||
           s->op == OP_MATMUL_GLU;
}

/* Whether a block fits on a processor, and each part of each weight has one. */
static bool has_room(const gpu *g)
{
    return g->can.bulk && g->info.max_shared_bytes >= SHARED_MOST &&
           g->info.n_processors >= SMALL_MAX_WEIGHTS * SMALL_MAX_PARTS &&
           g->info.n_processors <= SMALL_MAX_BLOCKS;
}

bool gpu_product_is_small(const gpu *g, const step *s, int64_t n_rows)
{
    if (!is_product(s) || (s->op == OP_MATMUL_GLU && !gpu_glu_is_fused(s->a.matmul.glu)) ||
        n_rows < 2 || n_rows > SMALL_TOKENS || !has_room(g) || s->in[0].width % 8 != 0 ||
        divide_up(s->in[0].width, SMALL_COLS) > SMALL_WARPS * SMALL_MAX_PARTS)
        return false;
    for (int i = 0; i < s->a.matmul.n_weights; i++)
        if (!takes_kind(tile_kind_of(s->a.matmul.weights[i]->type)) ||
            (s->op == OP_MATMUL_GLU && s->a.matmul.weights[i]->n_rows % 8 != 0))
            return false;
    return true;
}

/* ---- The cut --------------------------------------------------------------------------------- */

static int32_t tile_rows(const small_weight *w)
{
    return divide_up(w->n_rows, TILE_ROWS);
}

/* Blocks that are needed if none has more than `most` bytes of each tile along K. */
static int64_t blocks_for(const small_product *p, int64_t most)
{
    int64_t n = 0;
    for (int i = 0; i < p->n_weights; i++)
        n += divide_up(tile_rows(&p->weights[i]), most / tile_bytes((tile_kind)p->weights[i].kind));
    return n;
}

/* The smallest `most` for which n_blocks are enough. */
static int64_t smallest_share(const small_product *p, int64_t n_blocks)
{
    int64_t all = 0, most = 0;
    for (int i = 0; i < p->n_weights; i++) {
        int32_t bytes = tile_bytes((tile_kind)p->weights[i].kind);
        all += (int64_t)tile_rows(&p->weights[i]) * bytes;
        most = bytes > most ? bytes : most;
    }
    if (most < all / n_blocks)
        most = all / n_blocks;
    while (blocks_for(p, most) > n_blocks) {
        int64_t next = INT64_MAX; /* where one block of some weight can have a row more */
        for (int i = 0; i < p->n_weights; i++) {
            int64_t bytes = tile_bytes((tile_kind)p->weights[i].kind);
            int64_t more = (most / bytes + 1) * bytes;
            next = more < next ? more : next;
        }
        most = next;
    }
    return most;
}

/* Chooses part_tiles and the blocks of weights. Returns the number of parts. */
static int32_t cut_parts(small_product *p, int32_t n_processors, int32_t most_parts)
{
    int64_t best = INT64_MAX, share = 0, results = 0; /* written and read, of one part */
    int32_t n_parts = 0;
    for (int i = 0; i < p->n_weights; i++)
        results += 2 * 4 * SMALL_TOKENS * (int64_t)p->weights[i].n_rows;
    for (int32_t n = 1; n <= SMALL_MAX_PARTS; n++) {
        int32_t tiles = divide_up(p->n_tiles, n), parts = divide_up(p->n_tiles, tiles);
        if (tiles > SMALL_WARPS || n_processors / parts < p->n_weights)
            continue;
        int64_t most = smallest_share(p, n_processors / parts);
        /* Warps that are no multiple of the tiles have nothing to do. */
        double rounds = (double)SMALL_WARPS / (SMALL_WARPS / tiles);
        int64_t cost = (int64_t)(rounds * (double)most) + tiles * SMALL_SLAB_BYTES +
                       parts * (PART_COST + results / n_processors);
        if (n_parts == 0 || (cost < best && parts <= most_parts)) {
            best = cost;
            share = most;
            n_parts = parts;
            p->part_tiles = tiles;
        }
    }
    int32_t at = 0;
    for (int i = 0; i < p->n_weights; i++) {
        small_weight *w = &p->weights[i];
        w->first_block = at;
        w->part_blocks = divide_up(tile_rows(w), share / tile_bytes((tile_kind)w->kind));
        w->blocks_inverse = divide_up(65536, w->part_blocks);
        w->block_rows = tile_rows(w) / w->part_blocks;
        w->n_larger = tile_rows(w) % w->part_blocks;
        at += n_parts * w->part_blocks;
    }
    return n_parts;
}

/* Chooses the rows whose sums meet at once: all of a block, or a power of 2 (small_batch_params.h). */
static void cut_groups(small_product *p)
{
    int32_t rows = 0, slots = p->part_tiles * SMALL_SLOT_BYTES;
    for (int i = 0; i < p->n_weights; i++) {
        int32_t n = p->weights[i].block_rows + (p->weights[i].n_larger > 0);
        rows = n > rows ? n : rows;
    }
    p->n_sharing = SMALL_WARPS / p->part_tiles;
    p->tiles_inverse = divide_up(65536, p->part_tiles);
    p->group_rows = rows;
    p->slot_bytes = rows * slots;
    if (p->slot_bytes > SLOTS_MOST) {
        p->group_rows = 16; /* sharing warps are no more than that */
        while (2 * p->group_rows * slots > SLOTS_MOST && p->group_rows > p->n_sharing)
            p->group_rows /= 2;
        p->slot_bytes = 2 * p->group_rows * slots;
    }
    int32_t left = SHARED_MOST - SMALL_X_AT - p->part_tiles * SMALL_SLAB_BYTES - p->slot_bytes;
    left = left / LINE * LINE;
    p->ring_bytes = left < RING_MOST ? left : RING_MOST;
}

/* ---- Launches -------------------------------------------------------------------------------- */

static uint64_t aligned(uint64_t n)
{
    return round_up(n, 256);
}

static lace_status make_slabs(const gpu_job *j, const small_rows *p, lace_error *err)
{
    uint32_t grid[3] = {(uint32_t)divide_up(p->width, 4 * SMALL_COLS), SMALL_TOKENS, 1};
    return gpu_start(j, "small_slab_rows", grid, 128, 0, p, err);
}

/* Slabs of rows as they are. */
static lace_status slabs_of(const gpu_job *j, const operand *x, int64_t n, uint8_t *slabs,
                            lace_error *err)
{
    small_rows p = {.first = {.parts = (const float *)x->data,
                              .row_stride = (int64_t)(x->stride / 4),
                              .n_parts = 1},
                    .slabs = slabs,
                    .width = (int32_t)x->width,
                    .n_rows = (int32_t)n,
                    .glu = -1};
    return make_slabs(j, &p, err);
}

static batch_sum sum_of(const small_weight *w, const float *bias, int32_t n_parts)
{
    return (batch_sum){.parts = w->out,
                       .bias = bias,
                       .stride = w->part_stride,
                       .row_stride = w->out_stride,
                       .n_parts = n_parts};
}

/* Gates: their sums to rows, and to slabs for the step behind it. */
static lace_status finish_gates(const gpu_job *j, const device_step *d, const small_product *p,
                                int32_t n_parts, uint8_t *spare, lace_error *err)
{
    const step *s = d->first;
    small_rows r = {.first = sum_of(&p->weights[0], s->a.matmul.biases[0], n_parts),
                    .second = sum_of(&p->weights[1], s->a.matmul.biases[1], n_parts),
                    .out = (float *)s->out[0].data,
                    .out_stride = (int64_t)(s->out[0].stride / 4),
                    .slabs = d->leaves == ROWS_SLABS ? j->handover->memory : spare,
                    .width = (int32_t)s->out[0].width,
                    .n_rows = p->n_tokens,
                    .glu = (int32_t)s->a.matmul.glu};
    return make_slabs(j, &r, err);
}

/* What the next step adds up, or a launch of its own. */
static lace_status finish_parts(const gpu_job *j, const device_step *d, const small_product *p,
                                int32_t n_parts, int32_t stride, lace_error *err)
{
    const step *s = d->first;
    batch_finish f = {.parts = p->weights[0].out,
                      .n_weights = p->n_weights,
                      .n_parts = n_parts,
                      .n_tokens = p->n_tokens,
                      .part_stride = stride,
                      .adds = s->op == OP_MATMUL_ADD};
    for (int i = 0, at = 0; i < p->n_weights; i++) {
        f.bias[i] = s->a.matmul.biases[i];
        f.out[i] = (float *)s->out[i].data;
        f.out_stride[i] = (int64_t)(s->out[i].stride / 4);
        f.n_rows[i] = p->weights[i].n_rows;
        f.part_offset[i] = at;
        at += p->weights[i].n_rows;
    }
    if (d->leaves == ROWS_PARTS) {
        j->handover->sums[j->handover->n_sums++] = f;
        return LACE_OK;
    }
    uint32_t rows[3] = {(uint32_t)divide_up(stride, 256), (uint32_t)p->n_tokens, 1};
    return gpu_start(j, "batch_finish_rows", rows, 256, 0, &f, err);
}

/* The weights of a step, cut up among the processors. Returns the number of parts. */
static int32_t cut_product(const gpu *g, const device_step *d, small_product *p, int32_t *stride)
{
    const step *s = d->first;
    *stride = 0; /* rows of all weights */
    for (int i = 0; i < p->n_weights; i++) {
        const weight *w = s->a.matmul.weights[i];
        p->weights[i] = (small_weight){
            .tiles = w->data, .kind = (int32_t)tile_kind_of(w->type), .n_rows = (int32_t)w->n_rows};
        *stride += (int32_t)w->n_rows;
    }
    bool adds_up = s->op == OP_MATMUL_GLU || s->op == OP_MATMUL_ADD || d->leaves == ROWS_PARTS;
    int32_t n_parts = cut_parts(p, g->info.n_processors, adds_up ? SMALL_MAX_PARTS : 1);
    cut_groups(p);
    return n_parts;
}

/* Results go to their rows, or to `parts`, where they are still to be added up. */
static void place_results(const step *s, small_product *p, float *parts, int32_t stride)
{
    for (int i = 0, row = 0; i < p->n_weights; i++) {
        small_weight *w = &p->weights[i];
        w->out = parts ? parts + row : (float *)s->out[i].data;
        w->out_stride = parts ? stride : (int32_t)(s->out[i].stride / 4);
        w->part_stride = (int64_t)p->n_tokens * stride;
        w->bias = parts ? NULL : s->a.matmul.biases[i];
        row += w->n_rows;
    }
    p->adds = s->op == OP_MATMUL_ADD && !parts;
}

lace_status gpu_launch_small_batch(const gpu_job *j, const device_step *d, lace_error *err)
{
    const step *s = d->first;
    int64_t n = gpu_rows_of(j, s);
    bool is_glu = s->op == OP_MATMUL_GLU;
    uint8_t *at = j->scratch, *x = at;
    small_product p = {.n_weights = s->a.matmul.n_weights,
                       .n_tiles = divide_up(s->in[0].width, SMALL_COLS),
                       .n_tokens = (int32_t)n,
                       .scale = s->a.matmul.scale};
    if (d->takes == ROWS_SLABS) {
        x = j->handover->memory;
    } else {
        at += aligned(gpu_slab_bytes(s->in[0].width));
        TRY(slabs_of(j, &s->in[0], n, x, err));
    }
    p.x = x;
    int32_t stride, n_parts = cut_product(j->g, d, &p, &stride);
    bool has_sums = n_parts > 1 || is_glu;
    place_results(s, &p, has_sums ? (float *)at : NULL, stride);
    const small_weight *last = &p.weights[p.n_weights - 1];
    uint32_t grid[3] = {(uint32_t)(last->first_block + n_parts * last->part_blocks), 1, 1};
    uint32_t bytes =
        (uint32_t)(SMALL_X_AT + p.part_tiles * SMALL_SLAB_BYTES + p.slot_bytes + p.ring_bytes);
    const char *kernel = n <= SMALL_TOKENS / 2 ? "small_product_4" : "small_product_8";
    TRY(gpu_start(j, kernel, grid, SMALL_THREADS, bytes, &p, err));
    at += aligned(4 * (uint64_t)n_parts * (uint64_t)n * (uint64_t)stride);
    if (is_glu)
        return finish_gates(j, d, &p, n_parts, at, err);
    return has_sums ? finish_parts(j, d, &p, n_parts, stride, err) : LACE_OK;
}

uint64_t gpu_small_batch_scratch_bytes(const step *s)
{
    uint64_t rows = 0;
    for (int i = 0; i < s->a.matmul.n_weights; i++)
        rows += (uint64_t)s->a.matmul.weights[i]->n_rows;
    uint64_t out = s->op == OP_MATMUL_GLU ? gpu_slab_bytes(s->out[0].width) : 0;
    return aligned(gpu_slab_bytes(s->in[0].width)) + aligned(out) +
           aligned(4 * SMALL_MAX_PARTS * SMALL_TOKENS * rows);
}
