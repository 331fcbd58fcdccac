/* Making an importance matrix: a model is walked over a text. */
#ifndef LACE_COMPRESS_IMATRIX_COLLECT_H
#define LACE_COMPRESS_IMATRIX_COLLECT_H

#include "compress/imatrix.h"
#include "compress/walk.h"

typedef struct imatrix_options {
    int64_t n_windows;            /* of the text, spread over all of it; 0 (default): all */
    lace_progress_fn on_progress; /* may be NULL */
    void *progress_user;
} imatrix_options;

/*
 * Sums over windows of tokens[n_tokens], whole windows of the walk. *n_windows is how many were
 * used.
 */
lace_status imatrix_collect(walk *w, const lace_token *tokens, size_t n_tokens,
                            const imatrix_options *options, imatrix **out, int64_t *n_windows,
                            lace_error *err);

/* Window number i of n that are spread evenly over n_tokens of a text. */
const lace_token *walk_spread_window(const walk *w, const lace_token *tokens, size_t n_tokens,
                                     int64_t i, int64_t n);

#endif
