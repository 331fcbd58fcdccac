/*
 * Hessians: the matrix H = sum of x x' over the inputs x of a matrix of weights. A change dW of the
 * weights changes their outputs by tr(dW H dW'), summed over the text; that is what calibrated
 * methods keep small.
 *
 * Results do not depend on the number of threads.
 */
#ifndef LACE_COMPRESS_HESSIAN_H
#define LACE_COMPRESS_HESSIAN_H

#include "backend/large_math.h"
#include "base/threads.h"
#include "compress/triangle.h"

typedef struct hessian {
    int64_t n;
    double *h;          /* [n, n] sum of x x'; only the lower half */
    double *c;          /* [n, n] sum of y x', for the same inputs y of another model; NULL: none */
    int64_t n_rows;     /* inputs that were added */
    int64_t n_held;     /* of them, in scratch and not yet in the sums */
    int64_t max_held;   /* multiplied at once */
    uint8_t *scratch;   /* of hessian_add */
    uint64_t n_bytes;   /* of scratch */
    int n_workers;      /* at most, that add */
    large_math *math;   /* a device that sums up and factorizes; NULL: the host does */
    lace_status status; /* what went wrong there, which hessian_factorize says */
    lace_error err;
} hessian;

/*
 * For inputs of n values. n_at_once of them are multiplied together: more is faster, and takes 12
 * bytes for each of their values. LACE_E_NOMEM.
 */
lace_status hessian_init(hessian *s, int64_t n, int64_t n_at_once, bool has_other,
                         const pool *workers, lace_error *err);
void hessian_deinit(hessian *s);

/* Let a device do the work, before anything is added; NULL is fine. It has one Hessian at a time. */
void hessian_use(hessian *s, large_math *math);

/* Add n_tokens inputs: rows of x, and of y if there is c, `stride` floats apart. */
void hessian_add(hessian *s, const float *x, const float *y, int64_t stride, int64_t n_tokens,
                 pool *workers);

/* Those that were added last into the sums, too; before anything is made of them. */
void hessian_finish(hessian *s, pool *workers);

/*
 * What quantizing with feedback needs of H: damped by a share of its mean diagonal and, for types
 * that are rotated, rotated.
 */
typedef struct hessian_factor {
    int64_t n;
    bool is_rotated;
    float *h; /* [n, n] damped and rotated */
    float *u; /* [n, n] upper triangular, u' u is the inverse of h */
    float *r; /* [n, n] upper triangular, the inverse of u; below the diagonal anything */
    /* For products with many rows; made when they are first needed. */
    triangle by_u, by_u_transposed, by_r;
} hessian_factor;

/* LACE_E_NUMERIC if the inputs were not finite numbers. */
lace_status hessian_factorize(const hessian *s, bool is_rotated, double damping,
                              hessian_factor *out, pool *workers, lace_error *err);
void hessian_factor_deinit(hessian_factor *f);

/*
 * Rows of weights [n_rows, n] moved so that they make of x what they made of y: W + W (C - H) (H +
 * damping)^-1. They are not rotated, whatever the factor is.
 */
lace_status hessian_correct(const hessian *s, hessian_factor *f, float *rows, int64_t n_rows,
                            pool *workers, lace_error *err);

#endif
