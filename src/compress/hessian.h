/*
 * Hessians: the matrix H = sum of x x' over the inputs x of a matrix of weights. A change dW of the
 * weights changes their outputs by tr(dW H dW'), summed over the text; that is what calibrated
 * methods keep small.
 */
#ifndef LACE_COMPRESS_HESSIAN_H
#define LACE_COMPRESS_HESSIAN_H

#include "base/threads.h"
#include "kernels/kernels.h"

typedef struct hessian {
    int64_t n;
    double *h;        /* [n, n] sum of x x' */
    double *c;        /* [n, n] sum of y x', for the same inputs y of another model; NULL: none */
    int64_t n_rows;   /* inputs that were added */
    float *scratch;   /* of hessian_add */
    uint64_t n_bytes; /* of scratch */
} hessian;

/* For inputs of n values, n_tokens of them at a time. LACE_E_NOMEM. */
lace_status hessian_init(hessian *s, int64_t n, int64_t n_tokens, bool has_other,
                         const kernel_table *kernels, lace_error *err);
void hessian_deinit(hessian *s);

/* Add n_tokens inputs: rows of x, and of y if there is c, `stride` floats apart. */
void hessian_add(hessian *s, const float *x, const float *y, int64_t stride, int64_t n_tokens,
                 const kernel_table *kernels, pool *workers);

/*
 * What quantizing with feedback needs of H: damped by a share of its mean diagonal and, for types
 * that are rotated, rotated.
 */
typedef struct hessian_factor {
    int64_t n;
    float *h; /* [n, n] damped and rotated */
    float *u; /* [n, n] upper triangular, u' u is the inverse of h */
} hessian_factor;

lace_status hessian_factorize(const hessian *s, bool is_rotated, double damping,
                              hessian_factor *out, pool *workers, lace_error *err);
void hessian_factor_deinit(hessian_factor *f);

/*
 * Rows of weights [n_rows, n] moved so that they make of x what they made of y: W + W (C - H) (H +
 * damping)^-1. The factor must not be rotated.
 */
lace_status hessian_correct(const hessian *s, const hessian_factor *f, float *rows, int64_t n_rows,
                            pool *workers, lace_error *err);

#endif
