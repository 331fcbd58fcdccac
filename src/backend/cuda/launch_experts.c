/*
 * Experts of batches: tokens are grouped by expert first, and only chosen experts are read.
 */
#include "base/numbers.h"
#include "backend/cuda/handover.h"
#include "backend/cuda/launch_products.h"

enum {
    SORT_NUMBERS = 8192, /* counts of the sort's warps, in shared memory */
    SORT_WARPS = 32,
    MAX_PARTS = 8,
    PART_ROWS = 72 * 2 * GROUP_ROWS /* slots times rows of a block, where K is cut: cut_of */
};

/* How the products of a step are cut. */
typedef struct cut {
    batch_kernel kernel;
    int32_t n_tiles;  /* of tokens, at most */
    int32_t n_blocks; /* of rows */
    int32_t n_parts;  /* of K */
} cut;

/* Experts that have any tokens, at most. */
static int64_t max_used(const step *s, int64_t n_tokens)
{
    return min_i64(n_tokens * s->a.moe.n_used, s->a.moe.n_experts);
}

static int64_t max_slots(const step *s, int64_t n_tokens)
{
    int64_t n_items = n_tokens * s->a.moe.n_used;
    return (int64_t)round_up((uint64_t)(n_items + 7 * max_used(s, n_tokens)), 8);
}

bool gpu_experts_are_batched(const step *s, int64_t n_tokens)
{
    bool is_glu = s->op == OP_MOE_GLU;
    if (is_glu && (!s->a.moe.gate || s->a.moe.weighs_inputs || !gpu_glu_is_fused(s->a.moe.glu)))
        return false; /* the kernel multiplies with pairs, and does not weigh what it reads */
    tile_kind kind = tile_kind_of((is_glu ? s->a.moe.gate : s->a.moe.down)->type);
    return n_tokens >= 2 && kind != TILE_F32 && s->a.moe.n_experts >= 2 &&
           (!is_glu || tile_kind_of(s->a.moe.up->type) == kind);
}

/* The choices, grouped by expert, in tiles as the kernel wants them. Gate and up leave them for down,
 * whose tiles have room for as many tokens. */
static lace_status sort_choices(const gpu_job *j, const device_step *d, int64_t n, const cut *c,
                                pile *scratch, batch_sort *out, lace_error *err)
{
    const step *s = d->first;
    int32_t n_experts = s->a.moe.n_experts;
    int64_t n_slots = max_slots(s, n);
    *out = (batch_sort){.choices = (const gpu_choice *)s->in[1].data,
                        .choice_stride = (int64_t)(s->in[1].stride / 8),
                        .items = pile_take(scratch, 4 * (uint64_t)n_slots),
                        .tokens = pile_take(scratch, 4 * (uint64_t)n_slots),
                        .tiles = pile_take(scratch, sizeof(batch_tile) * (uint64_t)c->n_tiles),
                        .n_tokens = (int32_t)n,
                        .n_used = s->a.moe.n_used,
                        .n_experts = n_experts,
                        .n_slots = (int32_t)n_slots,
                        .n_tiles = c->n_tiles,
                        .tile_tokens = c->kernel.n_tokens};
    if (d->takes == ROWS_SLOTS)
        return LACE_OK;
    uint32_t one[3] = {1, 1, 1}, warps = SORT_NUMBERS / (uint32_t)n_experts;
    warps = warps < 1 ? 1 : warps > SORT_WARPS ? SORT_WARPS : warps;
    return gpu_start(j, "batch_sort_items", one, 32 * warps,
                     4 * ((warps + 3) * (uint32_t)n_experts + 1), out, err);
}

/*
 * Few tokens of an expert are multiplied by blocks that share a processor. Tiles have room for twice
 * the mean, since a second tile reads and unpacks the expert's weights again. K of down is cut where
 * processors would have nothing to do, into parts of at least two tiles of 256 values: there are
 * n_blocks * n_parts of n_tokens + 40 slots (padding with it) and 128 rows at most, on 2 places of
 * each processor.
 */
static cut cut_of(const gpu *g, const step *s, int64_t n)
{
    bool is_glu = s->op == OP_MOE_GLU;
    const weight *w = is_glu ? s->a.moe.gate : s->a.moe.down;
    tile_kind kind = tile_kind_of(w->type);
    int64_t n_items = n * s->a.moe.n_used, typical = 2 * n_items / s->a.moe.n_experts;
    cut c = {.kernel = batch_kernel_for_experts(g, kind, min_i64(typical, n)), .n_parts = 1};
    int64_t room = c.kernel.n_tokens;
    c.n_tiles = (int32_t)((n_items + max_used(s, n) * (room - 1)) / room);
    c.n_blocks = (int32_t)divide_up(w->n_rows, GROUP_ROWS * c.kernel.n_groups / (is_glu ? 2 : 1));
    if (is_glu || s->a.moe.down_bias || c.kernel.n_sharing < 2)
        return c;
    int64_t n_tiles = divide_up(w->n_cols, tile_cols(kind));
    int64_t parts = (int64_t)g->info.n_processors * c.kernel.n_sharing / (c.n_tiles * c.n_blocks);
    parts = min_i64(min_i64(parts, n_tiles / (2 * 256 / tile_cols(kind))), MAX_PARTS);
    c.n_parts = (int32_t)divide_up(n_tiles, divide_up(n_tiles, parts < 1 ? 1 : parts));
    return c;
}

