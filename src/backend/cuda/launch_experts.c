/*
 * Experts of batches: tokens are grouped by expert first, and only chosen experts are read.
 */
#include "base/numbers.h"
#include "backend/cuda/handover.h"
#include "backend/cuda/launch_products.h"

static int64_t max_slots(const step *s, int64_t n_tokens)
{
    int64_t n_items = n_tokens * s->a.moe.n_used, n = s->a.moe.n_experts;
    int64_t used = n_items < n ? n_items : n; /* experts that have any */
    return (int64_t)round_up((uint64_t)(n_items + 7 * used), 8);
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

/* The choices, grouped by expert. */
static lace_status sort_choices(const gpu_job *j, const step *s, int64_t n, pile *scratch,
                                batch_sort *out, lace_error *err)
{
    int32_t n_experts = s->a.moe.n_experts;
    int64_t n_slots = max_slots(s, n);
    *out = (batch_sort){.choices = (const gpu_choice *)s->in[1].data,
                        .choice_stride = (int64_t)(s->in[1].stride / 8),
                        .begin = pile_take(scratch, 4 * ((uint64_t)n_experts + 1)),
                        .count = pile_take(scratch, 4 * (uint64_t)n_experts),
                        .items = pile_take(scratch, 4 * (uint64_t)n_slots),
                        .tokens = pile_take(scratch, 4 * (uint64_t)n_slots),
                        .n_tokens = (int32_t)n,
                        .n_used = s->a.moe.n_used,
                        .n_experts = n_experts,
                        .n_slots = (int32_t)n_slots};
    uint32_t one[3] = {1, 1, 1};
    return gpu_start(j, "batch_sort_items", one, 1024, 4 * ((uint32_t)n_experts + 1), out, err);
}

/* Gate and up into the step's rows, or down into scratch. */
static batch_matmul product_of(const step *s, int64_t n, const batch_sort *sort, const atoms *x,
                               pile *scratch)
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
                      .slots = {.begin = sort->begin,
                                .count = sort->count,
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
        p.out_stride[0] = experts->n_rows;
        p.out[0] =
            pile_take(scratch, 4 * (uint64_t)(n * s->a.moe.n_used) * (uint64_t)experts->n_rows);
    }
    return p;
}

/* Each token's rows of down, weighed and added to its residual. */
static lace_status combine(const gpu_job *j, const step *s, int64_t n, const batch_sort *sort,
                           const float *rows, lace_error *err)
{
    int64_t width = s->a.moe.down->n_rows;
    gpu_combine c = {.rows = rows,
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
    uint32_t grid[3] = {(uint32_t)n, 1, 1};
    return gpu_start(j, "combine_rows", grid, 256, 0, &c, err);
}

lace_status gpu_launch_experts(const gpu_job *j, const device_step *d, lace_error *err)
{
    const step *s = d->first;
    int64_t n = s->is_output ? j->batch->n_outputs : j->batch->n_tokens;
    bool is_glu = s->op == OP_MOE_GLU;
    tile_kind kind = tile_kind_of((is_glu ? s->a.moe.gate : s->a.moe.down)->type);
    pile scratch = {j->scratch, 0};
    batch_sort sort;
    TRY(sort_choices(j, s, n, &scratch, &sort, err));
    atoms x;
    TRY(atoms_make(j, &s->in[0], is_glu ? sort.tokens : sort.items, sort.n_slots, kind, &scratch,
                   &x, err));
    batch_matmul p = product_of(s, n, &sort, &x, &scratch);
    /* An expert has few of the tokens, but may have all. */
    int64_t typical = 2 * n * s->a.moe.n_used / sort.n_experts;
    batch_kernel k = batch_kernel_for(j->g, kind, typical < n ? typical : n, 4);
    p.blocks = batch_count_blocks(&p, 4);
    uint32_t grid[3] = {(uint32_t)divide_up(n, k.n_tokens), (uint32_t)(p.blocks * sort.n_experts),
                        1};
    TRY(gpu_start(j, k.name, grid, 4 * GROUP_THREADS, k.shared_bytes, &p, err));
    return is_glu ? LACE_OK : combine(j, s, n, &sort, p.out[0], err);
}

uint64_t gpu_experts_scratch_bytes(const step *s, int64_t n_rows)
{
    const weight *w = s->op == OP_MOE_GLU ? s->a.moe.up : s->a.moe.down;
    int64_t slots = max_slots(s, n_rows);
    return 16 * (uint64_t)s->a.moe.n_experts + 12 * (uint64_t)slots +
           atoms_bytes(w->n_cols, slots) +
           4 * (uint64_t)n_rows * (uint64_t)s->a.moe.n_used * (uint64_t)w->n_rows;
}
