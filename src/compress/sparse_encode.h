/*
 * Turning a pruned matrix into the form in which files hold it: codes and scales for what is left.
 */
#ifndef LACE_COMPRESS_SPARSE_ENCODE_H
#define LACE_COMPRESS_SPARSE_ENCODE_H

#include "base/threads.h"
#include "tensor/sparse.h"

typedef struct sparse_matrix {
    const float *w; /* [n_rows, n_cols] */
    int64_t n_rows, n_cols;
    const uint8_t *keeps; /* [n_rows, n_cols] */
    const float *inputs;  /* [n_cols] how much each column matters, or NULL */
} sparse_matrix;

/*
 * Append the blob: scales are searched for, so that the weighted squares of the errors of what is
 * left are least. The result does not depend on the number of workers.
 */
lace_status sparse_encode(sparse_kind kind, const sparse_matrix *m, pool *workers, buf *out,
                          lace_error *err);

/* Append an S4 matrix as M4R: the same codes and scales, none left out. */
lace_status sparse_encode_s4(const uint8_t *blocks, int64_t n_rows, int64_t n_cols, buf *out,
                             lace_error *err);

#endif
