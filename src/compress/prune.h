/*
 * Pruning a model by the rules of a surgery file: weights become zeros and are left out of the
 * file, or whole heads and neurons go and matrices become smaller.
 *
 * The result is the bytes of a GGUF file in memory, so that it can be opened and judged before
 * anything is written.
 */
#ifndef LACE_COMPRESS_PRUNE_H
#define LACE_COMPRESS_PRUNE_H

#include "base/buf.h"
#include "compress/imatrix.h"
#include "compress/surgery.h"

struct prune_hessians;

typedef struct prune_options {
    const imatrix *importance; /* of the inputs; what prune_needs_inputs rules cannot do without */
    const struct prune_hessians *hessians; /* prune_feedback.h; what PRUNE_SPARSEGPT needs */
    int n_threads;                         /* 0 (default): one per core */
    lace_progress_fn on_progress;          /* may be NULL */
    void *progress_user;
} prune_options;

prune_options prune_options_default(void);

/* What one rule did. */
typedef struct prune_row {
    size_t n_tensors;
    uint64_t n_weights, n_gone;
    uint64_t bytes_before, bytes_after; /* of these tensors */
} prune_row;

typedef struct prune_result {
    prune_row *rows;                    /* [n_rules of the surgery]; mem_free */
    uint64_t bytes_before, bytes_after; /* of all tensors */
} prune_result;

/* True if a rule's method looks at what matrices are multiplied with, or at their Hessians. */
bool prune_needs_inputs(const surgery *s);
bool prune_needs_hessians(const surgery *s);

/* What would be done, without looking at a weight: rows but n_gone and bytes_after. */
lace_status prune_plan(const char *input, const surgery *s, prune_result *out, lace_error *err);

/*
 * Do it: `input` is a GGUF file or a Hugging Face directory. Appends the file to `out`. A rule that
 * matches nothing, or what it cannot be applied to, is LACE_E_META and says which line it has.
 */
lace_status prune_model(const char *input, const surgery *s, const prune_options *options, buf *out,
                        prune_result *result, lace_error *err);

void prune_result_deinit(prune_result *r);

#endif
