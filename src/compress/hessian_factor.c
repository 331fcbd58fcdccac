/*
 * Factors of Hessians, and what they are good for.
 *
 * H = R R' with R upper triangular: a Cholesky decomposition from the last row up. Then R^-1 is
 * upper triangular too, and is the factor of the inverse that is wanted. Both are computed in
 * doubles, tile by tile: a tile of 64 x 64 is what one worker updates at a time, by products of
 * whole rows of tiles. n is filled up to whole tiles with the identity.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/numbers.h"
#include "compress/hessian.h"
#include "backend/host_loops.h"
#include "backend/host_matrix.h"
#include "tensor/rotate.h"

enum { TILE = DENSE_TILE, TILE_VALUES = TILE * TILE };

/* What is being factorized. */
typedef struct factoring {
    const hessian *s;
    hessian_factor *out;
    const dense_ops *ops;
    int64_t n_tiles;  /* in a row */
    int64_t stride;   /* of a, no multiple of 4 KB: rows would fight for the same sets of a cache */
    double *a;        /* [64 n_tiles, stride] H, then R; only its upper half */
    double *inverses; /* [n_tiles][64, 64] of the diagonal tiles of R */
    double *panels;   /* [workers][64 n_tiles, 64]; in decomposing, the first is the row at work */
    double add;       /* damping */
    int64_t at;       /* row of tiles at work */
    handout pieces;
} factoring;

/* ---- H, damped and rotated ------------------------------------------------------------------- */

static double sum_at(const hessian *s, int64_t i, int64_t k)
{
    return k <= i ? s->h[i * s->n + k] : s->h[k * s->n + i];
}

/* R x R' of 128 x 128 values, n apart. */
static void rotate_square(float *x, int64_t n)
{
    float columns[ROTATE_VALUES][ROTATE_VALUES];
    for (int i = 0; i < ROTATE_VALUES; i++) {
        rotate_128(x + i * n, x + i * n);
        for (int k = 0; k < ROTATE_VALUES; k++)
            columns[k][i] = x[i * n + k];
    }
    for (int k = 0; k < ROTATE_VALUES; k++) {
        rotate_128(columns[k], columns[k]);
        for (int i = 0; i < ROTATE_VALUES; i++)
            x[i * n + k] = columns[k][i];
    }
}

enum { STRIP = ROTATE_VALUES };

/* Rows of out->h, 128 at a time, from the diagonal on; and of a, which the padding belongs to. */
static void fill_strips(void *arg, int me, int n_workers)
{
    factoring *f = arg;
    hessian_factor *out = f->out;
    int64_t n = out->n, n_padded = f->n_tiles * TILE;
    double per_row = 1.0 / (double)(f->s->n_rows > 0 ? f->s->n_rows : 1);
    uint32_t n_pieces = (uint32_t)((n + STRIP - 1) / STRIP), piece;
    while (handout_claim(&f->pieces, n_pieces, &piece)) {
        int64_t begin = (int64_t)piece * STRIP, end = begin + STRIP < n ? begin + STRIP : n;
        for (int64_t i = begin; i < end; i++)
            for (int64_t k = begin; k < n; k++)
                out->h[i * n + k] = (float)(sum_at(f->s, i, k) * per_row + (i == k ? f->add : 0.0));
        for (int64_t k = begin; k < n && out->is_rotated; k += STRIP)
            rotate_square(out->h + begin * n + k, n);
        for (int64_t i = begin; i < end; i++) {
            for (int64_t k = i; k < n; k++)
                f->a[i * f->stride + k] = out->h[i * n + k];
            for (int64_t k = n; k < n_padded; k++)
                f->a[i * f->stride + k] = 0;
        }
    }
}

/* The lower half of out->h, from the upper one. */
static void mirror_strips(void *arg, int me, int n_workers)
{
    factoring *f = arg;
    int64_t n = f->out->n;
    float *h = f->out->h;
    uint32_t n_pieces = (uint32_t)((n + STRIP - 1) / STRIP), piece;
    while (handout_claim(&f->pieces, n_pieces, &piece)) {
        int64_t begin = (int64_t)piece * STRIP, end = begin + STRIP < n ? begin + STRIP : n;
        for (int64_t k = 0; k < end; k++)
            for (int64_t i = k < begin ? begin : k + 1; i < end; i++)
                h[i * n + k] = h[k * n + i];
    }
}

