/*
 * A product for each head, of batches: all heads in one launch, by the kernels of experts. Each
 * head is an expert that all tokens have chosen.
 */
#include "base/numbers.h"
#include "backend/cuda/handover.h"
#include "backend/cuda/launch_products.h"

/* Floats from one head's values to the next one's. */
static int64_t input_floats(const step *s)
{
    return s->a.heads.weights->n_cols + s->a.heads.n_rest;
}

static int64_t output_floats(const step *s)
{
    return s->a.heads.weights->n_rows + s->a.heads.n_rest;
}

bool gpu_heads_bytes(const step *s, uint64_t *out)
{
    const weight *w = s->a.heads.weights;
    *out = s->a.heads.n_heads > 1 ? (uint64_t)(w[1].data - w[0].data) : 0;
    for (int32_t h = 1; h < s->a.heads.n_heads; h++)
        if (w[h].data != w[0].data + (uint64_t)h * *out)
            return false;
    return true;
}

/* A head's values are a row for the kernels, so rows of tokens must be whole numbers of them. */
bool gpu_heads_are_batched(const step *s, int64_t n_rows)
{
    uint64_t bytes;
    return n_rows >= 2 && tile_kind_of(s->a.heads.weights->type) != TILE_F32 &&
           s->in[0].stride / 4 % (uint64_t)input_floats(s) == 0 &&
           s->out[0].stride / 4 % (uint64_t)output_floats(s) == 0 && gpu_heads_bytes(s, &bytes);
}

static lace_status count_slots(const gpu_job *j, const step *s, int64_t n, pile *scratch,
                               batch_heads *out, lace_error *err)
{
    int32_t n_heads = s->a.heads.n_heads;
    int64_t padded = (int64_t)round_up((uint64_t)n, 8), n_slots = n_heads * padded;
    *out = (batch_heads){.begin = pile_take(scratch, 4 * (uint64_t)n_heads),
                         .count = pile_take(scratch, 4 * (uint64_t)n_heads),
                         .items = pile_take(scratch, 4 * (uint64_t)n_slots),
                         .inputs = pile_take(scratch, 4 * (uint64_t)n_slots),
                         .n_tokens = (int32_t)n,
                         .n_heads = n_heads,
                         .padded = (int32_t)padded,
                         .items_each = (int32_t)((int64_t)s->out[0].stride / 4 / output_floats(s)),
                         .inputs_each = (int32_t)((int64_t)s->in[0].stride / 4 / input_floats(s))};
    uint32_t grid[3] = {(uint32_t)divide_up(n_slots, 256), 1, 1};
    return gpu_start(j, "batch_heads_items", grid, 256, 0, out, err);
}

lace_status gpu_launch_heads(const gpu_job *j, const device_step *d, lace_error *err)
{
    const step *s = d->first;
    const weight *w = s->a.heads.weights;
    int64_t n = gpu_rows_of(j, s);
    tile_kind kind = tile_kind_of(w->type);
    pile scratch = {j->scratch, 0};
    batch_heads of;
    atoms x;
    operand in = s->in[0];
    in.width = w->n_cols;
    in.stride = 4 * (uint64_t)input_floats(s);
    TRY(count_slots(j, s, n, &scratch, &of, err));
    int32_t n_slots = of.n_heads * of.padded;
    TRY(atoms_make(j, &in, of.inputs, n_slots, kind, &scratch, &x, err));
    batch_matmul p = {.weights = {w->data},
                      .out = {(float *)s->out[0].data},
                      .out_stride = {output_floats(s)},
                      .n_rows = {(int32_t)w->n_rows},
                      .n_weights = 1,
                      .n_tiles = divide_up(w->n_cols, tile_cols(kind)),
                      .x = x.x,
                      .x_scales = x.scales,
                      .n_tokens = n_slots,
                      .mode = BATCH_STORE,
                      .scale = batch_kind_scale(kind, 1),
                      .slots = {.begin = of.begin,
                                .count = of.count,
                                .rows = of.items,
                                .n_slots = n_slots,
                                .n_experts = of.n_heads}};
    gpu_heads_bytes(s, &p.expert_bytes[0]);
    int n_groups = batch_most_groups(j->g);
    batch_kernel k = batch_kernel_for(j->g, kind, n, n_groups);
    p.blocks = batch_count_blocks(&p, n_groups);
    uint32_t grid[3] = {(uint32_t)divide_up(n, k.n_tokens), (uint32_t)(p.blocks * of.n_heads), 1};
    TRY(gpu_start(j, k.name, grid, (uint32_t)(n_groups * GROUP_THREADS), k.shared_bytes, &p, err));
    return gpu_copy_rest(j, s, err);
}

uint64_t gpu_heads_scratch_bytes(const step *s, int64_t n_rows)
{
    uint64_t slots = (uint64_t)s->a.heads.n_heads * round_up((uint64_t)n_rows, 8);
    return 8 * (uint64_t)s->a.heads.n_heads + 12 * slots +
           atoms_bytes(s->a.heads.weights->n_cols, (int64_t)slots) + 5 * 256;
}
