/*
 * Sums and factors of large matrices on a device, for calibrated quantizing (compress/hessian.h).
 * What goes in and comes out lies in the host's memory; what is summed up stays on the device in
 * between. The CPU has no such functions: compress computes them with the host's own kernels.
 */
#ifndef LACE_BACKEND_LARGE_MATH_H
#define LACE_BACKEND_LARGE_MATH_H

#include "base/status.h"

typedef struct large_math large_math;

typedef struct large_math_calls {
    lace_status (*begin_sums)(large_math *m, int64_t n, bool has_other, lace_error *err);
    lace_status (*add)(large_math *m, const float *x, const float *y, int64_t stride,
                       int64_t n_rows, lace_error *err);
    lace_status (*take_sums)(large_math *m, double *h, double *c, lace_error *err);
    lace_status (*factorize)(large_math *m, const double *a, int64_t n, int64_t stride, float *r,
                             float *u, lace_error *err);
    lace_status (*correct)(large_math *m, const float *change, const float *u, int64_t n,
                           float *rows, int64_t n_rows, lace_error *err);
    void (*close)(large_math *m);
} large_math_calls;

struct large_math {
    const large_math_calls *calls;
};

/* factorize: a is [n, stride] with n a multiple of this. */
enum { LARGE_MATH_TILE = 64 };

/*
 * By the name of a device ("cuda", "cuda:1", "ref"). *out is NULL for the CPU, and for "auto" where
 * there is no card. LACE_E_UNSUPPORTED for a device without such functions, LACE_E_DEVICE for one
 * that is not there, LACE_E_ARG for a name that says nothing.
 */
lace_status large_math_open(const char *device_name, large_math **out, lace_error *err);

static inline void large_math_close(large_math *m) /* NULL is fine */
{
    if (m)
        m->calls->close(m);
}

/* Sums of n by n products begin at zero; what was summed up before is forgotten. */
static inline lace_status large_math_begin_sums(large_math *m, int64_t n, bool has_other,
                                                lace_error *err)
{
    return m->calls->begin_sums(m, n, has_other, err);
}

/* h += x' x and c += y' x, of rows that are `stride` floats apart; y: NULL without c. */
static inline lace_status large_math_add(large_math *m, const float *x, const float *y,
                                         int64_t stride, int64_t n_rows, lace_error *err)
{
    return m->calls->add(m, x, y, stride, n_rows, err);
}

/* The sums: h [n, n], of which only the lower half counts, and c [n, n], or NULL. */
static inline lace_status large_math_take_sums(large_math *m, double *h, double *c, lace_error *err)
{
    return m->calls->take_sums(m, h, c, err);
}

/*
 * Of the symmetric a, whose upper half is read: r with a = r r', and its inverse u, both upper
 * triangular, [n, n] with zeros below. LACE_E_NUMERIC where a is not positive.
 */
static inline lace_status large_math_factorize(large_math *m, const double *a, int64_t n,
                                               int64_t stride, float *r, float *u, lace_error *err)
{
    return m->calls->factorize(m, a, n, stride, r, u, err);
}

/*
 * Each of the rows [n_rows, n]: w += u' u (change w). change and u are [n, n], u with zeros below its
 * diagonal.
 */
static inline lace_status large_math_correct(large_math *m, const float *change, const float *u,
                                             int64_t n, float *rows, int64_t n_rows,
                                             lace_error *err)
{
    return m->calls->correct(m, change, u, n, rows, n_rows, err);
}

/* ---- What backends provide ------------------------------------------------------------------- */

lace_status cuda_math_open(int index, large_math **out, lace_error *err);
lace_status ref_math_open(large_math **out, lace_error *err);

#endif
