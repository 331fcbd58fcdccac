/*
 * Loops over plain numbers that compression spends its time in, in the fastest version that the host
 * runs.
 *
 * Sums are taken in the same order on every call: results depend on the CPU, never on threads.
 */
#ifndef LACE_BACKEND_HOST_LOOPS_H
#define LACE_BACKEND_HOST_LOOPS_H

#include <stdbool.h>
#include <stdint.h>

enum { DENSE_TILE = 64, DENSE_MAX_LEVELS = 64 };

/* The numbers that a value can be rounded to: even ones, first + i, or those of a table. */
typedef struct dense_levels {
    int n;
    float first;
    bool is_table;
    /* Of a table: the middle between a level and the next, and how far it is from
     * one to the other. */
    float middle[DENSE_MAX_LEVELS], gap[DENSE_MAX_LEVELS];
} dense_levels;

/* Sums over values x at their nearest levels l, with weights w. */
typedef struct dense_sums {
    float l, ll, xl; /* of w l, w l l and w x l */
} dense_sums;

typedef struct dense_ops {
    /* to[n] -= by * from[n] */
    void (*subtract)(float *to, float by, const float *from, int64_t n);

    /*
     * c -= a b, where c is [64, 64], a [64, k] and b [k, 64] with rows one behind the other. The
     * strides of c and a are in numbers.
     */
    void (*update)(double *c, int64_t c_stride, const double *a, int64_t a_stride, const double *b,
                   int64_t k);

    /* l is the level nearest to (x + min) * per_scale; n is a multiple of 16. */
    dense_sums (*level_sums)(const dense_levels *levels, const float *x, const float *w, int n,
                             float per_scale, float min);

    /* The sum of w (x - (scale l - min))^2, l nearest to (x + min) / scale; scale may be 0. */
    float (*level_error)(const dense_levels *levels, const float *x, const float *w, int n,
                         float scale, float min);
} dense_ops;

const dense_ops *dense_ops_detect(void);

#endif
