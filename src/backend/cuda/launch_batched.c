/*
 * Steps of many rows: prefill, and batches of several sequences.
 *
 * Matrices: rows become f16 atoms, scaled row by row (batch_rows.cu), and go through matmul_batch_*
 * or, of prompts, matmul_wide_*: one read of the weights for up to 128 or 256 rows. Where a matrix
 * has too few rows to give every processor a block, K is cut into parts whose sums are added
 * afterwards. Experts' tokens are grouped by expert first, and only chosen experts are read. Up to
 * 8 rows have kernels of their own (launch_small_batch.c).
 *
 * Attention: runs of tokens of one sequence (attend_run.cu), single tokens (attend_single.cu).
 *
 * What these do not cover (f32 weights, odd shapes, one row) goes to the general kernels.
 */
#include <assert.h>

#include "backend/cuda/handover.h"
#include "backend/cuda/small_batch_params.h"

lace_status gpu_start_overlapping(const gpu_job *j, const char *name, const uint32_t grid[3],
                                  uint32_t threads, uint32_t shared_bytes, const void *params,
                                  lace_error *err)
{
    cuda_launch l = {.grid = {grid[0], grid[1], grid[2]},
                     .block = {threads},
                     .shared_bytes = shared_bytes,
                     .overlaps = j->g->has_overlap};
    TRY(gpu_prepare(j->g, name, shared_bytes, &l.kernel, err));
    void *arguments[] = {(void *)(uintptr_t)params};
    return cuda_run(j->queue, &l, arguments, err);
}

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static int32_t divide_up(int64_t n, int64_t by)
{
    return (int32_t)((n + by - 1) / by);
}

static int64_t n_rows_of(const gpu_job *j, const step *s)
{
    int64_t n = s->is_output ? j->batch->n_outputs : j->batch->n_tokens;
    return s->row_factor > 1 ? n * s->row_factor : n;
}

/* ---- Atoms ----------------------------------------------------------------------------------- */

static bool is_half(tile_kind kind)
{
    return kind == TILE_F16 || kind == TILE_BF16;
}

/* 64s of values of a row, as many as the tiles of the kind cover. */
static int32_t n_k64(tile_kind kind, int64_t n_cols)
{
    return divide_up(n_cols, tile_cols(kind)) * (tile_cols(kind) / 64);
}

/* The larger of both orders: K in whole 256s. */
static uint64_t atom_bytes(int64_t n_cols, int64_t n_rows)
{
    return round_up((uint64_t)n_cols, 256) * round_up((uint64_t)n_rows, 8) * 2;
}

/* A pile of scratch that is handed out from the bottom. */
typedef struct pile {
    uint8_t *at;
    uint64_t used;
} pile;

static void *take(pile *p, uint64_t n_bytes)
{
    void *at = p->at + p->used;
    p->used += round_up(n_bytes, 256);
    return at;
}

typedef struct atoms {
    uint8_t *x;
    float *scales;
} atoms;

static lace_status make_atoms(const gpu_job *j, const operand *x, const int32_t *map,
                              int64_t n_rows, tile_kind kind, pile *scratch, atoms *out,
                              lace_error *err)
{
    out->x = take(scratch, atom_bytes(x->width, n_rows));
    out->scales = take(scratch, 4 * (uint64_t)n_rows);
    batch_atoms p = {.x = (const float *)x->data,
                     .map = map,
                     .out = out->x,
                     .scales = out->scales,
                     .x_stride = (int64_t)(x->stride / 4),
                     .width = (int32_t)x->width,
                     .n_rows = (int32_t)n_rows,
                     .n_k64 = n_k64(kind, x->width),
                     .is_half = is_half(kind),
                     .rotates = tile_is_rotated(kind)};
    uint32_t grid[3] = {(uint32_t)round_up((uint64_t)n_rows, 8), 1, 1};
    return gpu_start_overlapping(j, "batch_atoms_rows", grid, 512, 0, &p, err);
}

/* ---- Matrices -------------------------------------------------------------------------------- */

enum { N_WIDTHS = 4, N_WIDE = 2, GROUP_ROWS = 64, GROUP_THREADS = 128 };

static const int32_t widths[N_WIDTHS] = {8, 32, 64, 128}; /* tokens of a block */
static const int32_t wide_widths[N_WIDE] = {128, 256};    /* of one with two groups */

