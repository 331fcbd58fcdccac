/*
 * Sums and factors of large matrices on a card (large_math.cu).
 *
 * The factor is made from the last column of tiles to the first, each less what the columns behind
 * it account for; its inverse diagonal by diagonal, of which all tiles are independent.
 */
#include <string.h>

#include "backend/cuda/gpu.h"
#include "backend/cuda/math_params.h"
#include "backend/large_math.h"
#include "base/mem.h"

_Static_assert((int)LARGE_MATH_TILE == (int)MATH_TILE, "callers fill up to whole tiles");

typedef struct cuda_math {
    large_math base;
    gpu *g;
    cuda_queue *queue;
    int64_t n;
    double *h, *c; /* [n, n] on the card */
    float *rows;   /* of x, then of y: [2][rows_capacity, n] */
    int64_t rows_capacity;
} cuda_math;

/* ---- Launching ------------------------------------------------------------------------------- */

static lace_status start(const cuda_math *m, const char *name, int64_t n_blocks, int64_t n_blocks_y,
                         uint32_t threads, const void *params, lace_error *err)
{
    cuda_launch l = {.grid = {(uint32_t)n_blocks, (uint32_t)n_blocks_y, 1}, .block = {threads}};
    TRY(gpu_prepare(m->g, name, 0, &l.kernel, err));
    void *arguments[] = {(void *)(uintptr_t)params};
    return cuda_run(m->queue, &l, arguments, err);
}

static lace_status take_doubles(const cuda_math *m, int64_t n, double **out, lace_error *err)
{
    return cuda_alloc(m->g->device, (uint64_t)n * sizeof **out, (void **)out, err);
}

/* ---- Sums ------------------------------------------------------------------------------------ */

static void free_sums(cuda_math *m)
{
    cuda_free(m->g->device, m->h);
    cuda_free(m->g->device, m->c);
    cuda_free(m->g->device, m->rows);
    m->h = m->c = NULL;
    m->rows = NULL;
    m->rows_capacity = 0;
}

static lace_status begin_sums(large_math *base, int64_t n, bool has_other, lace_error *err)
{
    cuda_math *m = (cuda_math *)base;
    uint64_t n_bytes = (uint64_t)(n * n) * sizeof(double);
    free_sums(m);
    m->n = n;
    TRY(take_doubles(m, n * n, &m->h, err));
    TRY(cuda_fill(m->queue, m->h, 0, n_bytes, err));
    if (!has_other)
        return LACE_OK;
    TRY(take_doubles(m, n * n, &m->c, err));
    return cuda_fill(m->queue, m->c, 0, n_bytes, err);
}

/* Rows one behind the other. */
static lace_status send_rows(cuda_math *m, const float *from, int64_t stride, int64_t n_rows,
                             float *to, lace_error *err)
{
    if (stride == m->n)
        return cuda_copy_to(m->queue, to, from, (uint64_t)(n_rows * m->n) * sizeof *to, err);
    for (int64_t i = 0; i < n_rows; i++)
        TRY(cuda_copy_to(m->queue, to + i * m->n, from + i * stride, (uint64_t)m->n * sizeof *to,
                         err));
    return LACE_OK;
}

static lace_status add(large_math *base, const float *x, const float *y, int64_t stride,
                       int64_t n_rows, lace_error *err)
{
    cuda_math *m = (cuda_math *)base;
    int64_t n = m->n, n_tiles = (n + MATH_SUM_TILE - 1) / MATH_SUM_TILE;
    if (n_rows > m->rows_capacity) {
        TRY(cuda_wait(m->queue, err));
        cuda_free(m->g->device, m->rows);
        m->rows = NULL;
        m->rows_capacity = 0;
        TRY(cuda_alloc(m->g->device, 2 * (uint64_t)(n_rows * n) * sizeof *m->rows,
                       (void **)&m->rows, err));
        m->rows_capacity = n_rows;
    }
    float *y_rows = m->rows + m->rows_capacity * n;
    TRY(send_rows(m, x, stride, n_rows, m->rows, err));
    math_sum p = {.x = m->rows,
                  .y = m->rows,
                  .out = m->h,
                  .n = (int32_t)n,
                  .n_rows = (int32_t)n_rows,
                  .is_lower = 1};
    TRY(start(m, "math_sum_rows", n_tiles, n_tiles, MATH_THREADS, &p, err));
    if (m->c) {
        TRY(send_rows(m, y, stride, n_rows, y_rows, err));
        p.y = y_rows;
        p.out = m->c;
        p.is_lower = 0;
        TRY(start(m, "math_sum_rows", n_tiles, n_tiles, MATH_THREADS, &p, err));
    }
    return cuda_wait(m->queue, err); /* the caller's rows may change now */
}

