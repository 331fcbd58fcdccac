/*
 * Pruning with feedback (SparseGPT, Frantar and Alistarh 2023): columns are taken one after the
 * other; what a weight that goes would have added is made good, as far as the inputs are
 * correlated, by the weights of the columns that follow.
 *
 * It needs the Hessian of each matrix's inputs, which are collected over a text in one walk through
 * the model.
 */
#ifndef LACE_COMPRESS_PRUNE_FEEDBACK_H
#define LACE_COMPRESS_PRUNE_FEEDBACK_H

#include "compress/hessian.h"
#include "compress/surgery.h"
#include "compress/walk.h"

typedef struct prune_hessians prune_hessians;

/* Hessians of more than this are refused: a model of 1.1 billion weights takes 8 GB. */
#define PRUNE_MAX_HESSIAN_BYTES ((uint64_t)12 << 30)

/*
 * The Hessians of all matrices that a rule prunes by PRUNE_SPARSEGPT, over n_windows windows (0:
 * all) spread over tokens[n_tokens]. LACE_E_LIMIT if they take too much memory, LACE_E_UNSUPPORTED
 * for experts of mixtures.
 */
lace_status prune_hessians_collect(walk *w, const surgery *s, const lace_token *tokens,
                                   size_t n_tokens, int64_t n_windows, lace_progress_fn on_progress,
                                   void *user, prune_hessians **out, lace_error *err);
void prune_hessians_free(prune_hessians *h);

const hessian *prune_hessians_find(const prune_hessians *h, text name); /* NULL if absent */

/*
 * Prune rows [n_rows, n_cols]: keeps[n_rows, n_cols] becomes 1 for what stays, and what stays is
 * changed. Weights are chosen block by block, by the error that their going would leave.
 */
lace_status prune_with_feedback(const surgery_rule *rule, const hessian *h, float *rows,
                                int64_t n_rows, uint8_t *keeps, pool *workers, lace_error *err);

#endif
