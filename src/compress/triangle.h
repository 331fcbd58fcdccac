/*
 * Products of many rows with a triangular matrix, by the matrix kernels, and without the half of it
 * that is zeros: the matrix is cut into blocks of rows, each as wide as what is in it.
 *
 *     upper: y[i] = sum over k >= i of m[i][k] x[k]        of transposed: y[k] = sum over i <= k
 *
 *     block 0  |##########|                 |###       |
 *     block 1  |   #######|                 |######    |
 *     block 2  |      ####|                 |##########|
 */
#ifndef LACE_COMPRESS_TRIANGLE_H
#define LACE_COMPRESS_TRIANGLE_H

#include "base/status.h"
#include "base/threads.h"

enum { TRIANGLE_BLOCK = 256, TRIANGLE_MAX_ROWS = 48 };

typedef struct triangle {
    int64_t n;
    bool is_transposed;
    uint8_t *data;    /* the blocks, packed; NULL: not made */
    uint64_t n_bytes; /* of data */
} triangle;

/*
 * Of the upper triangular matrix m [n, n]; what is below its diagonal is not read.
 * LACE_E_NOMEM.
 */
lace_status triangle_init(triangle *t, const float *m, int64_t n, bool is_transposed, pool *workers,
                          lace_error *err);
void triangle_deinit(triangle *t);

/*
 * One block of y, from `at`, a multiple of the block, for rows x [n_rows, n], at most
 * TRIANGLE_MAX_ROWS: out is [n_rows, TRIANGLE_BLOCK]. Of x only what the block is as wide as is
 * read: from `at` on, or of transposed up to the end of the block.
 */
void triangle_multiply(const triangle *t, int64_t at, const float *x, int64_t n_rows, float *out,
                       uint8_t *scratch);

uint64_t triangle_scratch_bytes(int64_t n); /* of one worker */

#endif