/* Gate and up into the step's rows, or down into scratch. */
static batch_matmul product_of(const step *s, int64_t n, const cut *c, const batch_sort *sort,
                               const atoms *x, pile *scratch)
{
    bool is_glu = s->op == OP_MOE_GLU;
    const weight *experts = is_glu ? s->a.moe.gate : s->a.moe.down;
    tile_kind kind = tile_kind_of(experts->type);
    batch_matmul p = {.n_weights = is_glu ? 2 : 1,
                      .n_tiles = divide_up(experts->n_cols, tile_cols(kind)),
                      .x = x->x,
                      .x_scales = x->scales,
                      .n_tokens = sort->n_slots,
                      .mode = is_glu ? BATCH_GLU : BATCH_STORE,
                      .glu = (int32_t)s->a.moe.glu,
                      .scale = batch_kind_scale(kind, 1),
                      .slots = {.tiles = sort->tiles,
                                .rows = sort->items,
                                .n_slots = sort->n_slots,
                                .n_experts = sort->n_experts}};
    for (int i = 0; i < p.n_weights; i++) {
        const weight *w = i ? s->a.moe.up : experts;
        p.weights[i] = w[0].data;
        p.expert_bytes[i] = (uint64_t)(w[1].data - w[0].data);
        p.n_rows[i] = (int32_t)w[0].n_rows;
    }
    if (is_glu) {
        p.bias[0] = s->a.moe.gate_bias;
        p.bias[1] = s->a.moe.up_bias;
        p.out[0] = (float *)s->out[0].data;
        p.out_stride[0] = (int64_t)(s->out[0].stride / 4);
    } else {
        p.bias[0] = s->a.moe.down_bias;
        p.out_stride[0] = p.part_stride = (int32_t)experts->n_rows;
        int64_t rows = c->n_parts > 1 ? c->n_parts * sort->n_slots : n * s->a.moe.n_used;
        p.out[0] = p.parts = pile_take(scratch, 4 * (uint64_t)rows * (uint64_t)experts->n_rows);
    }
    return p;
}

/* Each token's rows of down, weighed and added to its residual. */
static lace_status combine(const gpu_job *j, const step *s, int64_t n, const cut *k,
                           const batch_sort *sort, const float *rows, lace_error *err)
{
    int64_t width = s->a.moe.down->n_rows;
    gpu_combine c = {.rows = rows,
                     .part_stride = (int64_t)sort->n_slots * width,
                     .n_parts = k->n_parts,
                     .choices = sort->choices,
                     .out = (float *)s->out[0].data,
                     .rows_stride = width,
                     .choice_stride = sort->choice_stride,
                     .out_stride = (int64_t)(s->out[0].stride / 4),
                     .width = (int32_t)width,
                     .n_used = s->a.moe.n_used,
                     .is_weighed = s->a.moe.weighs_inputs,
                     .makes = s->a.moe.makes,
                     .scale = s->a.moe.scale};
    uint32_t grid[3] = {(uint32_t)n, (uint32_t)divide_up(width, 256), 1};
    return gpu_start(j, "combine_rows", grid, 256, 0, &c, err);
}

lace_status gpu_launch_experts(const gpu_job *j, const device_step *d, lace_error *err)
{
    const step *s = d->first;
    int64_t n = s->is_output ? j->batch->n_outputs : j->batch->n_tokens;
    bool is_glu = s->op == OP_MOE_GLU;
    tile_kind kind = tile_kind_of((is_glu ? s->a.moe.gate : s->a.moe.down)->type);
    pile scratch = {j->scratch, 0};
    cut c = cut_of(j->g, s, n);
    batch_sort sort;
    TRY(sort_choices(j, d, n, &c, &scratch, &sort, err));
    atoms x;
    TRY(atoms_make(j, &s->in[0], is_glu ? sort.tokens : sort.items, sort.n_slots, kind, &scratch,
                   &x, err));
    batch_matmul p = product_of(s, n, &c, &sort, &x, &scratch);
    uint32_t grid[3] = {(uint32_t)c.n_tiles, (uint32_t)c.n_blocks, (uint32_t)c.n_parts};
    TRY(gpu_start(j, c.kernel.name, grid, (uint32_t)(c.kernel.n_groups * GROUP_THREADS),
                  c.kernel.shared_bytes, &p, err));
    return is_glu ? LACE_OK : combine(j, s, n, &c, &sort, p.out[0], err);
}

uint64_t gpu_experts_scratch_bytes(const gpu *g, const step *s, int64_t n_rows)
{
    const weight *w = s->op == OP_MOE_GLU ? s->a.moe.up : s->a.moe.down;
    int64_t slots = max_slots(s, n_rows);
    uint64_t rows = (uint64_t)(n_rows * s->a.moe.n_used) * (uint64_t)w->n_rows;
    uint64_t parts = PART_ROWS * 2 * (uint64_t)g->info.n_processors;
    return (12 + sizeof(batch_tile)) * (uint64_t)slots + atoms_bytes(w->n_cols, slots) +
           4 * (rows > parts ? rows : parts) + 6 * 256;
}
