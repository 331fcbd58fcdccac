/*
 * Which weights of a matrix go: the lowest scores of each row, or of each group of a row.
 *
 * Rows are judged apart from each other: a row that lost all its weights would be an output that
 * says nothing. Ties go from the left, so the choice depends on nothing but the numbers.
 */
#ifndef LACE_COMPRESS_PRUNE_CHOOSE_H
#define LACE_COMPRESS_PRUNE_CHOOSE_H

#include "compress/surgery.h"

typedef struct prune_matrix {
    const float *w; /* [n_rows, n_cols] */
    int64_t n_rows, n_cols;
    const float
        *inputs; /* [n_cols] mean squares of what it is multiplied with; NULL: all the same */
    const float *columns; /* [n_cols] sums of |w| of the columns, for PRUNE_RIA; else NULL */
} prune_matrix;

/* out[n_cols] = the sum of |w| in each column. */
void prune_column_sums(const prune_matrix *m, float *out);

/*
 * keeps[n_cols] of one row: 1 stays, 0 goes. The rule's method is not a structured one; for
 * PRUNE_SPARSEGPT the inputs are what the squares of weights that go cost. scratch: [2 * n_cols].
 */
void prune_choose_row(const surgery_rule *rule, const prune_matrix *m, int64_t row, uint8_t *keeps,
                      float *scratch);

#endif