static void fill(factoring *f, pool *workers)
{
    int64_t n = f->out->n, n_padded = f->n_tiles * TILE;
    f->pieces = (handout){0};
    pool_run(workers, fill_strips, f);
    f->pieces = (handout){0};
    pool_run(workers, mirror_strips, f);
    for (int64_t i = n; i < n_padded; i++)
        for (int64_t k = i; k < n_padded; k++)
            f->a[i * f->stride + k] = i == k;
}

/* ---- R --------------------------------------------------------------------------------------- */

static double *tile_at(const factoring *f, int64_t row, int64_t col)
{
    return f->a + row * TILE * f->stride + col * TILE;
}

/* A tile of a on the diagonal becomes that of R. False if it is not positive. */
static bool decompose_tile(double *a, int64_t stride)
{
    for (int64_t j = TILE - 1; j >= 0; j--) {
        double *row = a + j * stride, d = row[j];
        for (int64_t k = j + 1; k < TILE; k++)
            d -= row[k] * row[k];
        if (!(d > 0) || !isfinite(d))
            return false;
        row[j] = sqrt(d);
        for (int64_t i = 0; i < j; i++) {
            double sum = a[i * stride + j];
            for (int64_t k = j + 1; k < TILE; k++)
                sum -= a[i * stride + k] * row[k];
            a[i * stride + j] = sum / row[j];
        }
    }
    return true;
}

/* The inverse of an upper triangular tile, row by row from the last one. */
static void invert_tile(const double *r, int64_t stride, double *u)
{
    memset(u, 0, TILE_VALUES * sizeof *u);
    for (int64_t i = TILE - 1; i >= 0; i--) {
        double per = 1 / r[i * stride + i];
        for (int64_t k = i + 1; k < TILE; k++)
            for (int64_t j = k; j < TILE; j++)
                u[i * TILE + j] -= r[i * stride + k] * per * u[k * TILE + j];
        u[i * TILE + i] = per;
    }
}

/* Tiles of the column at work, less what the columns behind it account for. */
static void update_column(void *arg, int me, int n_workers)
{
    factoring *f = arg;
    uint32_t piece;
    int64_t behind = f->at + 1;
    while (handout_claim(&f->pieces, (uint32_t)f->at + 1, &piece))
        f->ops->update(tile_at(f, piece, f->at), f->stride, tile_at(f, piece, behind), f->stride,
                       f->panels, (f->n_tiles - behind) * TILE);
}

/* Those above the diagonal, divided by it: X R' = A, with the inverse of R at hand. */
static void divide_column(void *arg, int me, int n_workers)
{
    factoring *f = arg;
    const double *inverse = f->inverses + f->at * TILE_VALUES;
    double b[TILE_VALUES], old[TILE_VALUES];
    uint32_t piece;
    for (int i = 0; i < TILE; i++)
        for (int k = 0; k < TILE; k++)
            b[k * TILE + i] = -inverse[i * TILE + k];
    while (handout_claim(&f->pieces, (uint32_t)f->at, &piece)) {
        double *tile = tile_at(f, piece, f->at);
        for (int i = 0; i < TILE; i++) {
            memcpy(old + i * TILE, tile + i * f->stride, TILE * sizeof *old);
            memset(tile + i * f->stride, 0, TILE * sizeof *tile);
        }
        f->ops->update(tile, f->stride, old, TILE, b, TILE);
    }
}

static bool decompose(factoring *f, pool *workers)
{
    for (f->at = f->n_tiles - 1; f->at >= 0; f->at--) {
        double *diagonal = tile_at(f, f->at, f->at);
        for (int64_t k = (f->at + 1) * TILE; k < f->n_tiles * TILE; k++)
            for (int i = 0; i < TILE; i++) /* its row of R, transposed */
                f->panels[(k - (f->at + 1) * TILE) * TILE + i] =
                    f->a[(f->at * TILE + i) * f->stride + k];
        f->pieces = (handout){0};
        pool_run(workers, update_column, f);
        if (!decompose_tile(diagonal, f->stride))
            return false;
        invert_tile(diagonal, f->stride, f->inverses + f->at * TILE_VALUES);
        f->pieces = (handout){0};
        pool_run(workers, divide_column, f);
    }
    return true;
}