static lace_status take_sums(large_math *base, double *h, double *c, lace_error *err)
{
    cuda_math *m = (cuda_math *)base;
    uint64_t n_bytes = (uint64_t)(m->n * m->n) * sizeof *h;
    TRY(cuda_copy_from(m->queue, h, m->h, n_bytes, err));
    if (c)
        TRY(cuda_copy_from(m->queue, c, m->c, n_bytes, err));
    TRY(cuda_wait(m->queue, err));
    free_sums(m);
    return LACE_OK;
}

/* ---- Factors --------------------------------------------------------------------------------- */

typedef struct factoring {
    const cuda_math *m;
    int64_t n_tiles, stride;
    double *a;        /* [n, n] then R */
    double *u;        /* [n, n] */
    double *inverses; /* [n_tiles][64, 64] */
    double *products; /* the same */
    float *floats;    /* [n, n] */
    int32_t *is_bad;
} factoring;

enum { TILE_VALUES = MATH_TILE * MATH_TILE };

static double *tile_at(const factoring *f, double *of, int64_t row, int64_t col)
{
    return of + row * MATH_TILE * f->stride + col * MATH_TILE;
}

static lace_status update(const factoring *f, const math_update *p, int64_t n_blocks,
                          lace_error *err)
{
    return n_blocks > 0 && p->k > 0
               ? start(f->m, "math_update_tiles", n_blocks, 1, MATH_THREADS, p, err)
               : LACE_OK;
}

static lace_status decompose(const factoring *f, lace_error *err)
{
    int64_t row = MATH_TILE * f->stride;
    for (int64_t at = f->n_tiles - 1; at >= 0; at--) {
        double *column = tile_at(f, f->a, 0, at), *inverse = f->inverses + at * TILE_VALUES;
        math_update less = {.c = column,
                            .a = tile_at(f, f->a, 0, at + 1),
                            .b = tile_at(f, f->a, at, at + 1),
                            .c_stride = f->stride,
                            .a_stride = f->stride,
                            .b_stride = f->stride,
                            .c_step = row,
                            .a_step = row,
                            .k = (int32_t)((f->n_tiles - at - 1) * MATH_TILE),
                            .is_transposed = 1,
                            .use = MATH_SUBTRACT};
        TRY(update(f, &less, at + 1, err));
        math_tile diagonal = {.a = tile_at(f, f->a, at, at),
                              .stride = f->stride,
                              .inverse = inverse,
                              .is_bad = f->is_bad};
        TRY(start(f->m, "math_factor_tile", 1, 1, MATH_TILE, &diagonal, err));
        math_update divide = {.c = column,
                              .a = column,
                              .b = inverse,
                              .c_stride = f->stride,
                              .a_stride = f->stride,
                              .b_stride = MATH_TILE,
                              .c_step = row,
                              .a_step = row,
                              .k = MATH_TILE,
                              .is_transposed = 1,
                              .use = MATH_SET};
        TRY(update(f, &divide, at, err));
    }
    return LACE_OK;
}

