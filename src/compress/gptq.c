/*
 * Quantizing a matrix with feedback.
 *
 * With H = R R' and U = R^-1 (hessian.h), the errors e, in units of their conditional deviations,
 * move a row by e U: what is written is w - e U. So what the columns of a block must make good is a
 * product of all errors before it with a part of U, and is computed for many rows at once; only
 * inside of a block columns are moved one after the other. The pull of coordinate descent, H (w -
 * points) = H U' e, is R e: another product.
 */
#include "compress/gptq.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/numbers.h"
#include "compress/trellis.h"
#include "backend/host_loops.h"
#include "tensor/rotate.h"

enum { N_PASSES = 8, GROUP = TRIANGLE_MAX_ROWS }; /* of coordinate descent, at most; of rows */

typedef struct job {
    const codec *c;
    const hessian_factor *f;
    const dense_ops *ops;
    const float *importance; /* [n] */
    float *rows;
    int64_t n_rows;
    uint8_t *blocks;
    uint8_t *scratch; /* of each worker */
    uint64_t scratch_bytes;
    handout pieces;
} job;

/* Rows at work. */
typedef struct group {
    int64_t n_rows;
    float *w;          /* [n_rows, n] the weights wanted */
    float *errors;     /* [n_rows, n] e */
    float *points;     /* [n_rows, n] what they will read back as */
    float *pull;       /* [n_rows, n] H (w - points) */
    float *part;       /* [n_rows, TRIANGLE_BLOCK] */
    uint8_t *kernel;   /* scratch of products */
    codec_grid *grids; /* [n_rows, n / n_values] */
    uint8_t *q;        /* [n_rows, n] */
} group;

static int64_t width_at(int64_t n, int64_t at)
{
    return n - at < TRIANGLE_BLOCK ? n - at : TRIANGLE_BLOCK;
}

/* Columns of a block in one row: left[width] is what is wanted of them, with the errors before. */
static void feed_row(const job *j, const group *g, int64_t row, int64_t begin, int64_t width,
                     float *left, uint8_t *blocks)
{
    int64_t n = j->f->n, per_block = j->c->n_values;
    int64_t block_bytes = dtype_describe(j->c->type)->block_bytes;
    float *points = g->points + row * n, *errors = g->errors + row * n;
    for (int64_t at = begin; at < begin + width; at += per_block) {
        codec_grid *grid = &g->grids[row * (n / per_block) + at / per_block];
        _Alignas(8) uint8_t block[CODEC_MAX_BYTES]; /* those in the row lie at any address */
        j->c->fit(left + at - begin, j->importance + at, block, grid);
        memcpy(blocks + at / per_block * block_bytes, block, (size_t)block_bytes);
        for (int64_t i = at; i < at + per_block; i++) {
            const float *u = j->f->u + i * n + i;
            float x = left[i - begin];
            g->q[row * n + i] =
                (uint8_t)codec_nearest(grid, (int)((i - at) / grid->group), x, &points[i]);
            errors[i] = (x - points[i]) / u[0];
            j->ops->subtract(left + i - begin, errors[i], u, begin + width - i);
        }
    }
}

static void feed_forward(const job *j, const group *g, uint8_t *blocks)
{
    int64_t n = j->f->n;
    uint64_t stride = row_bytes(j->c->type, n);
    memset(g->errors, 0, (size_t)(g->n_rows * n) * sizeof *g->errors);
    for (int64_t at = 0; at < n; at += TRIANGLE_BLOCK) {
        /* The errors of the block itself are still zeros. */
        triangle_multiply(&j->f->by_u_transposed, at, g->errors, g->n_rows, g->part, g->kernel);
        for (int64_t r = 0; r < g->n_rows; r++) {
            float *left = g->part + r * TRIANGLE_BLOCK;
            const float *w = g->w + r * n + at;
            for (int64_t i = 0; i < width_at(n, at); i++)
                left[i] = w[i] - left[i];
            feed_row(j, g, r, at, width_at(n, at), left, blocks + (uint64_t)r * stride);
        }
    }
}

/* Half of the least distance of two levels: what moves by less stays where it is. */
static float least_step(const codec_levels *l)
{
    float least = codec_level(l, 1) - codec_level(l, 0);
    for (int q = 2; q < l->n && l->table; q++) {
        float gap = codec_level(l, q) - codec_level(l, q - 1);
        least = gap < least ? gap : least;
    }
    return 0.5f * least;
}

/*
 * The value that fits best, with all others as they are, is its point and pull / h. Columns are
 * taken one after the other, each in all rows: then its row of H comes from memory once.
 */
