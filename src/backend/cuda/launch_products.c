/*
 * Products of many rows: prefill, and batches of several sequences.
 *
 * Rows become f16 atoms, scaled row by row (batch_rows.cu), and go through matmul_batch_* or, of
 * prompts, matmul_wide_*: one read of the weights for up to 128 or 256 rows. Where a matrix has too
 * few rows to give every processor a block, K is cut into parts whose sums are added afterwards.
 * What these do not cover (f32 weights, odd shapes, one row) goes to the general kernels.
 */
#include "backend/cuda/launch_products.h"

#include "base/numbers.h"
#include "backend/cuda/bytes_params.h"
#include "backend/cuda/handover.h"
#include "backend/cuda/launch_bytes.h"

/* ---- Atoms ----------------------------------------------------------------------------------- */

bool tile_is_half_kind(tile_kind kind)
{
    return kind == TILE_F16 || kind == TILE_BF16;
}

/* 64s of values of a row, as many as the tiles of the kind cover. */
static int32_t n_k64(tile_kind kind, int64_t n_cols)
{
    return divide_up(n_cols, tile_cols(kind)) * (tile_cols(kind) / 64);
}

uint64_t atoms_bytes(int64_t n_cols, int64_t n_rows)
{
    return round_up((uint64_t)n_cols, 256) * round_up((uint64_t)n_rows, 8) * 2;
}

void *pile_take(pile *p, uint64_t n_bytes)
{
    void *at = p->at + p->used;
    p->used += round_up(n_bytes, 256);
    return at;
}

/* Many rows of few values are made by a warp each: a block has not enough to do with one. */
enum { SHORT_WIDTH = 2048, SHORT_ROWS = 1024 };

lace_status atoms_make(const gpu_job *j, const operand *x, const int32_t *map, int64_t n_rows,
                       tile_kind kind, pile *scratch, atoms *out, lace_error *err)
{
    out->x = pile_take(scratch, atoms_bytes(x->width, n_rows));
    out->scales = pile_take(scratch, 4 * (uint64_t)n_rows);
    batch_atoms p = {.x = (const float *)x->data,
                     .map = map,
                     .out = out->x,
                     .scales = out->scales,
                     .x_stride = (int64_t)(x->stride / 4),
                     .width = (int32_t)x->width,
                     .n_rows = (int32_t)n_rows,
                     .n_k64 = n_k64(kind, x->width),
                     .is_half = tile_is_half_kind(kind),
                     .rotates = tile_is_rotated(kind)};
    uint32_t n = (uint32_t)round_up((uint64_t)n_rows, 8), grid[3] = {n, 1, 1},
             eighths[3] = {n / 8, 1, 1};
    if (x->width <= SHORT_WIDTH && n_rows >= SHORT_ROWS)
        return gpu_start(j, "batch_atoms_short_rows", eighths, 256, 0, &p, err);
    return gpu_start(j, "batch_atoms_rows", grid, 512, 0, &p, err);
}

/* ---- The cut --------------------------------------------------------------------------------- */

enum { N_WIDTHS = 4, N_WIDE = 2, N_EXPERTS = 2 };

static const int32_t widths[N_WIDTHS] = {8, 32, 64, 128}; /* tokens of a block */
static const int32_t wide_widths[N_WIDE] = {128, 256};    /* of one with two groups */