/* u[i][j] = -inverse[i] (r[i][i + 1 .. j] u[i + 1 .. j][j]), of all tiles with the same j - i. */
static lace_status invert(const factoring *f, lace_error *err)
{
    int64_t along = MATH_TILE * f->stride + MATH_TILE; /* from a tile to the next of its diagonal */
    math_update diagonal = {.c = f->u, .c_stride = f->stride};
    for (int64_t d = 0; d < f->n_tiles; d++) {
        if (d > 0) {
            math_update product = {.c = f->products,
                                   .a = tile_at(f, f->a, 0, 1),
                                   .b = tile_at(f, f->u, 1, d),
                                   .c_stride = MATH_TILE,
                                   .a_stride = f->stride,
                                   .b_stride = f->stride,
                                   .c_step = TILE_VALUES,
                                   .a_step = along,
                                   .b_step = along,
                                   .k = (int32_t)(d * MATH_TILE),
                                   .use = MATH_SET};
            TRY(update(f, &product, f->n_tiles - d, err));
        }
        diagonal = (math_update){.c = tile_at(f, f->u, 0, d),
                                 .a = f->inverses,
                                 .b = f->products,
                                 .c_stride = f->stride,
                                 .a_stride = MATH_TILE,
                                 .b_stride = MATH_TILE,
                                 .c_step = along,
                                 .a_step = TILE_VALUES,
                                 .b_step = TILE_VALUES,
                                 .k = MATH_TILE,
                                 .use = d > 0 ? MATH_SET_NEGATIVE : MATH_SET};
        TRY(update(f, &diagonal, f->n_tiles - d, err));
    }
    return LACE_OK;
}

/* The identity, in each of the products: the first diagonal of u is that of the inverses. */
static lace_status fill_identity(const factoring *f, lace_error *err)
{
    double one[TILE_VALUES] = {0};
    for (int i = 0; i < MATH_TILE; i++)
        one[i * MATH_TILE + i] = 1;
    for (int64_t t = 0; t < f->n_tiles; t++)
        TRY(cuda_copy_to(f->m->queue, f->products + t * TILE_VALUES, one, sizeof one, err));
    return cuda_wait(f->m->queue, err);
}

static lace_status send_upper(const factoring *f, double *from, float *to, lace_error *err)
{
    int64_t n = f->n_tiles * MATH_TILE;
    math_upper p = {.from = from, .stride = f->stride, .to = f->floats, .n = (int32_t)n};
    TRY(start(f->m, "math_upper_floats", n, 1, MATH_THREADS, &p, err));
    TRY(cuda_copy_from(f->m->queue, to, f->floats, (uint64_t)(n * n) * sizeof *to, err));
    return cuda_wait(f->m->queue, err);
}

static lace_status run_factoring(factoring *f, const double *a, int64_t stride, float *r, float *u,
                                 lace_error *err)
{
    int64_t n = f->n_tiles * MATH_TILE;
    int32_t is_bad = 0;
    TRY(take_doubles(f->m, n * n, &f->a, err));
    TRY(take_doubles(f->m, n * n, &f->u, err));
    TRY(take_doubles(f->m, n * MATH_TILE, &f->inverses, err));
    TRY(take_doubles(f->m, n * MATH_TILE, &f->products, err));
    TRY(cuda_alloc(f->m->g->device, (uint64_t)(n * n) * sizeof *f->floats, (void **)&f->floats,
                   err));
    TRY(cuda_alloc(f->m->g->device, sizeof *f->is_bad, (void **)&f->is_bad, err));
    TRY(cuda_fill(f->m->queue, f->is_bad, 0, sizeof *f->is_bad, err));
    for (int64_t i = 0; i < n; i++)
        TRY(cuda_copy_to(f->m->queue, f->a + i * n, a + i * stride, (uint64_t)n * sizeof *a, err));
    TRY(decompose(f, err));
    TRY(cuda_copy_from(f->m->queue, &is_bad, f->is_bad, sizeof is_bad, err));
    TRY(cuda_wait(f->m->queue, err));
    if (is_bad)
        return error_set(err, LACE_E_NUMERIC, "the matrix is not positive definite");
    TRY(fill_identity(f, err));
    TRY(invert(f, err));
    TRY(send_upper(f, f->a, r, err));
    return send_upper(f, f->u, u, err);
}

