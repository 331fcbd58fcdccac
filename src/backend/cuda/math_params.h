/* What the kernels of large_math.cu are told; read by C and by kernels. */
#ifndef LACE_BACKEND_CUDA_MATH_PARAMS_H
#define LACE_BACKEND_CUDA_MATH_PARAMS_H

#include <stdint.h>

enum { MATH_SUM_TILE = 128, MATH_THREADS = 256, MATH_TILE = 64 };

/* out[i][k] += sum over rows of y[row][i] x[row][k] */
typedef struct math_sum {
    const float *x, *y; /* [n_rows, n] */
    double *out;        /* [n, n] */
    int32_t n, n_rows;
    int32_t is_lower; /* only tiles that have something at or below the diagonal */
} math_sum;

/* out[row][i] = sum of x[row][k] by[i][k], or of by[k][i] */
typedef struct math_product {
    const float *x;  /* [n_rows, n] */
    const float *by; /* [n, n] */
    float *out;      /* [n_rows, n] */
    int32_t n, n_rows;
    int32_t is_transposed, adds; /* adds: out += */
} math_product;

/* How a product is used: c -= a b, c = a b, c = -(a b). */
enum { MATH_SUBTRACT, MATH_SET, MATH_SET_NEGATIVE };

/* Tiles of 64 x 64, one for each block: those of block i are i times their step away. */
typedef struct math_update {
    double *c;
    const double *a; /* [64, k] */
    const double *b; /* [k, 64]; transposed: [64, k] */
    int64_t c_stride, a_stride, b_stride;
    int64_t c_step, a_step, b_step;
    int32_t k; /* a multiple of 16 */
    int32_t is_transposed, use;
} math_update;

/* A tile on the diagonal becomes that of R, and `inverse` [64, 64] its inverse. */
typedef struct math_tile {
    double *a;
    int64_t stride;
    double *inverse;
    int32_t *is_bad; /* 1: the tile is not positive */
} math_tile;

/* The upper half of doubles as floats, with zeros below. */
typedef struct math_upper {
    const double *from;
    int64_t stride;
    float *to; /* [n, n] */
    int32_t n;
} math_upper;

#endif