static const char *const matmul_names[TILE_COUNT][N_WIDTHS] = {
#define X(id, name, n_bytes, n_cols)                                                               \
    [TILE_##id] = {"matmul_batch_" #id "_8", "matmul_batch_" #id "_32", "matmul_batch_" #id "_64", \
                   "matmul_batch_" #id "_128"},
    TILE_LIST(X)
#undef X
};

/* Tokens of a block where two share a processor. */
static const int32_t expert_widths[N_EXPERTS] = {16, 32};

static const char *const expert_names[TILE_COUNT][N_EXPERTS] = {
#define X(id, name, n_bytes, n_cols)                                                               \
    [TILE_##id] = {"matmul_experts_" #id "_16", "matmul_experts_" #id "_32"},
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

/* The rings of cards without wgmma, as matmul_ring has them. */
static uint32_t ring_bytes(tile_kind kind, int n, int n_groups)
{
    int bytes = tile_bytes(kind), each = n <= 32 ? 32 : bytes > MATMUL_LARGE_TILE ? 64 : 128;
    int stages = tile_cols(kind) == 64 ? 3 : 2;
    int all = 3 * each * 128 + 4 * n_groups * stages * bytes;
    int glu = n_groups / 2 * GROUP_ROWS * (each + 1) * 4;
    return (uint32_t)(all > glu ? all : glu);
}

int batch_most_groups(const gpu *g)
{
    return g->can.wgmma ? 4 : 2;
}

/* As matmul_batch.cuh counts it; at least what gates need to meet. n_sharing: blocks that are on a
 * processor at once. */
static uint32_t shared_bytes(const gpu *g, tile_kind kind, int n, int n_groups, int most_warps,
                             int n_sharing)
{
    int bytes = tile_bytes(kind);
    if (!g->can.wgmma)
        return ring_bytes(kind, n, n_groups);
    int stride = bytes % 128 ? (bytes + 96 + 127) / 128 * 128 : bytes;
    int stages = bytes > 3000 ? 2 : tile_cols(kind) == 64 ? 4 : 3;
    int steps = n_sharing > 1 ? 64 / n : n < 64 ? 4 : n < 128 ? 2 : 1;
    steps = tile_cols(kind) / 64 < steps ? tile_cols(kind) / 64 : steps;
    int stage_bytes = n * 128 * steps;
    int room = (227 * 1024 - 1024 * n_sharing) / n_sharing - most_warps * stages * stride;
    int atom_stages = room / stage_bytes, most = n < 64 ? 8 : 6;
    atom_stages = atom_stages < most ? atom_stages : most;
    int glu = n_groups / 2 * GROUP_ROWS * ((n < 32 ? 32 : n) + 1) * 4;
    int all = atom_stages * (stage_bytes + 16) + 4 * n_groups * stages * (stride + 8);
    return (uint32_t)(all > glu ? all : glu);
}

float batch_kind_scale(tile_kind kind, float scale)
{
    return tile_is_half_kind(kind) ? scale : scale / 256.0f;
}

/* How a product is cut: groups of 64 rows and tokens of a block, blocks, parts of K. */
typedef struct cut {
    int n_groups, n_helping, n_tokens, n_blocks, n_parts;
    const char *name;
    uint32_t cluster, shared_bytes;
} cut;

enum { MAX_PARTS = 16 };

int batch_count_blocks(const batch_matmul *p, int n_groups)
{
    if (p->mode == BATCH_GLU)
        return divide_up(p->n_rows[0], n_groups / 2 * GROUP_ROWS);
    int n = 0;
    for (int i = 0; i < p->n_weights; i++)
        n += divide_up(p->n_rows[i], n_groups * GROUP_ROWS);
    return n;
}

/*
 * Into how many parts K may be cut so that all blocks still find a processor at once, each part with
 * at least two tiles of 256 values and none of them empty. Gates meet in a block and are not cut.
 */
static int count_parts(const gpu *g, const batch_matmul *p, tile_kind kind, int64_t n_blocks)
{
    int64_t n = p->mode == BATCH_GLU ? 1 : g->info.n_processors / n_blocks;
    n = min_i64(n, p->n_tiles / (2 * 256 / tile_cols(kind)));
    n = min_i64(n, MAX_PARTS);
    int tiles = divide_up(p->n_tiles, n < 1 ? 1 : n);
    return divide_up(p->n_tiles, tiles);
}

/*
 * Prompts: 128 rows and as many tokens as let the processors end soonest. Twice the tokens take
 * twice the time, less an eighth (Q4_K, K = 4096 on an H200: 37 and 64 us). Half of K takes half
 * the time, and an eighth of a block for the sums of parts. False if blocks of 256 rows are sooner
 * still (62 us, but 67 where they are many).
 */
static bool choose_wide(const gpu *g, const batch_matmul *p, tile_kind kind, cut *out)
{
    int n_processors = g->info.n_processors;
    cut c = {.n_groups = 2, .n_blocks = batch_count_blocks(p, 2)};
    int64_t best = INT64_MAX;
    for (int i = 0; i < N_WIDE; i++) {
        int64_t n_all = (int64_t)c.n_blocks * divide_up(p->n_tokens, wide_widths[i]);
        int n_parts = count_parts(g, p, kind, n_all);
        int64_t each = i == 0 ? 8 : 14;
        int64_t time = n_parts > 1 ? each / n_parts + 1 : each * divide_up(n_all, n_processors);
        if (time >= best)
            continue;
        best = time;
        c.n_tokens = wide_widths[i];
        c.n_parts = n_parts;
        c.name = wide_names[kind][i];
    }
    c.shared_bytes = shared_bytes(g, kind, c.n_tokens, 2, 8, 1);
    *out = c;
    int64_t n_usual = (int64_t)batch_count_blocks(p, 4) * divide_up(p->n_tokens, 128);
    return p->n_tokens >= 1024 || best <= 13 * (int64_t)divide_up(n_usual, n_processors);
}

/*
 * Blocks of 256 rows, the cheapest, if there are enough of them; else of 128, or parts of K until
 * every processor has a block.
 */
static cut choose_cut(const gpu *g, const batch_matmul *p, tile_kind kind)
{
    int n_processors = g->info.n_processors;
    int width = width_for(p->n_tokens);
    int32_t n_tiles_x = divide_up(p->n_tokens, widths[width]);
    cut c = {.n_groups = batch_most_groups(g),
             .n_tokens = widths[width],
             .name = matmul_names[kind][width]};
    c.n_blocks = batch_count_blocks(p, c.n_groups);
    if (c.n_groups > 2 && c.n_blocks * n_tiles_x * 2 <= n_processors + n_processors / 8 &&
        (p->mode == BATCH_GLU || n_tiles_x > 1)) {
        c.n_groups = 2;
        c.n_blocks = batch_count_blocks(p, 2);
    }
    c.n_parts = count_parts(g, p, kind, (int64_t)c.n_blocks * n_tiles_x);
    c.shared_bytes = shared_bytes(g, kind, c.n_tokens, c.n_groups, 16, 1);
    return c;
}

batch_kernel batch_kernel_for(const gpu *g, tile_kind kind, int64_t n_tokens, int n_groups)
{
    int width = width_for(n_tokens);
    return (batch_kernel){.name = matmul_names[kind][width],
                          .n_tokens = widths[width],
                          .n_groups = n_groups,
                          .n_sharing = 1,
                          .shared_bytes = shared_bytes(g, kind, widths[width], n_groups, 16, 1)};
}

batch_kernel batch_kernel_for_experts(const gpu *g, tile_kind kind, int64_t n_tokens)
{
    int i = n_tokens > expert_widths[0];
    if (n_tokens > expert_widths[N_EXPERTS - 1])
        return batch_kernel_for(g, kind, n_tokens, batch_most_groups(g));
    return (batch_kernel){.name = expert_names[kind][i],
                          .n_tokens = expert_widths[i],
                          .n_groups = 2,
                          .n_sharing = 2,
                          .shared_bytes = shared_bytes(g, kind, expert_widths[i], 2, 8, 2)};
}

/* ---- Launches -------------------------------------------------------------------------------- */

/* int8 products: blocks of 128 rows. */
static cut choose_bytes(const gpu *g, const batch_matmul *p, tile_kind kind)
{
    batch_kernel k = bytes_kernel_for(g, p, kind, batch_count_blocks(p, 2));
    cut c = {.n_groups = k.n_groups,
             .n_helping = k.n_helping,
             .n_tokens = k.n_tokens,
             .n_blocks = batch_count_blocks(p, k.n_groups),
             .name = k.name,
             .cluster = k.cluster,
             .shared_bytes = k.shared_bytes};
    c.n_parts = count_parts(g, p, kind, (int64_t)c.n_blocks * divide_up(p->n_tokens, c.n_tokens));
    return c;
}

/* Parts that the next step adds up are left where they are, in `left`. */
static lace_status run_product(const gpu_job *j, bytes_matmul *b, tile_kind kind, bool is_bytes,
                               pile *scratch, gpu_handover *left, lace_error *err)
{
    batch_matmul *p = &b->m; /* first in it: kernels in f16 take that */
    cut c;
    if (is_bytes)
        c = choose_bytes(j->g, p, kind);
    else if (p->n_tokens <= 128 || tile_is_half_kind(kind) || !j->g->can.wgmma ||
             !choose_wide(j->g, p, kind, &c))
        c = choose_cut(j->g, p, kind);
    p->part_stride = 0;
    for (int i = 0; i < p->n_weights; i++) {
        p->part_offset[i] = p->part_stride;
        p->part_stride += p->n_rows[i];
    }
    if (c.n_parts > 1)
        p->parts = pile_take(scratch, 4 * (uint64_t)c.n_parts * (uint64_t)p->n_tokens *
                                          (uint64_t)p->part_stride);
    if (is_bytes)
        TRY(bytes_weights(j, b, kind, c.n_blocks, scratch, err));
    uint32_t cluster = c.cluster > 1 ? c.cluster : 1;
    uint32_t grid[3] = {cluster * (uint32_t)divide_up(p->n_tokens, c.n_tokens),
                        (uint32_t)c.n_blocks / cluster, (uint32_t)c.n_parts};
    TRY(gpu_start_clusters(j, c.name, grid, cluster,
                           (uint32_t)((c.n_groups + c.n_helping) * GROUP_THREADS), c.shared_bytes,
                           b, err));
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
    return gpu_start(j, "batch_finish_rows", rows, 256, 0, &f, err);
}

/* One weight of a step through the general kernels. */
static lace_status run_general(const gpu_job *j, const step *s, int i, lace_error *err)
{
    step one = *s;
    one.a.matmul.weights[0] = s->a.matmul.weights[i];
    one.a.matmul.biases[0] = s->a.matmul.biases[i];
    one.a.matmul.n_weights = 1;
    one.out[0] = s->out[i];
    return gpu_launch_general(j, &one, err);
}

static tile_kind kind_of(const step *s, int i)
{
    return tile_kind_of(s->a.matmul.weights[i]->type);
}

bool gpu_product_is_batched(const step *s, int64_t n_rows)
{
    return n_rows >= 2 && !(s->op == OP_MATMUL_GLU &&
                            (kind_of(s, 0) == TILE_F32 || kind_of(s, 0) != kind_of(s, 1) ||
                             !gpu_glu_is_fused(s->a.matmul.glu)));
}

/* The rows that a product reads, in the order that its kind wants: handed over, or made once. */
static lace_status rows_for(const gpu_job *j, const device_step *d, tile_kind kind, bool is_bytes,
                            int64_t n, pile *scratch, atoms *a, lace_error *err)
{
    row_form form = is_bytes                  ? ROWS_BYTES
                    : tile_is_half_kind(kind) ? ROWS_ATOMS_HALF
                                              : ROWS_ATOMS_INT;
    const operand *x = &d->first->in[0];
    if (a->x)
        return LACE_OK;
    if (d->takes != form || tile_is_rotated(kind))
        return (is_bytes ? bytes_make : atoms_make)(j, x, NULL, n, kind, scratch, a, err);
    if (is_bytes)
        gpu_handover_bytes_at(j->handover, x->width, n, &a->x, &a->units, &a->scales);
    else
        gpu_handover_atoms(j->handover, n, &a->x, &a->scales);
    return LACE_OK;
}

/* All weights of the kind, from `first` on, in one product. */
static bytes_matmul product_of(const step *s, int first, int64_t n, const atoms *a, bool is_bytes,
                               bool *is_done)
{
    tile_kind kind = kind_of(s, first);
    bool is_glu = s->op == OP_MATMUL_GLU;
    float scale = s->a.matmul.scale;
    bytes_matmul b = {.m = {.n_tiles = divide_up(s->in[0].width, tile_cols(kind)),
                            .x = a->x,
                            .x_scales = a->scales,
                            .n_tokens = (int32_t)n,
                            .mode = is_glu                   ? BATCH_GLU
                                    : s->op == OP_MATMUL_ADD ? BATCH_ADD
                                                             : BATCH_STORE,
                            .glu = (int32_t)s->a.matmul.glu,
                            .scale = is_bytes ? scale : batch_kind_scale(kind, scale)},
                      .units = a->units};
    batch_matmul *p = &b.m;
    for (int i = first; i < s->a.matmul.n_weights; i++) {
        if (kind_of(s, i) != kind)
            continue;
        const weight *w = s->a.matmul.weights[i];
        const operand *out = &s->out[is_glu ? 0 : i];
        b.far[p->n_weights] = bytes_far(w->type);
        p->weights[p->n_weights] = w->data;
        p->bias[p->n_weights] = s->a.matmul.biases[i];
        p->out[p->n_weights] = (float *)out->data;
        p->out_stride[p->n_weights] = (int64_t)(out->stride / 4);
        p->n_rows[p->n_weights++] = (int32_t)w->n_rows;
        is_done[i] = true;
    }
    return b;
}

lace_status gpu_launch_products(const gpu_job *j, const device_step *d, lace_error *err)
{
    const step *s = d->first;
    int64_t n = gpu_rows_of(j, s);
    pile scratch = {j->scratch, 0};
    /* In the order of int and of half kinds, and rotated; the same for int8 products. */
    atoms x[2][3] = {{{0}}};
    bool is_done[STEP_MAX_OUT] = {false};
    gpu_handover *left = d->leaves == ROWS_PARTS ? j->handover : NULL;
    for (int first = 0; first < s->a.matmul.n_weights; first++) {
        tile_kind kind = kind_of(s, first);
        if (is_done[first])
            continue;
        if (kind == TILE_F32) {
            TRY(run_general(j, s, first, err));
            continue;
        }
        bool is_bytes = gpu_product_is_bytes(j->g, s, first, n);
        atoms *a = &x[is_bytes][tile_is_half_kind(kind) ? 1 : tile_is_rotated(kind) ? 2 : 0];
        TRY(rows_for(j, d, kind, is_bytes, n, &scratch, a, err));
        bytes_matmul p = product_of(s, first, n, a, is_bytes, is_done);
        pile rest = scratch; /* parts are free again after their sums */
        TRY(run_product(j, &p, kind, is_bytes, left ? &scratch : &rest, left, err));
    }
    return LACE_OK;
}

uint64_t gpu_products_scratch_bytes(const gpu *g, const step *s, int64_t n_rows)
{
    /* Atoms in all orders, which int8 takes less for; parts: blocks of 256 rows and 128 tokens, or the other way round, each on
     * a processor of its own at most. */
    uint64_t n = (uint64_t)n_rows, rows = 0, cut_rows = n < 128 ? n : 128;
    for (int i = 0; i < s->a.matmul.n_weights; i++)
        rows += (uint64_t)s->a.matmul.weights[i]->n_rows;
    uint64_t parts = 256 * ((uint64_t)g->info.n_processors + 3);
    parts *= (uint64_t)s->a.matmul.n_weights; /* a product for each kind of weights */
    return bytes_scratch(g, s, n_rows) + 3 * (atoms_bytes(s->in[0].width, n_rows) + 4 * n + 512) +
           4 * cut_rows * (rows > parts ? rows : parts) + 256;
}
