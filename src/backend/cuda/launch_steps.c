/* Every operation of a plan as launches of the general kernels, for any number of rows. */
#include <assert.h>
#include <string.h>

#include "backend/cuda/card_link.h"
#include "backend/cuda/gpu.h"
#include "backend/cuda/gpu_params.h"
#include "backend/cuda/handover.h"
#include "backend/cuda/launch_recurrent.h"
#include "backend/cuda/lora_params.h"
#include "base/numbers.h"
#include "ops/lora.h"
#include "ops/op_info.h"

enum {
    ROW_THREADS = 256,
    HEAD_THREADS = 128,
    MATVEC_THREADS = 256,
    BLOCKS_PER_PROCESSOR = 4,
    LORA_WARPS = ROW_THREADS / 32,
    LORA_MOST_PARTS = 16
};

/* Rows of a grid's y dimension at most. */
enum { MAX_GRID_Y = 65535 };

_Static_assert((int)GPU_MAX_AXES == (int)ROPE_MAX_AXES, "kernels know as many axes as steps");

lace_status gpu_start_clusters(const gpu_job *j, const char *name, const uint32_t grid[3],
                               uint32_t cluster, uint32_t threads, uint32_t shared_bytes,
                               const void *params, lace_error *err)
{
    cuda_launch l = {.grid = {grid[0], grid[1], grid[2]},
                     .block = {threads},
                     .shared_bytes = shared_bytes,
                     .cluster = cluster,
                     .overlaps = j->g->can.overlaps};
    TRY(gpu_prepare(j->g, name, shared_bytes, &l.kernel, err));
    void *arguments[] = {(void *)(uintptr_t)params};
    return cuda_run(j->queue, &l, arguments, err);
}

lace_status gpu_start(const gpu_job *j, const char *name, const uint32_t grid[3], uint32_t threads,
                      uint32_t shared_bytes, const void *params, lace_error *err)
{
    return gpu_start_clusters(j, name, grid, 1, threads, shared_bytes, params, err);
}