/* ---- R^-1 ------------------------------------------------------------------------------------ */

/* Columns of tiles of the inverse: each needs nothing of the others. */
static void invert_columns(void *arg, int me, int n_workers)
{
    factoring *f = arg;
    hessian_factor *out = f->out;
    double *panel = f->panels + (int64_t)me * f->n_tiles * TILE_VALUES;
    double sum[TILE_VALUES], negative[TILE_VALUES];
    uint32_t piece;
    while (handout_claim(&f->pieces, (uint32_t)f->n_tiles, &piece)) {
        int64_t j = f->n_tiles - 1 - piece; /* the longest first */
        memcpy(panel + j * TILE_VALUES, f->inverses + j * TILE_VALUES, sizeof sum);
        for (int64_t i = j - 1; i >= 0; i--) {
            double *to = panel + i * TILE_VALUES;
            memset(sum, 0, sizeof sum);
            memset(to, 0, sizeof sum);
            f->ops->update(sum, TILE, tile_at(f, i, i + 1), f->stride,
                           panel + (i + 1) * TILE_VALUES, (j - i) * TILE);
            for (int k = 0; k < TILE_VALUES; k++)
                negative[k] = -f->inverses[i * TILE_VALUES + k];
            f->ops->update(to, TILE, negative, TILE, sum, TILE);
        }
        int64_t begin = j * TILE, end = begin + TILE < out->n ? begin + TILE : out->n;
        for (int64_t i = 0; i < end; i++)
            for (int64_t k = begin; k < end; k++)
                out->u[i * out->n + k] = (float)panel[i * TILE + k - begin];
        for (int64_t i = 0; i < end; i++)
            for (int64_t k = begin; k < end; k++)
                out->r[i * out->n + k] = (float)f->a[i * f->stride + k];
    }
}

/* Both by the device of the sums. */
static lace_status factorize_there(const factoring *f, lace_error *err)
{
    hessian_factor *out = f->out;
    int64_t n = out->n, n_padded = f->n_tiles * TILE;
    if (n == n_padded)
        return large_math_factorize(f->s->math, f->a, n, f->stride, out->r, out->u, err);
    float *r = mem_alloc((size_t)(2 * n_padded * n_padded) * sizeof *r),
          *u = r + n_padded * n_padded;
    if (!r)
        return error_nomem(err, "the factors of a Hessian");
    lace_status status = large_math_factorize(f->s->math, f->a, n_padded, f->stride, r, u, err);
    for (int64_t i = 0; i < n && status == LACE_OK; i++) {
        memcpy(out->r + i * n, r + i * n_padded, (size_t)n * sizeof *r);
        memcpy(out->u + i * n, u + i * n_padded, (size_t)n * sizeof *u);
    }
    mem_free(r);
    return status;
}

/* By the host. */
static lace_status factorize_here(factoring *f, pool *workers)
{
    if (!decompose(f, workers))
        return LACE_E_NUMERIC;
    f->pieces = (handout){0};
    pool_run(workers, invert_columns, f);
    return LACE_OK;
}

