/* Hessians, their sums and their factors. */
#include "compress/hessian.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "tensor/rotate.h"

/* ---- Sums ------------------------------------------------------------------------------------ */

enum { BLOCK = 64 }; /* rows of the result that a worker takes */

/*
 * The products are those of a matrix kernel: its weights are the inputs transposed, in tiles, and
 * so are its activations. Scratch: x transposed, y transposed, tiles, and for each worker a block
 * of products and what the kernel wants.
 */
typedef struct adding {
    hessian *s;
    const matmul_impl *impl;
    int64_t n_tokens;
    float *xt, *yt;
    uint8_t *tiles;
    float *out; /* [workers][BLOCK, n] */
    uint8_t *kernel_scratch;
    uint64_t kernel_bytes;
    handout pieces;
} adding;

static uint64_t round_up(uint64_t n)
{
    return (n + 63) & ~(uint64_t)63;
}

static uint64_t tile_bytes(const matmul_impl *impl, int64_t n, int64_t n_tokens)
{
    return impl->packed_bytes ? impl->packed_bytes(DTYPE_F32, n, n_tokens)
                              : 4 * (uint64_t)(n * n_tokens);
}

enum { MAX_WORKERS = 64 };

lace_status hessian_init(hessian *s, int64_t n, int64_t n_tokens, bool has_other,
                         const kernel_table *kernels, lace_error *err)
{
    const matmul_impl *impl = kernels->exact[DTYPE_F32];
    uint64_t kernel = impl->scratch_bytes ? impl->scratch_bytes(n_tokens, BLOCK) : 0;
    *s = (hessian){.n = n};
    s->n_bytes = 2 * round_up(4 * (uint64_t)(n * n_tokens)) +
                 round_up(tile_bytes(impl, n, n_tokens)) +
                 MAX_WORKERS * (round_up(4 * BLOCK * (uint64_t)n) + round_up(kernel));
    s->h = mem_calloc((size_t)(n * n), sizeof *s->h);
    s->c = has_other ? mem_calloc((size_t)(n * n), sizeof *s->c) : NULL;
    s->scratch = mem_map(s->n_bytes);
    if (s->h && s->scratch && (s->c || !has_other))
        return LACE_OK;
    hessian_deinit(s);
    return error_nomem(err, "a Hessian");
}

void hessian_deinit(hessian *s)
{
    mem_free(s->h);
    mem_free(s->c);
    mem_unmap(s->scratch, s->n_bytes);
    *s = (hessian){0};
}

static void transpose(const float *x, int64_t stride, int64_t n_tokens, int64_t n, float *out)
{
    for (int64_t begin = 0; begin < n; begin += 16)
        for (int64_t t = 0; t < n_tokens; t++)
            for (int64_t i = begin; i < begin + 16 && i < n; i++)
                out[i * n_tokens + t] = x[t * stride + i];
}

static void add_block(const adding *a, int64_t begin, int64_t end, const float *rows,
                      int64_t n_cols, int me, double *to)
{
    hessian *s = a->s;
    float *out = a->out + (uint64_t)me * (round_up(4 * BLOCK * (uint64_t)s->n) / 4);
    weight w = {.type = DTYPE_F32,
                .n_rows = s->n,
                .n_cols = a->n_tokens,
                .data = a->tiles,
                .impl = a->impl};
    a->impl->rows(&w, 0, n_cols, (const uint8_t *)(rows + begin * a->n_tokens),
                  4 * (uint64_t)a->n_tokens, end - begin, out, s->n,
                  a->kernel_scratch + (uint64_t)me * a->kernel_bytes);
    for (int64_t i = begin; i < end; i++)
        for (int64_t k = 0; k < n_cols; k++)
            to[i * s->n + k] += out[(i - begin) * s->n + k];
}

static void add_pieces(void *arg, int me, int n_workers)
{
    adding *a = arg;
    int64_t n = a->s->n;
    uint32_t n_pieces = (uint32_t)((n + BLOCK - 1) / BLOCK), piece;
    while (handout_claim(&a->pieces, n_pieces, &piece)) {
        int64_t begin = (int64_t)piece * BLOCK, end = begin + BLOCK < n ? begin + BLOCK : n;
        /* Of the symmetric one only the lower half is summed up. */
        add_block(a, begin, end, a->xt, end, me, a->s->h);
        if (a->s->c)
            add_block(a, begin, end, a->yt, n, me, a->s->c);
    }
}