static lace_status start_rows(const gpu_job *j, const char *name, int64_t n_rows, uint32_t n_parts,
                              const void *params, lace_error *err)
{
    uint32_t grid[3] = {(uint32_t)n_rows, n_parts, 1};
    return n_rows == 0 ? LACE_OK : gpu_start(j, name, grid, ROW_THREADS, 0, params, err);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Which row of a table each token takes; NULL: the first. */
static const int32_t *embed_indices(const gpu_batch *b, embed_index by)
{
    return by == EMBED_BY_POSITION  ? b->positions
           : by == EMBED_BY_SEGMENT ? b->segments
                                    : b->tokens;
}

static lace_status launch_embed(const gpu_job *j, const step *s, lace_error *err)
{
    const weight *table = s->a.embed.table;
    gpu_embed p = {.table = table->data,
                   .tokens = embed_indices(j->batch, s->a.embed.by),
                   .beside = s->a.embed.by == EMBED_BESIDE ? j->batch->given : NULL,
                   .given = s->a.embed.by == EMBED_BY_TOKEN ? j->batch->given : NULL,
                   .given_stride = j->batch->given_width,
                   .given_id = TOKEN_GIVEN,
                   .out = data(&s->out[0]),
                   .out_stride = floats(&s->out[0]),
                   .row_bytes = row_bytes(table->type, table->n_cols),
                   .n_rows = (uint32_t)table->n_rows,
                   .type = (int32_t)table->type,
                   .width = (int32_t)table->n_cols,
                   .scale = s->a.embed.scale};
    return start_rows(j, "embed_rows", j->batch->n_tokens, 1, &p, err);
}

/* Batches without such rows, as all single tokens that are recorded, have nothing to add. */
static lace_status launch_add_given(const gpu_job *j, const step *s, lace_error *err)
{
    gpu_add_given p = {.tokens = j->batch->tokens,
                       .y = data(&s->out[0]),
                       .given_stride = j->batch->given_width,
                       .y_stride = floats(&s->out[0]),
                       .width = (int32_t)s->out[0].width,
                       .given_id = TOKEN_GIVEN};
    if (!j->batch->given)
        return LACE_OK;
    p.given = j->batch->given + s->a.given.column;
    return start_rows(j, "add_given_rows", j->batch->n_tokens, 1, &p, err);
}

/* Batches of which no row uses an adapter have nothing to do here. A recorded token always looks. */
static lace_status launch_lora(const gpu_job *j, const step *s, lace_error *err)
{
    const gpu_batch *b = j->batch;
    const lora_site *site = s->a.lora.site;
    bool is_down = s->op == OP_LORA_DOWN;
    gpu_lora p = {.pieces = (const lora_piece *)(uintptr_t)s->a.lora.pieces,
                  .x = data(&s->in[0]),
                  .y = data(&s->out[0]),
                  .scales = b->scales,
                  .tokens = b->tokens,
                  .sequences = b->sequences,
                  .outputs = b->outputs,
                  .x_stride = floats(&s->in[0]),
                  .y_stride = floats(&s->out[0]),
                  .n_in = site->n_in,
                  .n_out = site->n_out,
                  .n_pieces = site->n_pairs,
                  .n_adapters = b->n_adapters,
                  .is_table = site->is_table,
                  .is_output = s->is_output,
                  .row_factor = s->row_factor,
                  .scale = s->a.lora.scale};
    int64_t parts = is_down ? min_i64(divide_up(site->n_low, LORA_WARPS), LORA_MOST_PARTS)
                            : divide_up(site->n_out, ROW_THREADS);
    return b->scales ? start_rows(j, is_down ? "lora_down_rows" : "lora_up_rows", gpu_rows_of(j, s),
                                  (uint32_t)parts, &p, err)
                     : LACE_OK;
}

/* What most row operations have in common. */
static gpu_rows rows_of(const step *s)
{
    return (gpu_rows){.x = data(&s->in[0]),
                      .z = data(&s->in[1]),
                      .y = data(&s->out[0]),
                      .x_stride = floats(&s->in[0]),
                      .z_stride = floats(&s->in[1]),
                      .y_stride = floats(&s->out[0]),
                      .width = (int32_t)s->out[0].width};
}

/* What the kernel of such an operation is called in rows.cu. */
static const char *const rows_names[OP_COUNT] = {
#define X(id, name, ...) [OP_##id] = #name "_rows",
#include "ops/ops.def"
#undef X
};

static lace_status launch_gather(const gpu_job *j, const step *s, lace_error *err)
{
    gpu_rows p = rows_of(s);
    p.indices = j->batch->outputs;
    return start_rows(j, rows_names[s->op], j->batch->n_outputs, 1, &p, err);
}

static lace_status launch_rope_table(const gpu_job *j, const step *s, lace_error *err)
{
    const gpu_batch *b = j->batch;
    gpu_rope_table p = {.frequencies = s->a.rope_table.frequencies,
                        .y = data(&s->out[0]),
                        .y_stride = floats(&s->out[0]),
                        .positions = b->positions,
                        .turn = b->turn,
                        .axes = b->axes,
                        .n_axes = b->n_axes,
                        .n_tokens = b->n_tokens,
                        .width = (int32_t)s->out[0].width,
                        .is_interleaved = s->a.rope_table.is_interleaved,
                        .magnitude = s->a.rope_table.magnitude};
    memcpy(p.sections, s->a.rope_table.sections, sizeof p.sections);
    return start_rows(j, rows_names[s->op], b->n_tokens, 1, &p, err);
}

static lace_status launch_norm(const gpu_job *j, const step *s, lace_error *err)
{
    gpu_rows p = rows_of(s);
    p.weight = s->a.norm.weight;
    p.bias = s->a.norm.bias;
    p.group = (int32_t)s->a.norm.group;
    p.kind = s->a.norm.is_wide;
    p.eps = s->a.norm.eps;
    uint32_t n_groups = (uint32_t)(s->in[0].width / s->a.norm.group);
    return start_rows(j, rows_names[s->op], gpu_rows_of(j, s), n_groups, &p, err);
}

static lace_status launch_add(const gpu_job *j, const step *s, lace_error *err)
{
    gpu_rows p = rows_of(s);
    p.scale = s->a.add.scale;
    return start_rows(j, rows_names[s->op], gpu_rows_of(j, s), 1, &p, err);
}

_Static_assert(GLU_COUNT == 8 && GPU_LAST_FUSED_GLU == 2,
               "glu() in rows.cuh knows eight, glu_of_product() and glu_fast() the first three");

static lace_status launch_glu(const gpu_job *j, const step *s, lace_error *err)
{
    gpu_rows p = rows_of(s);
    p.kind = (int32_t)s->a.glu.kind;
    p.group = (int32_t)(s->out[0].width / s->in[0].width);
    return start_rows(j, rows_names[s->op], gpu_rows_of(j, s), 1, &p, err);
}

static lace_status launch_xielu(const gpu_job *j, const step *s, lace_error *err)
{
    gpu_xielu p = {.y = data(&s->out[0]),
                   .y_stride = floats(&s->out[0]),
                   .width = (int32_t)s->out[0].width,
                   .alpha_p = s->a.xielu.alpha_p,
                   .alpha_n = s->a.xielu.alpha_n,
                   .beta = s->a.xielu.beta,
                   .eps = s->a.xielu.eps};
    return start_rows(j, rows_names[s->op], gpu_rows_of(j, s), 1, &p, err);
}

static lace_status launch_mix(const gpu_job *j, const step *s, lace_error *err)
{
    gpu_mix p = {.x = data(&s->in[0]),
                 .weights = data(&s->in[1]),
                 .base = data(&s->in[2]),
                 .y = data(&s->out[0]),
                 .x_stride = floats(&s->in[0]),
                 .weights_stride = floats(&s->in[1]),
                 .base_stride = floats(&s->in[2]),
                 .y_stride = floats(&s->out[0]),
                 .width = (int32_t)s->a.mix.width,
                 .n_in = (int32_t)(s->in[0].width / s->a.mix.width)};
    uint32_t n_out = (uint32_t)(s->out[0].width / s->a.mix.width);
    return start_rows(j, rows_names[s->op], gpu_rows_of(j, s), n_out, &p, err);
}

static lace_status launch_match(const gpu_job *j, const step *s, lace_error *err)
{
    gpu_rows p = rows_of(s);
    p.scale = s->a.match.scale;
    p.eps = s->a.match.least;
    p.kind = s->a.match.leads;
    p.group = (int32_t)s->in[1].width;
    uint32_t n_streams = (uint32_t)(s->out[0].width / s->in[1].width);
    return start_rows(j, rows_names[s->op], gpu_rows_of(j, s), n_streams, &p, err);
}

static lace_status launch_cutoff(const gpu_job *j, const step *s, lace_error *err)
{
    gpu_rows p = rows_of(s);
    p.scale = s->a.cutoff.factor;
    return start_rows(j, rows_names[s->op], gpu_rows_of(j, s), 1, &p, err);
}

static lace_status launch_pick(const gpu_job *j, const step *s, lace_error *err)
{
    gpu_rows p = rows_of(s);
    p.x += s->a.pick.offset;
    p.group = (int32_t)s->a.pick.n;
    p.kind = (int32_t)s->a.pick.stride;
    return start_rows(j, rows_names[s->op], gpu_rows_of(j, s), 1, &p, err);
}

static lace_status launch_temperature(const gpu_job *j, const step *s, lace_error *err)
{
    gpu_rows p = rows_of(s);
    p.indices = j->batch->positions;
    p.scale = s->a.temperature.scale;
    p.group = s->a.temperature.length;
    p.kind = s->a.temperature.offset;
    return start_rows(j, rows_names[s->op], j->batch->n_tokens, 1, &p, err);
}

static lace_status launch_softcap(const gpu_job *j, const step *s, lace_error *err)
{
    gpu_rows p = rows_of(s);
    p.scale = s->a.softcap.cap;
    return start_rows(j, rows_names[s->op], gpu_rows_of(j, s), 1, &p, err);
}

static lace_status launch_route(const gpu_job *j, const step *s, lace_error *err)
{
    const route_rule *rule = &s->a.moe.rule;
    gpu_route p = {.logits = data(&s->in[0]),
                   .out = (gpu_choice *)s->out[0].data,
                   .logits_stride = floats(&s->in[0]),
                   .out_stride = floats(&s->out[0]) / 2,
                   .n_experts = s->a.moe.n_experts,
                   .n_used = s->a.moe.n_used,
                   .scores = (int32_t)rule->scores,
                   .bias = rule->bias,
                   .scales = rule->scales,
                   .n_groups = rule->n_groups,
                   .n_groups_used = rule->n_groups_used,
                   .n_ranking = rule->n_ranking,
                   .norms = rule->norms,
                   .norm_more = rule->norm_more,
                   .norm_least = rule->norm_least,
                   .factor = rule->factor != 0 ? rule->factor : 1,
                   .jitter = rule->jitter};
    uint32_t grid[3] = {(uint32_t)gpu_rows_of(j, s), 1, 1};
    uint32_t shared = 12 * (uint32_t)p.n_experts;
    return grid[0] == 0 ? LACE_OK : gpu_start(j, "route_rows", grid, 32, shared, &p, err);
}

/* ---- Matrices -------------------------------------------------------------------------------- */

static const char *const matvec_names[TILE_COUNT] = {
#define X(id, name, n_bytes, n_cols) [TILE_##id] = "matvec_" #id,
    TILE_LIST(X)
#undef X
};

/* Rotated rows lie at the end of the scratch, at a multiple of 16. */
static uint64_t rotated_bytes(const weight *w, int64_t n_rows)
{
    bool rotates = tile_is_rotated(tile_kind_of(w->type));
    return rotates ? 4 * (uint64_t)n_rows * (uint64_t)w->n_cols + 16 : 0;
}

static lace_status rotate(const gpu_job *j, const weight *w, gpu_matvec *p, int64_t n,
                          lace_error *err)
{
    uint64_t bytes = rotated_bytes(w, n);
    if (bytes == 0)
        return LACE_OK;
    uintptr_t at = (uintptr_t)(j->scratch + j->scratch_bytes - bytes);
    gpu_rows rows = {.x = p->x,
                     .y = (float *)((at + 15) & ~(uintptr_t)15),
                     .x_stride = p->x_stride,
                     .y_stride = w->n_cols,
                     .width = (int32_t)w->n_cols};
    p->x = rows.y;
    p->x_stride = rows.y_stride;
    return start_rows(j, "rotate_rows", n, 1, &rows, err);
}

/* Rows of a matrix with n rows of x, in pieces that fit a grid. */
static lace_status matvec(const gpu_job *j, const weight *w, gpu_matvec p, int64_t n,
                          lace_error *err)
{
    tile_kind kind = tile_kind_of(w->type);
    TRY(rotate(j, w, &p, n / p.x_divisor, err));
    p.tiles = w->data;
    p.n_rows = (int32_t)w->n_rows;
    p.n_cols = (int32_t)w->n_cols;
    uint32_t shared =
        kind == TILE_F32 ? 0 : (uint32_t)gpu_act_bytes(tile_block_act(kind), w->n_cols);
    uint32_t most = (uint32_t)(j->g->info.n_processors * BLOCKS_PER_PROCESSOR);
    uint32_t n_groups = (uint32_t)((w->n_rows + TILE_ROWS - 1) / TILE_ROWS);
    int64_t heads = p.n_heads > 0 ? p.n_heads : 1;
    int64_t piece = MAX_GRID_Y / heads / (p.x_divisor * p.n_used) * (p.x_divisor * p.n_used);
    for (int64_t at = 0; at < n; at += piece) {
        int64_t rows = n - at < piece ? n - at : piece;
        uint32_t grid[3] = {n_groups < most ? n_groups : most, (uint32_t)(rows * heads), 1};
        TRY(gpu_start(j, matvec_names[kind], grid, MATVEC_THREADS, shared, &p, err));
        p.x += piece / p.x_divisor * p.x_stride;
        p.out += piece * p.out_stride;
        if (p.choices)
            p.choices += piece / p.n_used * p.choice_stride;
    }
    return LACE_OK;
}

static gpu_matvec matvec_of(const step *s, int i)
{
    return (gpu_matvec){.bias = s->a.matmul.biases[i],
                        .x = data(&s->in[0]),
                        .x_stride = floats(&s->in[0]),
                        .out = data(&s->out[i]),
                        .out_stride = floats(&s->out[i]),
                        .adds = s->op == OP_MATMUL_ADD,
                        .scale = s->a.matmul.scale,
                        .n_used = 1,
                        .x_divisor = 1};
}

/* The result of s: gates of n rows, by the kind, with up (or alone), both [n, n_ff]. */
static lace_status start_glu(const gpu_job *j, const step *s, const float *gate, const float *up,
                             int64_t n, int64_t n_ff, glu_kind kind, lace_error *err)
{
    gpu_rows p = {.x = gate,
                  .z = up,
                  .y = data(&s->out[0]),
                  .x_stride = n_ff,
                  .z_stride = n_ff,
                  .y_stride = floats(&s->out[0]),
                  .width = (int32_t)n_ff,
                  .group = 1,
                  .kind = (int32_t)kind};
    return start_rows(j, "glu_rows", n, 1, &p, err);
}

/* The gate's products, then the up's, in scratch, [n, n_rows] each. */
static lace_status launch_matmul_glu(const gpu_job *j, const step *s, lace_error *err)
{
    int64_t n = gpu_rows_of(j, s), n_ff = s->a.matmul.weights[0]->n_rows;
    float *products = (float *)j->scratch;
    for (int i = 0; i < 2; i++) {
        gpu_matvec p = matvec_of(s, i);
        p.out = products + i * n * n_ff;
        p.out_stride = n_ff;
        TRY(matvec(j, s->a.matmul.weights[i], p, n, err));
    }
    return start_glu(j, s, products, products + n * n_ff, n, n_ff, s->a.matmul.glu, err);
}

static lace_status launch_matmul(const gpu_job *j, const step *s, lace_error *err)
{
    int64_t n = gpu_rows_of(j, s);
    if (n == 0)
        return LACE_OK;
    if (s->op == OP_MATMUL_GLU)
        return launch_matmul_glu(j, s, err);
    for (int i = 0; i < s->a.matmul.n_weights; i++)
        TRY(matvec(j, s->a.matmul.weights[i], matvec_of(s, i), n, err));
    return LACE_OK;
}

/* ---- Experts --------------------------------------------------------------------------------- */

/* Experts of a tensor lie one after the other. */
static uint64_t expert_bytes(const weight *experts, int32_t n)
{
    return n > 1 ? (uint64_t)(experts[1].data - experts[0].data) : 0;
}

static gpu_matvec expert_matvec(const step *s, const weight *experts, const float *bias)
{
    return (gpu_matvec){.bias = bias,
                        .x = data(&s->in[0]),
                        .x_stride = floats(&s->in[0]),
                        .scale = 1,
                        .choices = (const gpu_choice *)s->in[1].data,
                        .choice_stride = floats(&s->in[1]) / 2,
                        .expert_bytes = expert_bytes(experts, s->a.moe.n_experts),
                        .n_used = s->a.moe.n_used,
                        .x_divisor = 1};
}

static lace_status launch_moe_glu(const gpu_job *j, const step *s, int64_t n, lace_error *err)
{
    int64_t n_ff = s->a.moe.up[0].n_rows;
    float *products = (float *)j->scratch, *up = products + (s->a.moe.gate ? n * n_ff : 0);
    for (int i = s->a.moe.gate ? 0 : 1; i < 2; i++) {
        const weight *experts = i ? s->a.moe.up : s->a.moe.gate;
        gpu_matvec p = expert_matvec(s, experts, i ? s->a.moe.up_bias : s->a.moe.gate_bias);
        p.out = i ? up : products;
        p.out_stride = n_ff;
        p.x_divisor = s->a.moe.n_used;
        p.weighs = s->a.moe.weighs_inputs;
        TRY(matvec(j, &experts[0], p, n, err));
    }
    return start_glu(j, s, products, s->a.moe.gate ? up : NULL, n, n_ff, s->a.moe.glu, err);
}

static lace_status launch_moe(const gpu_job *j, const step *s, lace_error *err)
{
    int64_t n_tokens = s->is_output ? j->batch->n_outputs : j->batch->n_tokens;
    int64_t n = n_tokens * s->a.moe.n_used;
    if (n == 0)
        return LACE_OK;
    if (s->op == OP_MOE_GLU)
        return launch_moe_glu(j, s, n, err);
    int64_t width = s->a.moe.down[0].n_rows;
    gpu_matvec p = expert_matvec(s, s->a.moe.down, s->a.moe.down_bias);
    p.out = (float *)j->scratch;
    p.out_stride = width;
    TRY(matvec(j, &s->a.moe.down[0], p, n, err));
    gpu_combine c = {.rows = (float *)j->scratch,
                     .choices = p.choices,
                     .out = data(&s->out[0]),
                     .rows_stride = width,
                     .choice_stride = p.choice_stride,
                     .out_stride = floats(&s->out[0]),
                     .width = (int32_t)width,
                     .n_used = s->a.moe.n_used,
                     .is_weighed = s->a.moe.weighs_inputs,
                     .makes = s->a.moe.makes,
                     .scale = s->a.moe.scale};
    return start_rows(j, "combine_rows", n_tokens, 1, &c, err);
}

/* ---- Heads ----------------------------------------------------------------------------------- */

/* What is copied behind each head's product. */
lace_status gpu_copy_rest(const gpu_job *j, const step *s, lace_error *err)
{
    int64_t rest = s->a.heads.n_rest;
    gpu_rest p = {.x = data(&s->in[0]),
                  .y = data(&s->out[0]),
                  .x_stride = floats(&s->in[0]),
                  .y_stride = floats(&s->out[0]),
                  .n_heads = s->a.heads.n_heads,
                  .n_rest = (int32_t)rest,
                  .n_cols = (int32_t)s->a.heads.weights->n_cols,
                  .n_rows = (int32_t)s->a.heads.weights->n_rows};
    return rest == 0 ? LACE_OK : start_rows(j, "heads_rest_rows", gpu_rows_of(j, s), 1, &p, err);
}

/* A product for each head: all in one launch, or, if rows are to be rotated, one by one. */
static lace_status launch_heads(const gpu_job *j, const step *s, lace_error *err)
{
    int64_t n = gpu_rows_of(j, s), rest = s->a.heads.n_rest;
    const weight *w = s->a.heads.weights;
    gpu_matvec p = {.x = data(&s->in[0]),
                    .x_stride = floats(&s->in[0]),
                    .out = data(&s->out[0]),
                    .out_stride = floats(&s->out[0]),
                    .scale = 1,
                    .n_used = 1,
                    .x_divisor = 1,
                    .head_x = w->n_cols + rest,
                    .head_out = w->n_rows + rest};
    bool is_one = gpu_heads_bytes(s, &p.expert_bytes) && rotated_bytes(w, 1) == 0;
    if (n == 0)
        return LACE_OK;
    if (is_one) {
        p.n_heads = s->a.heads.n_heads;
        TRY(matvec(j, w, p, n, err));
    }
    for (int32_t h = 0; h < s->a.heads.n_heads && !is_one; h++) {
        TRY(matvec(j, &w[h], p, n, err));
        p.x += p.head_x;
        p.out += p.head_out;
    }
    return gpu_copy_rest(j, s, err);
}

/* ---- Attention ------------------------------------------------------------------------------- */

static gpu_cache cache_of(const gpu_job *j, const kv_layer *kv)
{
    return (gpu_cache){.data = kv->data,
                       .page_bytes = kv->page_bytes,
                       .k_offset = kv->k_offset,
                       .v_offset = kv->v_offset,
                       .row_bytes = kv->row_bytes,
                       .type = (int32_t)kv->type,
                       .page_tokens = kv->page_tokens,
                       .n_heads = kv->n_heads,
                       .head_dim = kv->head_dim,
                       .v_dim = kv->v_dim,
                       .v_in_k = kv->v_in_k,
                       .tables = j->batch->tables[kv->group],
                       .pages_per_sequence = j->batch->pages_per_sequence,
                       .sequences = j->batch->sequences,
                       .positions = j->batch->positions,
                       .seen = j->batch->seen};
}

static lace_status start_heads(const gpu_job *j, const char *name, int32_t n_heads,
                               const void *params, lace_error *err)
{
    uint32_t grid[3] = {(uint32_t)j->batch->n_tokens, (uint32_t)n_heads, 1};
    return grid[0] == 0 ? LACE_OK : gpu_start(j, name, grid, HEAD_THREADS, 0, params, err);
}

gpu_rope gpu_rope_of(const gpu_job *j, const step *s)
{
    gpu_rope p = {.table = data(&s->in[0]),
                  .table_stride = floats(&s->in[0]),
                  .q = data(&s->out[0]),
                  .q_stride = floats(&s->out[0]),
                  .n_heads = s->a.rope.n_heads,
                  .head_dim = s->a.rope.head_dim,
                  .n_dims = s->a.rope.n_dims,
                  .is_neox = s->a.rope.is_neox};
    if (s->op == OP_ROPE)
        return p;
    const kv_layer *kv = &s->kv;
    p.cache = cache_of(j, kv);
    p.writes = 1;
    p.n_kv_heads = kv->n_heads;
    p.head_dim = kv->head_dim;
    if (s->op == OP_KV_WRITE) {
        p.table = NULL;
        p.q = NULL;
        p.n_heads = 0;
        p.k = data(&s->in[0]);
        p.k_stride = floats(&s->in[0]);
        p.v = data(&s->in[1]);
        p.v_stride = floats(&s->in[1]);
    } else {
        p.k = data(&s->out[1]);
        p.k_stride = floats(&s->out[1]);
        p.v = data(&s->in[1]);
        p.v_stride = floats(&s->in[1]);
    }
    return p;
}

static lace_status launch_rope(const gpu_job *j, const step *s, lace_error *err)
{
    gpu_rope p = gpu_rope_of(j, s);
    return start_heads(j, "rope_heads", p.n_heads + p.n_kv_heads, &p, err);
}

gpu_attend gpu_attend_of(const gpu_job *j, const step *s)
{
    return (gpu_attend){.q = data(&s->in[0]),
                        .out = data(&s->out[0]),
                        .q_stride = floats(&s->in[0]),
                        .out_stride = floats(&s->out[0]),
                        .cache = cache_of(j, &s->kv),
                        .sinks = s->a.attend.sinks,
                        .scale = s->a.attend.scale,
                        .softcap = s->a.attend.softcap,
                        .n_heads = s->a.attend.n_heads,
                        .window = s->a.attend.window,
                        .ahead = s->a.attend.ahead,
                        .chunk = s->a.attend.chunk};
}

static lace_status launch_attend(const gpu_job *j, const step *s, lace_error *err)
{
    gpu_attend p = gpu_attend_of(j, s);
    return start_heads(j, "attend_heads", p.n_heads, &p, err);
}

/* ---- All of them ----------------------------------------------------------------------------- */

typedef lace_status (*launch_fn)(const gpu_job *j, const step *s, lace_error *err);

/* One for each operation; NULL: plans for GPUs do not contain it. */
static const launch_fn launchers[OP_COUNT] = {
    [OP_EMBED] = launch_embed,
    [OP_GATHER] = launch_gather,
    [OP_ADD_GIVEN] = launch_add_given,
    [OP_ROPE_TABLE] = launch_rope_table,
    [OP_RMS_NORM] = launch_norm,
    [OP_LAYER_NORM] = launch_norm,
    [OP_MATMUL] = launch_matmul,
    [OP_ADD] = launch_add,
    [OP_GLU] = launch_glu,
    [OP_XIELU] = launch_xielu,
    [OP_MIX] = launch_mix,
    [OP_MATCH] = launch_match,
    [OP_CUTOFF] = launch_cutoff,
    [OP_PICK] = launch_pick,
    [OP_TEMPERATURE] = launch_temperature,
    [OP_ROPE] = launch_rope,
    [OP_KV_WRITE] = launch_rope,
    [OP_ATTEND] = launch_attend,
    [OP_SCAN] = gpu_launch_scan,
    [OP_CONV] = gpu_launch_conv,
    [OP_DELTA] = gpu_launch_delta,
    [OP_MATMUL_HEADS] = launch_heads,
    [OP_LORA_DOWN] = launch_lora,
    [OP_LORA_UP] = launch_lora,
    [OP_SOFTCAP] = launch_softcap,
    [OP_ROUTE] = launch_route,
    [OP_MOE_GLU] = launch_moe,
    [OP_MOE_DOWN] = launch_moe,
    [OP_MATMUL_ADD] = launch_matmul,
    [OP_MATMUL_GROUP] = launch_matmul,
    [OP_MATMUL_GLU] = launch_matmul,
    [OP_ROPE_KV] = launch_rope,
    [OP_COLLECT] = card_link_collect,
};

bool gpu_has_kernel(op o)
{
    return launchers[o] != NULL;
}

lace_status gpu_launch_general(const gpu_job *j, const step *s, lace_error *err)
{
    assert(launchers[s->op]);
    return launchers[s->op](j, s, err);
}

/* What the general launchers need. */
static uint64_t general_bytes(const step *s, int64_t n_rows)
{
    uint64_t n = (uint64_t)n_rows, bytes = 0;
    if (s->op == OP_MATMUL_GLU)
        bytes = 8 * n * (uint64_t)s->a.matmul.weights[0]->n_rows;
    else if (s->op == OP_MOE_GLU)
        bytes = 8 * n * (uint64_t)s->a.moe.n_used * (uint64_t)s->a.moe.up[0].n_rows +
                (s->a.moe.gate ? rotated_bytes(s->a.moe.gate, n_rows) : 0) +
                rotated_bytes(s->a.moe.up, n_rows);
    else if (s->op == OP_MOE_DOWN)
        bytes = 4 * n * (uint64_t)s->a.moe.n_used * (uint64_t)s->a.moe.down[0].n_rows +
                rotated_bytes(s->a.moe.down, n_rows * s->a.moe.n_used);
    else if (s->op == OP_MATMUL_HEADS)
        bytes = rotated_bytes(s->a.heads.weights, n_rows);
    for (int i = 0; step_is_matmul(s) && i < s->a.matmul.n_weights; i++)
        bytes += rotated_bytes(s->a.matmul.weights[i], n_rows);
    return bytes;
}

uint64_t gpu_step_scratch_bytes(const gpu *g, const step *s, int64_t n_rows, int64_t n_context)
{
    uint64_t most = general_bytes(s, n_rows), more = 0;
    if (step_is_matmul(s)) {
        uint64_t small = gpu_small_batch_scratch_bytes(s);
        more = gpu_products_scratch_bytes(g, s, n_rows);
        more = more > small ? more : small;
    } else if (s->op == OP_MOE_GLU || s->op == OP_MOE_DOWN) {
        more = gpu_experts_scratch_bytes(g, s, n_rows);
    } else if (s->op == OP_ATTEND) {
        more = gpu_attend_scratch_bytes(g, s, n_rows, n_context);
    } else if (s->op == OP_MATMUL_HEADS) {
        uint64_t latents = gpu_latent_scratch_bytes(s, n_rows);
        more = gpu_heads_scratch_bytes(s, n_rows);
        more = more > latents ? more : latents;
    } else if (s->op == OP_DELTA || s->op == OP_SCAN) {
        more = gpu_chunks_scratch_bytes(g, s, n_rows);
    }
    more += more > 0 ? 4096 : 0;
    return most > more ? most : more;
}