static lace_status factorize(large_math *base, const double *a, int64_t n, int64_t stride, float *r,
                             float *u, lace_error *err)
{
    cuda_math *m = (cuda_math *)base;
    cuda_device *d = m->g->device;
    factoring f = {.m = m, .n_tiles = n / MATH_TILE, .stride = n};
    lace_status status = run_factoring(&f, a, stride, r, u, err);
    cuda_wait(m->queue, NULL);
    void *parts[] = {f.a, f.u, f.inverses, f.products, f.floats, f.is_bad};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        cuda_free(d, parts[i]);
    return status;
}

/* ---- Corrections ----------------------------------------------------------------------------- */

typedef struct correcting {
    float *change, *u;   /* [n, n] */
    float *rows, *a, *b; /* [n_rows, n] */
} correcting;

static lace_status take_floats(const cuda_math *m, int64_t n, float **out, lace_error *err)
{
    return cuda_alloc(m->g->device, (uint64_t)n * sizeof **out, (void **)out, err);
}

static lace_status run_correcting(const cuda_math *m, correcting *c, const float *change,
                                  const float *u, int64_t n, float *rows, int64_t n_rows,
                                  lace_error *err)
{
    uint64_t square = (uint64_t)(n * n) * sizeof *u, n_bytes = (uint64_t)(n_rows * n) * sizeof *u;
    int64_t n_tiles = (n + MATH_SUM_TILE - 1) / MATH_SUM_TILE;
    int64_t n_row_tiles = (n_rows + MATH_SUM_TILE - 1) / MATH_SUM_TILE;
    TRY(take_floats(m, n * n, &c->change, err));
    TRY(take_floats(m, n * n, &c->u, err));
    TRY(take_floats(m, n_rows * n, &c->rows, err));
    TRY(take_floats(m, n_rows * n, &c->a, err));
    TRY(take_floats(m, n_rows * n, &c->b, err));
    TRY(cuda_copy_to(m->queue, c->change, change, square, err));
    TRY(cuda_copy_to(m->queue, c->u, u, square, err));
    TRY(cuda_copy_to(m->queue, c->rows, rows, n_bytes, err));
    const math_product steps[] = {
        {.x = c->rows, .by = c->change, .out = c->a},
        {.x = c->a, .by = c->u, .out = c->b},
        {.x = c->b, .by = c->u, .out = c->rows, .is_transposed = 1, .adds = 1}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        math_product p = steps[i];
        p.n = (int32_t)n;
        p.n_rows = (int32_t)n_rows;
        TRY(start(m, "math_multiply_rows", n_tiles, n_row_tiles, MATH_THREADS, &p, err));
    }
    TRY(cuda_copy_from(m->queue, rows, c->rows, n_bytes, err));
    return cuda_wait(m->queue, err);
}

static lace_status correct(large_math *base, const float *change, const float *u, int64_t n,
                           float *rows, int64_t n_rows, lace_error *err)
{
    cuda_math *m = (cuda_math *)base;
    correcting c = {0};
    lace_status status = run_correcting(m, &c, change, u, n, rows, n_rows, err);
    cuda_wait(m->queue, NULL);
    float *parts[] = {c.change, c.u, c.rows, c.a, c.b};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        cuda_free(m->g->device, parts[i]);
    return status;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static void close(large_math *base)
{
    cuda_math *m = (cuda_math *)base;
    if (m->queue)
        cuda_wait(m->queue, NULL);
    if (m->g)
        free_sums(m);
    cuda_queue_free(m->queue);
    gpu_close(m->g);
    mem_free(m);
}

static const large_math_calls calls = {begin_sums, add, take_sums, factorize, correct, close};

lace_status cuda_math_open(int index, large_math **out, lace_error *err)
{
    *out = NULL;
    cuda_math *m = mem_calloc(1, sizeof *m);
    if (!m)
        return error_nomem(err, "a GPU's sums");
    m->base.calls = &calls;
    lace_status status = gpu_open(index, &m->g, err);
    if (status == LACE_OK)
        status = cuda_queue_create(m->g->device, &m->queue, err);
    if (status == LACE_OK)
        *out = &m->base;
    else
        close(&m->base);
    return status;
}