void hessian_add(hessian *s, const float *x, const float *y, int64_t stride, int64_t n_tokens,
                 const kernel_table *kernels, pool *workers)
{
    const matmul_impl *impl = kernels->exact[DTYPE_F32];
    uint64_t kernel = impl->scratch_bytes ? impl->scratch_bytes(n_tokens, BLOCK) : 0;
    adding a = {.s = s, .impl = impl, .n_tokens = n_tokens, .kernel_bytes = round_up(kernel)};
    uint8_t *at = (uint8_t *)s->scratch;
    assert(pool_size(workers) <= MAX_WORKERS);
    a.xt = (float *)at;
    at += round_up(4 * (uint64_t)(s->n * n_tokens));
    a.yt = (float *)at;
    at += round_up(4 * (uint64_t)(s->n * n_tokens));
    a.tiles = at;
    at += round_up(tile_bytes(impl, s->n, n_tokens));
    a.out = (float *)at;
    at += MAX_WORKERS * round_up(4 * BLOCK * (uint64_t)s->n);
    a.kernel_scratch = at;
    transpose(x, stride, n_tokens, s->n, a.xt);
    if (s->c)
        transpose(y, stride, n_tokens, s->n, a.yt);
    if (impl->pack)
        impl->pack(DTYPE_F32, (const uint8_t *)a.xt, s->n, n_tokens, 0, s->n, a.tiles);
    else
        memcpy(a.tiles, a.xt, 4 * (size_t)(s->n * n_tokens));
    pool_run(workers, add_pieces, &a);
    s->n_rows += n_tokens;
}

/* ---- Factors --------------------------------------------------------------------------------- */

/* R H R', where R rotates each 128 of the n coordinates. */
static void rotate_both(double *h, int64_t n)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < n; k += ROTATE_VALUES) {
                float x[ROTATE_VALUES];
                for (int j = 0; j < ROTATE_VALUES; j++)
                    x[j] = (float)h[i * n + k + j];
                rotate_128(x, x);
                for (int j = 0; j < ROTATE_VALUES; j++)
                    h[i * n + k + j] = x[j];
            }
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < i; k++) {
                double x = h[i * n + k];
                h[i * n + k] = h[k * n + i];
                h[k * n + i] = x;
            }
    }
}