static const char *const matmul_names[TILE_COUNT][N_WIDTHS] = {
#define X(id, name, n_bytes, n_cols)                                                               \
    [TILE_##id] = {"matmul_batch_" #id "_8", "matmul_batch_" #id "_32", "matmul_batch_" #id "_64", \
                   "matmul_batch_" #id "_128"},
    TILE_LIST(X)
#undef X
};

static const char *const wide_names[TILE_COUNT][N_WIDE] = {
#define X(id, name, n_bytes, n_cols)                                                               \
    [TILE_##id] = {"matmul_wide_" #id "_128", "matmul_wide_" #id "_256"},
    TILE_LIST(X)
#undef X
};

static int width_for(int64_t n_tokens)
{
    int i = 0;
    while (i + 1 < N_WIDTHS && widths[i] < n_tokens)
        i++;
    return i;
}

/*
 * As matmul_batch.cuh counts it; at least what gates need to meet. Rings are for sm_90a alone:
 * other cards, which may have less than half of that memory, have kernels without them.
 */
static uint32_t shared_bytes(const gpu *g, tile_kind kind, int n, int n_groups, int most_warps)
{
    if (g->info.major != 9)
        return (uint32_t)(n_groups / 2 * GROUP_ROWS * (32 + 1) * 4);
    int bytes = tile_bytes(kind), stride = bytes % 128 ? (bytes + 96 + 127) / 128 * 128 : bytes;
    int stages = bytes > 3000 ? 2 : tile_cols(kind) == 64 ? 4 : 3;
    int steps = n < 64 ? 4 : n < 128 ? 2 : 1;
    steps = tile_cols(kind) / 64 < steps ? tile_cols(kind) / 64 : steps;
    int stage_bytes = n * 128 * steps;
    int atom_stages = (227 * 1024 - 1024 - most_warps * stages * stride) / stage_bytes,
        most = n < 64 ? 8 : 6;
    atom_stages = atom_stages < most ? atom_stages : most;
    int glu = n_groups / 2 * GROUP_ROWS * ((n < 32 ? 32 : n) + 1) * 4;
    int all = atom_stages * (stage_bytes + 16) + 4 * n_groups * stages * (stride + 8);
    return (uint32_t)(all > glu ? all : glu);
}

/* Weights are int kinds times 256, see batch_unpack.cuh. */
static float kind_scale(tile_kind kind, float scale)
{
    return is_half(kind) ? scale : scale / 256.0f;
}

/* How a product is cut: groups of 64 rows and tokens of a block, blocks, parts of K. */
typedef struct cut {
    int n_groups, n_tokens, n_blocks, n_parts;
    const char *name;
    uint32_t shared_bytes;
} cut;

enum { MAX_PARTS = 16 };

static int count_blocks(const batch_matmul *p, int n_groups)
{
    if (p->mode == BATCH_GLU)
        return divide_up(p->n_rows[0], n_groups / 2 * GROUP_ROWS);
    int n = 0;
    for (int i = 0; i < p->n_weights; i++)
        n += divide_up(p->n_rows[i], n_groups * GROUP_ROWS);
    return n;
}

/*
 * Prompts: 128 rows and as many tokens as let the processors end soonest. Twice the tokens take
 * twice the time, less an eighth (Q4_K, K = 4096 on an H200: 37 and 64 us). False if blocks of 256
 * rows are sooner still (62 us, but 67 where they are many).
 */
static bool choose_wide(const gpu *g, const batch_matmul *p, tile_kind kind, cut *out)
{
    int n_processors = g->info.n_processors;
    cut c = {.n_groups = 2, .n_blocks = count_blocks(p, 2), .n_parts = 1};
    int64_t best = INT64_MAX;
    for (int i = 0; i < N_WIDE; i++) {
        int64_t n_all = (int64_t)c.n_blocks * divide_up(p->n_tokens, wide_widths[i]);
        int64_t time = (i == 0 ? 8 : 14) * (int64_t)divide_up(n_all, n_processors);
        if (time >= best)
            continue;
        best = time;
        c.n_tokens = wide_widths[i];
        c.name = wide_names[kind][i];
    }
    c.shared_bytes = shared_bytes(g, kind, c.n_tokens, 2, 8);
    *out = c;
    int64_t n_usual = (int64_t)count_blocks(p, 4) * divide_up(p->n_tokens, 128);
    return p->n_tokens >= 1024 || best <= 13 * (int64_t)divide_up(n_usual, n_processors);
}

/*
 * Blocks of 256 rows, the cheapest, if there are enough of them; else of 128.
 * Few tokens: parts of K until every processor has a block, each of at least
 * two tiles of 256 values.
 */
static cut choose_cut(const gpu *g, const batch_matmul *p, tile_kind kind)
{
    int n_processors = g->info.n_processors;
    int width = width_for(p->n_tokens);
    int32_t n_tiles_x = divide_up(p->n_tokens, widths[width]);
    cut c = {
        .n_groups = 4, .n_tokens = widths[width], .n_parts = 1, .name = matmul_names[kind][width]};
    c.n_blocks = count_blocks(p, 4);
    if (c.n_blocks * n_tiles_x * 2 <= n_processors + n_processors / 8) {
        if (p->mode == BATCH_GLU || n_tiles_x > 1) {
            c.n_groups = 2;
            c.n_blocks = count_blocks(p, 2);
        }
    }
    int per_part = 2 * 256 / tile_cols(kind);
    if (p->mode != BATCH_GLU && n_tiles_x == 1) {
        c.n_parts = n_processors / c.n_blocks;
        if (c.n_parts > p->n_tiles / per_part)
            c.n_parts = p->n_tiles / per_part;
        if (c.n_parts > MAX_PARTS)
            c.n_parts = MAX_PARTS;
        if (c.n_parts < 1)
            c.n_parts = 1;
        /* No part is empty. */
        int tiles = divide_up(p->n_tiles, c.n_parts);
        c.n_parts = divide_up(p->n_tiles, tiles);
    }
    c.shared_bytes = shared_bytes(g, kind, c.n_tokens, c.n_groups, 16);
    return c;
}

/* Parts that the next step adds up are left where they are, in `left`. */
static lace_status run_product(const gpu_job *j, batch_matmul *p, tile_kind kind, pile *scratch,
                               gpu_handover *left, lace_error *err)
{
    cut c;
    if (p->n_tokens <= 128 || is_half(kind) || !j->g->has_overlap ||
        !choose_wide(j->g, p, kind, &c))
        c = choose_cut(j->g, p, kind);
    p->part_stride = 0;
    for (int i = 0; i < p->n_weights; i++) {
        p->part_offset[i] = p->part_stride;
        p->part_stride += p->n_rows[i];
    }
    if (c.n_parts > 1)
        p->parts = take(scratch,
                        4 * (uint64_t)c.n_parts * (uint64_t)p->n_tokens * (uint64_t)p->part_stride);
    uint32_t grid[3] = {(uint32_t)divide_up(p->n_tokens, c.n_tokens), (uint32_t)c.n_blocks,
                        (uint32_t)c.n_parts};
    TRY(gpu_start_overlapping(j, c.name, grid, (uint32_t)(c.n_groups * GROUP_THREADS),
                              c.shared_bytes, p, err));
    if (c.n_parts == 1)
        return LACE_OK;
    batch_finish f = {.parts = p->parts,
                      .n_weights = p->n_weights,
                      .n_parts = c.n_parts,
                      .n_tokens = p->n_tokens,
                      .part_stride = p->part_stride,
                      .adds = p->mode == BATCH_ADD};
    for (int i = 0; i < p->n_weights; i++) {
        f.bias[i] = p->bias[i];
        f.out[i] = p->out[i];
        f.out_stride[i] = p->out_stride[i];
        f.n_rows[i] = p->n_rows[i];
        f.part_offset[i] = p->part_offset[i];
    }
    if (left) {
        left->sums[left->n_sums++] = f;
        return LACE_OK;
    }
    uint32_t rows[3] = {(uint32_t)divide_up(p->part_stride, 256), (uint32_t)p->n_tokens, 1};
    return gpu_start_overlapping(j, "batch_finish_rows", rows, 256, 0, &f, err);
}

/* One weight of a step through the general kernels. */
static lace_status run_general(const gpu_job *j, const step *s, int i, lace_error *err)
{
    step one = *s;
    one.a.matmul.weights[0] = s->a.matmul.weights[i];
    one.a.matmul.biases[0] = s->a.matmul.biases[i];
    one.a.matmul.n_weights = 1;
    one.out[0] = s->out[i];
    return gpu_launch_matmul(j, &one, err);
}

static tile_kind kind_of(const step *s, int i)
{
    return tile_kind_of(s->a.matmul.weights[i]->type);
}

static lace_status launch_matmul(const gpu_job *j, const step *s, lace_error *err)
{
    int64_t n = n_rows_of(j, s);
    bool is_glu = s->op == OP_MATMUL_GLU;
    if (n < 2 || (is_glu && (kind_of(s, 0) == TILE_F32 || kind_of(s, 0) != kind_of(s, 1))))
        return gpu_launch_matmul(j, s, err);
    if (gpu_is_small_batch(j, s))
        return gpu_launch_small_batch(j, s, err);
    pile scratch = {j->scratch, 0};
    atoms x[3] = {{0}}; /* in the order of int and of half kinds, and rotated */
    bool is_done[STEP_MAX_OUT] = {false};
    gpu_handover *left = gpu_leaves_parts(j, s) ? j->handover : NULL;
    for (int first = 0; first < s->a.matmul.n_weights; first++) {
        tile_kind kind = kind_of(s, first);
        if (is_done[first])
            continue;
        if (kind == TILE_F32) {
            TRY(run_general(j, s, first, err));
            continue;
        }
        atoms *a = &x[is_half(kind) ? 1 : tile_is_rotated(kind) ? 2 : 0];
        if (!a->x && (tile_is_rotated(kind) ||
                      !gpu_handed_over(j, s, n, is_half(kind) ? ROWS_ATOMS_HALF : ROWS_ATOMS_INT,
                                       &a->x, &a->scales)))
            TRY(make_atoms(j, &s->in[0], NULL, n, kind, &scratch, a, err));
        batch_matmul p = {.n_tiles = divide_up(s->in[0].width, tile_cols(kind)),
                          .x = a->x,
                          .x_scales = a->scales,
                          .n_tokens = (int32_t)n,
                          .mode = is_glu                   ? BATCH_GLU
                                  : s->op == OP_MATMUL_ADD ? BATCH_ADD
                                                           : BATCH_STORE,
                          .glu = (int32_t)s->a.matmul.glu,
                          .scale = kind_scale(kind, s->a.matmul.scale)};
        for (int i = first; i < s->a.matmul.n_weights; i++) {
            if (kind_of(s, i) != kind)
                continue;
            const weight *w = s->a.matmul.weights[i];
            const operand *out = &s->out[is_glu ? 0 : i];
            p.weights[p.n_weights] = w->data;
            p.bias[p.n_weights] = s->a.matmul.biases[i];
            p.out[p.n_weights] = (float *)out->data;
            p.out_stride[p.n_weights] = (int64_t)(out->stride / 4);
            p.n_rows[p.n_weights++] = (int32_t)w->n_rows;
            is_done[i] = true;
        }
        pile rest = scratch; /* parts are free again after their sums */
        TRY(run_product(j, &p, kind, left ? &scratch : &rest, left, err));
    }
    return LACE_OK;
}

/* ---- Experts --------------------------------------------------------------------------------- */

static int64_t max_slots(const step *s, int64_t n_tokens)
{
    int64_t n_items = n_tokens * s->a.moe.n_used, n = s->a.moe.n_experts;
    int64_t used = n_items < n ? n_items : n; /* experts that have any */
    return (int64_t)round_up((uint64_t)(n_items + 7 * used), 8);
}

static lace_status launch_moe(const gpu_job *j, const step *s, lace_error *err)
{
    int64_t n = s->is_output ? j->batch->n_outputs : j->batch->n_tokens;
    bool is_glu = s->op == OP_MOE_GLU;
    const weight *experts = is_glu ? s->a.moe.gate : s->a.moe.down;
    tile_kind kind = tile_kind_of(experts->type);
    int32_t n_experts = s->a.moe.n_experts;
    if (n < 2 || kind == TILE_F32 || n_experts < 2 ||
        (is_glu && tile_kind_of(s->a.moe.up->type) != kind))
        return gpu_launch_moe(j, s, err);

    pile scratch = {j->scratch, 0};
    int64_t n_slots = max_slots(s, n);
    batch_sort sort = {.choices = (const gpu_choice *)s->in[1].data,
                       .choice_stride = (int64_t)(s->in[1].stride / 8),
                       .begin = take(&scratch, 4 * ((uint64_t)n_experts + 1)),
                       .count = take(&scratch, 4 * (uint64_t)n_experts),
                       .items = take(&scratch, 4 * (uint64_t)n_slots),
                       .tokens = take(&scratch, 4 * (uint64_t)n_slots),
                       .n_tokens = (int32_t)n,
                       .n_used = s->a.moe.n_used,
                       .n_experts = n_experts,
                       .n_slots = (int32_t)n_slots};
    uint32_t one[3] = {1, 1, 1};
    TRY(gpu_start_overlapping(j, "batch_sort_items", one, 1024, 4 * ((uint32_t)n_experts + 1),
                              &sort, err));
    atoms x;
    TRY(make_atoms(j, &s->in[0], is_glu ? sort.tokens : sort.items, n_slots, kind, &scratch, &x,
                   err));

    batch_matmul p = {.n_weights = is_glu ? 2 : 1,
                      .n_tiles = divide_up(experts->n_cols, tile_cols(kind)),
                      .x = x.x,
                      .x_scales = x.scales,
                      .n_tokens = (int32_t)n_slots,
                      .mode = is_glu ? BATCH_GLU : BATCH_STORE,
                      .glu = (int32_t)s->a.moe.glu,
                      .scale = kind_scale(kind, 1),
                      .slots = {.begin = sort.begin,
                                .count = sort.count,
                                .rows = sort.items,
                                .n_slots = (int32_t)n_slots,
                                .n_experts = n_experts}};
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
        p.out[0] = take(&scratch, 4 * (uint64_t)(n * s->a.moe.n_used) * (uint64_t)experts->n_rows);
    }
    /* An expert has few of the tokens, but may have all. */
    int64_t typical = 2 * n * s->a.moe.n_used / n_experts;
    int width = width_for(typical < n ? typical : n);
    p.blocks = count_blocks(&p, 4);
    uint32_t grid[3] = {(uint32_t)divide_up(n, widths[width]), (uint32_t)(p.blocks * n_experts), 1};
    TRY(gpu_start_overlapping(j, matmul_names[kind][width], grid, 4 * GROUP_THREADS,
                              shared_bytes(j->g, kind, widths[width], 4, 16), &p, err));
    if (is_glu)
        return LACE_OK;
    gpu_combine c = {.rows = p.out[0],
                     .choices = sort.choices,
                     .out = (float *)s->out[0].data,
                     .rows_stride = experts->n_rows,
                     .choice_stride = sort.choice_stride,
                     .out_stride = (int64_t)(s->out[0].stride / 4),
                     .width = (int32_t)experts->n_rows,
                     .n_used = s->a.moe.n_used,
                     .scale = s->a.moe.scale};
    uint32_t rows[3] = {(uint32_t)n, 1, 1};
    return gpu_start(j, "combine_rows", rows, 256, 0, &c, err);
}

/* ---- Attention ------------------------------------------------------------------------------- */

enum {
    N_DIMS = 3,
    MIN_RUN = 8,
    PART_KEYS = 128,
    RUN_ROWS = 64,
    RUN_KEYS = 32,
    RUN_THREADS = 128,
    MAX_CONTEXT_PARTS = 32
};

static const struct {
    int32_t dim;
    const char *run[2], *single[2]; /* the second for models whose weights are floats */
} dims[N_DIMS] = {
#define DIM(d)                                                                                     \
    {                                                                                              \
        d, {"attend_run_" #d, "attend_run_exact_" #d},                                             \
        {                                                                                          \
            "attend_single_" #d, "attend_single_exact_" #d                                         \
        }                                                                                          \
    }
    DIM(64), DIM(128), DIM(256)
#undef DIM
};

static int dim_for(int32_t head_dim)
{
    int i = 0;
    while (i < N_DIMS && dims[i].dim < head_dim)
        i++;
    return i;
}

/* Tokens from `t` on that follow each other in one sequence. */
static int32_t run_length(const gpu_batch *b, int32_t t)
{
    int32_t n = 1;
    while (t + n < b->n_tokens && b->host_sequences[t + n] == b->host_sequences[t] &&
           b->host->positions[t + n] == b->host->positions[t] + n)
        n++;
    return n;
}

static uint32_t run_bytes(const gpu_job *j, int d)
{
    uint32_t bytes = (uint32_t)((RUN_ROWS + 4 * RUN_KEYS) * (2 * dims[d].dim + 16));
    return j->is_exact ? 2 * bytes : bytes;
}

static lace_status attend_run(const gpu_job *j, batch_attend *p, int d, lace_error *err)
{
    int32_t tokens = RUN_ROWS / (p->a.n_heads / p->a.cache.n_heads);
    uint32_t grid[3] = {(uint32_t)divide_up(p->n_tokens, tokens), (uint32_t)p->a.cache.n_heads, 1};
    return gpu_start_overlapping(j, dims[d].run[j->is_exact], grid, RUN_THREADS, run_bytes(j, d), p,
                                 err);
}

/* The same for single tokens: parts of all warps, and results. */
static uint32_t single_bytes(const batch_attend *p, int d)
{
    int32_t results = p->a.n_heads / p->a.cache.n_heads * p->a.cache.head_dim;
    return (uint32_t)(4 * 16 * (dims[d].dim + 2) * 4 + 4 * results);
}

/* Short contexts of one token cost little, so that nothing is rounded there. */
static bool is_short(const gpu_batch *b)
{
    return b->n_tokens < 2 && b->host->positions[0] < PART_KEYS;
}

/* Whether all of the batch is attended to at once, for a product of a few tokens behind it. */
static bool leaves_slabs(const gpu_job *j, const step *s, const batch_attend *p)
{
    const step *next = s + 1;
    return j->handover && next < j->end && p->n_parts == 1 && p->n_tokens == j->batch->n_tokens &&
           p->a.n_heads / p->a.cache.n_heads * p->a.cache.head_dim % SMALL_COLS == 0 &&
           gpu_is_small_batch(j, next) && next->in[0].value == s->out[0].value && !next->is_output;
}

static lace_status attend_singles(const gpu_job *j, const step *s, batch_attend *p, int d,
                                  lace_error *err)
{
    bool is_exact = j->is_exact || is_short(j->batch);
    int32_t longest = 0;
    for (int32_t i = 0; i < p->n_tokens; i++) {
        int32_t position = j->batch->host->positions[p->token0 + i];
        longest = position > longest ? position : longest;
    }
    longest++;
    int32_t n_blocks = p->n_tokens * p->a.cache.n_heads;
    int32_t wanted = divide_up(3 * j->g->info.n_processors, n_blocks);
    int32_t most = divide_up(longest, PART_KEYS);
    p->n_parts = wanted < most ? wanted : most;
    if (p->n_parts > MAX_CONTEXT_PARTS)
        p->n_parts = MAX_CONTEXT_PARTS;
    p->part_keys = (int32_t)round_up((uint64_t)divide_up(longest, p->n_parts), RUN_ROWS);
    p->parts = (float *)j->scratch;
    p->slabs = NULL;
    if (leaves_slabs(j, s, p)) {
        p->slabs = j->handover->memory;
        j->handover->made = s;
        j->handover->n_rows = p->n_tokens;
        j->handover->form = ROWS_SLABS;
    }
    uint32_t grid[3] = {(uint32_t)p->n_tokens, (uint32_t)p->a.cache.n_heads, (uint32_t)p->n_parts};
    TRY(gpu_start_overlapping(j, dims[d].single[is_exact], grid, 128, single_bytes(p, d), p, err));
    if (p->n_parts == 1)
        return LACE_OK;
    uint32_t heads[3] = {(uint32_t)p->n_tokens, (uint32_t)p->a.n_heads, 1};
    return gpu_start_overlapping(j, "attend_parts", heads, 128, 0, p, err);
}

static lace_status launch_attend(const gpu_job *j, const step *s, lace_error *err)
{
    const kv_layer *kv = &s->kv;
    const gpu_batch *b = j->batch;
    int32_t per_head = s->a.attend.n_heads / kv->n_heads;
    int d = dim_for(kv->head_dim);
    int shift = 0;
    while (1 << shift < kv->page_tokens)
        shift++;
    if (d == N_DIMS || kv->head_dim % 8 != 0 || per_head > 16 || 1 << shift != kv->page_tokens ||
        run_bytes(j, d) > (uint32_t)j->g->info.max_shared_bytes)
        return gpu_launch_attend(j, s, err);
    batch_attend p = {.a = gpu_attend_of(j, s), .page_shift = shift};
    for (int32_t t = 0; t < b->n_tokens;) {
        int32_t n = run_length(b, t);
        p.token0 = t;
        if (n >= MIN_RUN) {
            p.n_tokens = n;
            TRY(attend_run(j, &p, d, err));
            t += n;
            continue;
        }
        /* All short runs up to the next long one, token by token. */
        while (t < b->n_tokens && (n = run_length(b, t)) < MIN_RUN)
            t += n;
        p.n_tokens = t - p.token0;
        TRY(attend_singles(j, s, &p, d, err));
    }
    return LACE_OK;
}

/* ---- The table ------------------------------------------------------------------------------- */

void gpu_launchers_init_batched(gpu_launchers *l)
{
    l->ops[OP_MATMUL] = l->ops[OP_MATMUL_ADD] = launch_matmul;
    l->ops[OP_MATMUL_GROUP] = l->ops[OP_MATMUL_GLU] = launch_matmul;
    l->ops[OP_MOE_GLU] = l->ops[OP_MOE_DOWN] = launch_moe;
    l->ops[OP_ATTEND] = launch_attend;
    l->ops[OP_RMS_NORM] = gpu_launch_norm_batched;
    l->ops[OP_ROPE_KV] = gpu_launch_rope_batched;
}

uint64_t gpu_batched_scratch_bytes(const gpu *g, const step *s, int64_t n_rows, int64_t n_context)
{
    uint64_t n = (uint64_t)n_rows, bytes = 4096;
    switch (s->op) {
    case OP_MATMUL:
    case OP_MATMUL_ADD:
    case OP_MATMUL_GROUP:
    case OP_MATMUL_GLU: {
        /* Atoms in all orders; parts only for up to 128 tokens. */
        uint64_t rows = 0, few = n < 128 ? n : 128;
        for (int i = 0; i < s->a.matmul.n_weights; i++)
            rows += (uint64_t)s->a.matmul.weights[i]->n_rows;
        /* Blocks of 256 rows, each on a processor of its own at most. */
        uint64_t parts = 256 * ((uint64_t)g->info.n_processors + 3);
        parts *= (uint64_t)s->a.matmul.n_weights; /* a product for each kind of weights */
        uint64_t many = 3 * (atom_bytes(s->in[0].width, n_rows) + 4 * n + 512) +
                        4 * few * (rows > parts ? rows : parts) + 256;
        return bytes +
               (many > gpu_small_batch_scratch_bytes(s) ? many : gpu_small_batch_scratch_bytes(s));
    }
    case OP_MOE_GLU:
    case OP_MOE_DOWN: {
        const weight *w = s->op == OP_MOE_GLU ? s->a.moe.gate : s->a.moe.down;
        int64_t slots = max_slots(s, n_rows);
        return bytes + 16 * (uint64_t)s->a.moe.n_experts + 12 * (uint64_t)slots +
               atom_bytes(w->n_cols, slots) +
               4 * n * (uint64_t)s->a.moe.n_used * (uint64_t)w->n_rows;
    }
    case OP_ATTEND: {
        uint64_t parts = (uint64_t)divide_up(n_context, PART_KEYS);
        parts = parts < MAX_CONTEXT_PARTS ? parts : MAX_CONTEXT_PARTS;
        /* More than one part only while there are few blocks. */
        uint64_t blocks = n * (uint64_t)s->kv.n_heads;
        uint64_t most = 4 * (uint64_t)g->info.n_processors + blocks;
        uint64_t used = blocks * parts < most ? blocks * parts : most;
        uint64_t per_head = (uint64_t)(s->a.attend.n_heads / s->kv.n_heads);
        return bytes + 4 * used * per_head * (uint64_t)(2 + s->kv.head_dim);
    }
    default:
        return 0;
    }
}
