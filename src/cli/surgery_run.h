/* What lace prune and lace run --surgery share: reading rules and applying them. */
#ifndef LACE_CLI_SURGERY_RUN_H
#define LACE_CLI_SURGERY_RUN_H

#include "compress/prune.h"

/* The rules of a file. */
lace_status surgery_read(const char *path, surgery **out, lace_error *err);

/* Where the importance of inputs comes from. */
typedef struct surgery_inputs {
    const char *imatrix;   /* a file, or NULL */
    const char *calibrate; /* a text, or NULL */
    int32_t n_threads;
} surgery_inputs;

/* Read it or measure it, if the rules need it; else *out is NULL. */
lace_status surgery_read_inputs(const char *path, const surgery *s, const surgery_inputs *from,
                                imatrix **out, lace_error *err);

/* prune_model with a progress bar. */
lace_status surgery_apply(const char *path, const surgery *s, const imatrix *importance,
                          int32_t n_threads, buf *out, prune_result *result, lace_error *err);

#endif