static double dot(const double *a, const double *b, int64_t n)
{
    double s[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            s[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        s[0] += a[i] * b[i];
    return s[0] + s[1] + s[2] + s[3];
}

/*
 * H = R R' with R upper triangular, in place of the upper half: a Cholesky decomposition from the
 * last row up. Then R^-1 is upper triangular too, and is the factor of the inverse that is wanted.
 * False if H is not positive.
 */
static bool decompose(double *h, int64_t n)
{
    for (int64_t j = n - 1; j >= 0; j--) {
        double *row = h + j * n;
        double d = row[j] - dot(row + j + 1, row + j + 1, n - j - 1);
        if (!(d > 0) || !isfinite(d))
            return false;
        row[j] = sqrt(d);
        for (int64_t i = 0; i < j; i++)
            h[i * n + j] = (h[i * n + j] - dot(h + i * n + j + 1, row + j + 1, n - j - 1)) / row[j];
    }
    return true;
}

/* The inverse of an upper triangular matrix, row by row from the last one. */
static void invert(const double *r, int64_t n, double *u)
{
    for (int64_t i = n - 1; i >= 0; i--) {
        double *row = u + i * n, per = 1 / r[i * n + i];
        memset(row, 0, (size_t)n * sizeof *row);
        for (int64_t k = i + 1; k < n; k++) {
            double f = -r[i * n + k] * per;
            const double *from = u + k * n;
            for (int64_t j = k; j < n; j++)
                row[j] += f * from[j];
        }
        row[i] = per;
    }
}

lace_status hessian_factorize(const hessian *s, bool is_rotated, double damping,
                              hessian_factor *out, pool *workers, lace_error *err)
{
    int64_t n = s->n;
    size_t count = (size_t)(n * n);
    double *a = mem_alloc(count * sizeof *a), *b = mem_alloc(count * sizeof *b), mean = 0;
    *out = (hessian_factor){.n = n};
    out->h = mem_alloc(count * sizeof *out->h);
    out->u = mem_alloc(count * sizeof *out->u);
    lace_status status =
        a && b && out->h && out->u ? LACE_OK : error_nomem(err, "the factors of a Hessian");
    if (status == LACE_OK) {
        double per_row = 1.0 / (double)(s->n_rows > 0 ? s->n_rows : 1);
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k <= i; k++)
                a[i * n + k] = a[k * n + i] = s->h[i * n + k] * per_row;
        for (int64_t i = 0; i < n; i++)
            mean += a[i * n + i] / (double)n;
        for (int64_t i = 0; i < n; i++)
            a[i * n + i] += damping * mean + 1e-12;
        if (is_rotated)
            rotate_both(a, n);
        for (size_t i = 0; i < count; i++)
            out->h[i] = (float)a[i];
        if (!decompose(a, n))
            status = error_set(err, LACE_E_NUMERIC,
                               "E_NUMERIC: the inputs of a matrix are not finite numbers");
    }
    if (status == LACE_OK) {
        invert(a, n, b);
        for (size_t i = 0; i < count; i++)
            out->u[i] = (float)b[i];
    } else {
        hessian_factor_deinit(out);
    }
    mem_free(a);
    mem_free(b);
    return status;
}

void hessian_factor_deinit(hessian_factor *f)
{
    mem_free(f->h);
    mem_free(f->u);
    *f = (hessian_factor){0};
}

/* ---- Correction ------------------------------------------------------------------------------ */

typedef struct correcting {
    const hessian_factor *f;
    const float *change; /* [n, n] (C - H) / n_rows */
    float *rows;
    int64_t n_rows;
    float *scratch; /* [workers][2n] */
    handout pieces;
} correcting;

static void add_scaled(float *to, float by, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += by * from[i];
}

static float dot_f32(const float *a, const float *b, int64_t n)
{
    float s[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            s[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        s[0] += a[i] * b[i];
    return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

static void correct_rows(void *arg, int me, int n_workers)
{
    correcting *c = arg;
    int64_t n = c->f->n;
    float *v = c->scratch + (uint64_t)me * 2 * (uint64_t)n, *z = v + n;
    uint32_t row;
    while (handout_claim(&c->pieces, (uint32_t)c->n_rows, &row)) {
        float *w = c->rows + (int64_t)row * n;
        memset(v, 0, (size_t)n * sizeof *v);
        for (int64_t i = 0; i < n; i++)
            add_scaled(v, w[i], c->change + i * n, n);
        for (int64_t i = 0; i < n; i++) /* z = U v */
            z[i] = dot_f32(c->f->u + i * n + i, v + i, n - i);
        for (int64_t i = 0; i < n; i++) /* w += U' z */
            add_scaled(w + i, z[i], c->f->u + i * n + i, n - i);
    }
}

lace_status hessian_correct(const hessian *s, const hessian_factor *f, float *rows, int64_t n_rows,
                            pool *workers, lace_error *err)
{
    int64_t n = s->n;
    double per_row = 1.0 / (double)s->n_rows;
    float *change = mem_alloc((size_t)(n * n) * sizeof *change);
    float *scratch = mem_alloc((size_t)pool_size(workers) * 2 * (size_t)n * sizeof *scratch);
    lace_status status = change && scratch ? LACE_OK : error_nomem(err, "a correction");
    if (status == LACE_OK) {
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < n; k++) {
                double h = k <= i ? s->h[i * n + k] : s->h[k * n + i];
                change[i * n + k] = (float)((s->c[i * n + k] - h) * per_row);
            }
        correcting c = {
            .f = f, .change = change, .rows = rows, .n_rows = n_rows, .scratch = scratch};
        pool_run(workers, correct_rows, &c);
    }
    mem_free(change);
    mem_free(scratch);
    return status;
}
