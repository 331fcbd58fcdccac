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
    int32_t n_windows;     /* of that text; 0: all */
    int32_t n_threads;
} surgery_inputs;

/* What was found out of the inputs; what no rule needs is NULL. */
typedef struct surgery_stats {
    imatrix *importance;
    struct prune_hessians *hessians; /* prune_feedback.h */
} surgery_stats;

/* Read it or measure it, if the rules need it. */
lace_status surgery_read_inputs(const char *path, const surgery *s, const surgery_inputs *from,
                                surgery_stats *out, lace_error *err);
void surgery_stats_deinit(surgery_stats *stats);

/* prune_model with a progress bar. */
lace_status surgery_apply(const char *path, const surgery *s, const surgery_stats *stats,
                          int32_t n_threads, buf *out, prune_result *result, lace_error *err);

/*
 * Open a model pruned by the rules of a file. *pruned gets its bytes and must outlive it. path NULL
 * is an error: the built-in model is quantized already.
 */
lace_status surgery_open(const char *path, const char *rules, const char *imatrix_path,
                         const lace_model_options *options, buf *pruned, lace_model **out,
                         lace_error *err);

#endif