lace_status hessian_factorize(const hessian *s, bool is_rotated, double damping,
                              hessian_factor *out, pool *workers, lace_error *err)
{
    int64_t n = s->n;
    size_t count = (size_t)(n * n);
    assert(s->n_held == 0 && (!is_rotated || n % ROTATE_VALUES == 0));
    factoring f = {.s = s, .out = out, .ops = dense_ops_detect(), .n_tiles = (n + TILE - 1) / TILE};
    f.stride = f.n_tiles * TILE + 8;
    size_t n_padded = (size_t)(f.n_tiles * TILE);
    *out = (hessian_factor){.n = n, .is_rotated = is_rotated};
    if (s->status != LACE_OK) {
        if (err)
            *err = s->err;
        return s->status;
    }
    f.a = mem_alloc(n_padded * (size_t)f.stride * sizeof *f.a);
    f.inverses = mem_alloc(n_padded * TILE * sizeof *f.inverses);
    f.panels = mem_alloc((size_t)pool_size(workers) * n_padded * TILE * sizeof *f.panels);
    out->h = mem_alloc(count * sizeof *out->h);
    out->u = mem_calloc(count, sizeof *out->u);
    out->r = mem_alloc(count * sizeof *out->r);
    lace_status status = f.a && f.inverses && f.panels && out->h && out->u && out->r
                             ? LACE_OK
                             : error_nomem(err, "the factors of a Hessian");
    if (status == LACE_OK) {
        double mean = 0;
        for (int64_t i = 0; i < n; i++)
            mean += s->h[i * n + i] / (double)(s->n_rows > 0 ? s->n_rows : 1) / (double)n;
        f.add = damping * mean + 1e-12;
        fill(&f, workers);
        status = s->math ? factorize_there(&f, err) : factorize_here(&f, workers);
        if (status == LACE_E_NUMERIC)
            error_set(err, status, "the inputs of a matrix are not finite numbers");
    }
    if (status != LACE_OK)
        hessian_factor_deinit(out);
    mem_free_all(f.a, f.inverses, f.panels);
    return status;
}

void hessian_factor_deinit(hessian_factor *f)
{
    mem_free_all(f->h, f->u, f->r);
    triangle_deinit(&f->by_u);
    triangle_deinit(&f->by_u_transposed);
    triangle_deinit(&f->by_r);
    *f = (hessian_factor){0};
}

/* ---- Correction ------------------------------------------------------------------------------ */

typedef struct correcting {
    const hessian *s;
    const hessian_factor *f;
    float *change;  /* [n, n] (C - H)' / n_rows, rotated as the factor */
    uint8_t *tiles; /* the same, packed */
    float *rows;
    int64_t n_rows;
    uint8_t *scratch; /* of each worker: two times [TRIANGLE_MAX_ROWS, n], a block, the kernel's */
    uint64_t scratch_bytes, kernel_bytes;
    handout strips, pieces;
} correcting;

/* Rows of the change, transposed: 128 of them. */
static void make_change(void *arg, int me, int n_workers)
{
    correcting *c = arg;
    int64_t n = c->f->n;
    double per_row = 1.0 / (double)c->s->n_rows;
    uint32_t n_pieces = (uint32_t)((n + STRIP - 1) / STRIP), piece;
    while (handout_claim(&c->strips, n_pieces, &piece)) {
        int64_t begin = (int64_t)piece * STRIP, end = begin + STRIP < n ? begin + STRIP : n;
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = begin; k < end; k++)
                c->change[k * n + i] = (float)((c->s->c[i * n + k] - sum_at(c->s, i, k)) * per_row);
        for (int64_t i = 0; i < n && c->f->is_rotated; i += STRIP)
            rotate_square(c->change + begin * n + i, n);
        if (c->tiles)
            host_matrix_pack(c->change, n, n, begin, end, c->tiles);
    }
}

static void rotate_row(float *x, int64_t n, bool is_back)
{
    for (int64_t i = 0; i < n; i += ROTATE_VALUES)
        (is_back ? unrotate_128 : rotate_128)(x + i, x + i);
}

