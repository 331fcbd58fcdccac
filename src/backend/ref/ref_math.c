/* Sums and factors of large matrices by their definitions, in doubles. */
#include <math.h>
#include <string.h>

#include "backend/large_math.h"
#include "base/mem.h"

typedef struct ref_math {
    large_math base;
    int64_t n;
    double *h, *c; /* [n, n] */
} ref_math;

static lace_status begin_sums(large_math *m, int64_t n, bool has_other, lace_error *err)
{
    ref_math *r = (ref_math *)m;
    mem_free_all(r->h, r->c);
    r->n = n;
    r->h = mem_calloc((size_t)(n * n), sizeof *r->h);
    r->c = has_other ? mem_calloc((size_t)(n * n), sizeof *r->c) : NULL;
    return r->h && (r->c || !has_other) ? LACE_OK : error_nomem(err, "sums of products");
}

static lace_status add(large_math *m, const float *x, const float *y, int64_t stride,
                       int64_t n_rows, lace_error *err)
{
    const ref_math *r = (const ref_math *)m;
    for (int64_t t = 0; t < n_rows; t++)
        for (int64_t i = 0; i < r->n; i++)
            for (int64_t k = 0; k < r->n; k++) {
                double by = x[t * stride + k];
                r->h[i * r->n + k] += x[t * stride + i] * by;
                if (r->c)
                    r->c[i * r->n + k] += y[t * stride + i] * by;
            }
    return LACE_OK;
}

static lace_status take_sums(large_math *m, double *h, double *c, lace_error *err)
{
    const ref_math *r = (const ref_math *)m;
    size_t n_bytes = (size_t)(r->n * r->n) * sizeof *h;
    memcpy(h, r->h, n_bytes);
    if (c)
        memcpy(c, r->c, n_bytes);
    return LACE_OK;
}

/* From the last row up: r[j][j]^2 is what the columns behind it leave of a[j][j]. */
static bool decompose(const double *a, int64_t n, int64_t stride, double *r)
{
    for (int64_t j = n - 1; j >= 0; j--)
        for (int64_t i = j; i >= 0; i--) {
            double sum = a[i * stride + j];
            for (int64_t k = j + 1; k < n; k++)
                sum -= r[i * n + k] * r[j * n + k];
            if (i == j && !(sum > 0 && isfinite(sum)))
                return false;
            r[i * n + j] = i == j ? sqrt(sum) : sum / r[j * n + j];
        }
    return true;
}

static void invert(const double *r, int64_t n, double *u)
{
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = j; i >= 0; i--) {
            double sum = i == j;
            for (int64_t k = i + 1; k <= j; k++)
                sum -= r[i * n + k] * u[k * n + j];
            u[i * n + j] = sum / r[i * n + i];
        }
}

static lace_status factorize(large_math *m, const double *a, int64_t n, int64_t stride, float *r,
                             float *u, lace_error *err)
{
    double *both = mem_calloc((size_t)(2 * n * n), sizeof *both), *inverse = both + n * n;
    if (!both)
        return error_nomem(err, "factors");
    bool is_positive = decompose(a, n, stride, both);
    if (is_positive)
        invert(both, n, inverse);
    for (int64_t i = 0; i < n * n && is_positive; i++) {
        r[i] = (float)both[i];
        u[i] = (float)inverse[i];
    }
    mem_free(both);
    return is_positive ? LACE_OK
                       : error_set(err, LACE_E_NUMERIC, "the matrix is not positive definite");
}

/* out[i] = sum of m[i][k] x[k], or of m[k][i] x[k] */
static void multiply(const float *m, int64_t n, bool is_transposed, const double *x, double *out)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = 0;
        for (int64_t k = 0; k < n; k++)
            out[i] += m[is_transposed ? k * n + i : i * n + k] * x[k];
    }
}

static lace_status correct(large_math *m, const float *change, const float *u, int64_t n,
                           float *rows, int64_t n_rows, lace_error *err)
{
    double *x = mem_alloc((size_t)(2 * n) * sizeof *x), *y = x + n;
    if (!x)
        return error_nomem(err, "a correction");
    for (int64_t r = 0; r < n_rows; r++) {
        for (int64_t i = 0; i < n; i++)
            x[i] = rows[r * n + i];
        multiply(change, n, false, x, y);
        multiply(u, n, false, y, x);
        multiply(u, n, true, x, y);
        for (int64_t i = 0; i < n; i++)
            rows[r * n + i] += (float)y[i];
    }
    mem_free(x);
    return LACE_OK;
}

static void close(large_math *m)
{
    ref_math *r = (ref_math *)m;
    mem_free_all(r->h, r->c, r);
}

static const large_math_calls calls = {begin_sums, add, take_sums, factorize, correct, close};

lace_status ref_math_open(large_math **out, lace_error *err)
{
    ref_math *r = mem_calloc(1, sizeof *r);
    *out = r ? &r->base : NULL;
    if (!r)
        return error_nomem(err, "sums of products");
    r->base.calls = &calls;
    return LACE_OK;
}