static void descend(const job *j, const group *g)
{
    int64_t n = j->f->n, per_block = j->c->n_values;
    bool is_done[GROUP] = {0};
    for (int64_t at = 0; at < n; at += TRIANGLE_BLOCK) {
        triangle_multiply(&j->f->by_r, at, g->errors, g->n_rows, g->part, g->kernel);
        for (int64_t r = 0; r < g->n_rows; r++)
            memcpy(g->pull + r * n + at, g->part + r * TRIANGLE_BLOCK,
                   (size_t)width_at(n, at) * sizeof *g->pull);
    }
    float least = least_step(g->grids[0].levels);
    for (int pass = 0, n_left = 1; pass < N_PASSES && n_left > 0; pass++) {
        bool has_changed[GROUP] = {0};
        for (int64_t i = 0; i < n; i++) {
            const float *h = j->f->h + i * n;
            for (int64_t r = 0; r < g->n_rows; r++) {
                if (is_done[r])
                    continue;
                const codec_grid *grid = &g->grids[r * (n / per_block) + i / per_block];
                int part = (int)(i % per_block / grid->group);
                float *pull = g->pull + r * n, *at = &g->points[r * n + i], point;
                if (fabsf(pull[i]) < h[i] * fabsf(grid->scale[part]) * least)
                    continue;
                int q = codec_nearest(grid, part, *at + pull[i] / h[i], &point);
                if (q == g->q[r * n + i])
                    continue;
                j->ops->subtract(pull, point - *at, h, n);
                g->q[r * n + i] = (uint8_t)q;
                *at = point;
                has_changed[r] = true;
            }
        }
        n_left = 0;
        for (int64_t r = 0; r < g->n_rows; r++) {
            is_done[r] = !has_changed[r];
            n_left += has_changed[r];
        }
    }
}

/* ---- Groups of rows -------------------------------------------------------------------------- */

static uint64_t floats_bytes(int64_t n)
{
    return round_up(GROUP * (uint64_t)n * sizeof(float), 64);
}

static uint64_t grids_bytes(const codec *c, int64_t n)
{
    return round_up(GROUP * (uint64_t)(n / c->n_values) * sizeof(codec_grid), 64);
}

static uint64_t group_bytes(const codec *c, const hessian_factor *f)
{
    return 3 * floats_bytes(f->n) + floats_bytes(TRIANGLE_BLOCK) + triangle_scratch_bytes(f->n) +
           grids_bytes(c, f->n) + round_up(GROUP * (uint64_t)f->n, 64);
}

/* The parts of a worker's scratch. */
static group lay_out(const codec *c, const hessian_factor *f, uint8_t *scratch)
{
    group g = {.errors = (float *)scratch};
    g.points = (float *)(scratch += floats_bytes(f->n));
    g.pull = (float *)(scratch += floats_bytes(f->n));
    g.part = (float *)(scratch += floats_bytes(f->n));
    g.kernel = scratch += floats_bytes(TRIANGLE_BLOCK);
    g.grids = (codec_grid *)(scratch += triangle_scratch_bytes(f->n));
    g.q = scratch + grids_bytes(c, f->n);
    return g;
}

static void put_row(const job *j, const uint8_t *q, uint8_t *blocks)
{
    uint64_t block_bytes = (uint64_t)dtype_describe(j->c->type)->block_bytes;
    for (int64_t i = 0; i < j->f->n; i += j->c->n_values, blocks += block_bytes) {
        _Alignas(8) uint8_t block[CODEC_MAX_BYTES];
        memcpy(block, blocks, block_bytes);
        j->c->put(q + i, block);
        memcpy(blocks, block, block_bytes);
    }
}

static void quantize_groups(void *arg, int me, int n_workers)
{
    job *j = arg;
    int64_t n = j->f->n;
    uint64_t stride = row_bytes(j->c->type, n);
    group g = lay_out(j->c, j->f, j->scratch + (uint64_t)me * j->scratch_bytes);
    uint32_t n_pieces = (uint32_t)((j->n_rows + GROUP - 1) / GROUP), piece;
    while (handout_claim(&j->pieces, n_pieces, &piece)) {
        int64_t first = (int64_t)piece * GROUP;
        uint8_t *blocks = j->blocks + (uint64_t)first * stride;
        g.n_rows = j->n_rows - first < GROUP ? j->n_rows - first : GROUP;
        g.w = j->rows + first * n;
        for (int64_t i = 0; i < g.n_rows * n && j->c->is_rotated; i += ROTATE_VALUES)
            rotate_128(g.w + i, g.w + i);
        feed_forward(j, &g, blocks);
        descend(j, &g);
        for (int64_t r = 0; r < g.n_rows; r++)
            put_row(j, g.q + r * n, blocks + (uint64_t)r * stride);
    }
}

lace_status gptq_quantize(const codec *c, hessian_factor *f, float *rows, int64_t n_rows,
                          uint8_t *blocks, pool *workers, lace_error *err)
{
    int64_t n = f->n;
    assert(n % c->n_values == 0 && TRIANGLE_BLOCK % c->n_values == 0);
    if (!c->fit)
        return trellis_quantize(c->type, f, rows, n_rows, blocks, workers, err);
    if (!f->by_u_transposed.data)
        TRY(triangle_init(&f->by_u_transposed, f->u, n, true, workers, err));
    if (!f->by_r.data)
        TRY(triangle_init(&f->by_r, f->r, n, false, workers, err));
    job j = {.c = c,
             .f = f,
             .ops = dense_ops_detect(),
             .rows = rows,
             .n_rows = n_rows,
             .blocks = blocks,
             .scratch_bytes = group_bytes(c, f)};
    float *importance = mem_alloc((size_t)n * sizeof *importance);
    j.scratch = mem_map((size_t)pool_size(workers) * j.scratch_bytes);
    lace_status status = importance && j.scratch ? LACE_OK : error_nomem(err, "rows of weights");
    if (status == LACE_OK) {
        for (int64_t i = 0; i < n; i++)
            importance[i] = 1 / (f->u[i * n + i] * f->u[i * n + i]);
        j.importance = importance;
        pool_run(workers, quantize_groups, &j);
    }
    mem_free(importance);
    mem_unmap(j.scratch, (size_t)pool_size(workers) * j.scratch_bytes);
    return status;
}