static void correct_rows(void *arg, int me, int n_workers)
{
    correcting *c = arg;
    const hessian_factor *f = c->f;
    int64_t n = f->n;
    float *v = (float *)(c->scratch + (uint64_t)me * c->scratch_bytes);
    float *z = v + TRIANGLE_MAX_ROWS * n, *block = z + TRIANGLE_MAX_ROWS * n;
    uint8_t *kernel = (uint8_t *)(block + TRIANGLE_MAX_ROWS * TRIANGLE_BLOCK);
    host_matrix change = {n, n, c->tiles};
    uint32_t n_pieces = (uint32_t)((c->n_rows + TRIANGLE_MAX_ROWS - 1) / TRIANGLE_MAX_ROWS), piece;
    while (handout_claim(&c->pieces, n_pieces, &piece)) {
        int64_t first = (int64_t)piece * TRIANGLE_MAX_ROWS;
        int64_t count =
            c->n_rows - first < TRIANGLE_MAX_ROWS ? c->n_rows - first : TRIANGLE_MAX_ROWS;
        float *w = c->rows + first * n;
        for (int64_t r = 0; r < count && f->is_rotated; r++)
            rotate_row(w + r * n, n, false);
        host_matrix_multiply(&change, n, w, n, count, v, n, kernel);
        for (int64_t at = 0; at < n; at += TRIANGLE_BLOCK) { /* z = U v */
            int64_t width = n - at < TRIANGLE_BLOCK ? n - at : TRIANGLE_BLOCK;
            triangle_multiply(&f->by_u, at, v, count, block, kernel);
            for (int64_t r = 0; r < count; r++)
                memcpy(z + r * n + at, block + r * TRIANGLE_BLOCK, (size_t)width * sizeof *z);
        }
        for (int64_t at = 0; at < n; at += TRIANGLE_BLOCK) { /* w += U' z */
            int64_t width = n - at < TRIANGLE_BLOCK ? n - at : TRIANGLE_BLOCK;
            triangle_multiply(&f->by_u_transposed, at, z, count, block, kernel);
            for (int64_t r = 0; r < count; r++)
                for (int64_t i = 0; i < width; i++)
                    w[r * n + at + i] += block[r * TRIANGLE_BLOCK + i];
        }
        for (int64_t r = 0; r < count && f->is_rotated; r++)
            rotate_row(w + r * n, n, true);
    }
}

typedef struct turning {
    float *rows;
    int64_t n_rows, n;
    bool is_back;
    handout pieces;
} turning;

static void turn_rows(void *arg, int me, int n_workers)
{
    turning *t = arg;
    uint32_t row;
    while (handout_claim(&t->pieces, (uint32_t)t->n_rows, &row))
        rotate_row(t->rows + (int64_t)row * t->n, t->n, t->is_back);
}

/* By the device of the sums. */
static lace_status correct_there(const hessian *s, const hessian_factor *f, float *rows,
                                 int64_t n_rows, pool *workers, lace_error *err)
{
    int64_t n = s->n;
    correcting c = {.s = s, .f = f, .change = mem_alloc((size_t)(n * n) * sizeof *c.change)};
    if (!c.change)
        return error_nomem(err, "a correction");
    pool_run(workers, make_change, &c);
    turning to = {.rows = rows, .n_rows = n_rows, .n = n}, back = to;
    back.is_back = true;
    if (f->is_rotated)
        pool_run(workers, turn_rows, &to);
    lace_status status = large_math_correct(s->math, c.change, f->u, n, rows, n_rows, err);
    if (f->is_rotated)
        pool_run(workers, turn_rows, &back);
    mem_free(c.change);
    return status;
}

lace_status hessian_correct(const hessian *s, hessian_factor *f, float *rows, int64_t n_rows,
                            pool *workers, lace_error *err)
{
    int64_t n = s->n;
    uint64_t n_tiles = host_matrix_bytes(n, n);
    if (s->math)
        return correct_there(s, f, rows, n_rows, workers, err);
    if (!f->by_u.data)
        TRY(triangle_init(&f->by_u, f->u, n, false, workers, err));
    if (!f->by_u_transposed.data)
        TRY(triangle_init(&f->by_u_transposed, f->u, n, true, workers, err));
    correcting c = {.s = s, .f = f, .rows = rows, .n_rows = n_rows};
    c.scratch_bytes =
        4 * TRIANGLE_MAX_ROWS * (uint64_t)(2 * n + TRIANGLE_BLOCK) + triangle_scratch_bytes(n);
    c.scratch_bytes = round_up(c.scratch_bytes, 64);
    c.change = mem_alloc((size_t)(n * n) * sizeof *c.change);
    c.tiles = mem_map(n_tiles);
    c.scratch = mem_map((size_t)pool_size(workers) * c.scratch_bytes);
    lace_status status =
        c.change && c.tiles && c.scratch ? LACE_OK : error_nomem(err, "a correction");
    if (status == LACE_OK) {
        pool_run(workers, make_change, &c);
        pool_run(workers, correct_rows, &c);
    }
    mem_free(c.change);
    mem_unmap(c.tiles, n_tiles);
    mem_unmap(c.scratch, (size_t)pool_size(workers) * c.scratch_bytes);
    return status;
}
