/*
 * Activation sparsity: which activations of a model are small enough to be taken as 0, so that
 * single tokens need not read the weights that meet them (model/sparsity.h).
 *
 *   1. A text is read and the sizes of all inputs are counted. So the threshold for a share of them
 *      is known, and the energy that is lost with it.
 *   2. Every input alone is dropped by the share asked for, and the KL divergence of the
 *      predictions is measured: what a unit of its energy costs.
 *   3. With t the threshold of an input, the next activation to go costs k t^2, and saves the
 *      weights that it meets, one of each of r rows. The sum of divergences is least where k t^2 / r
 *      is the same for all inputs; what it is follows from the share asked for.
 *   4. The result is measured against the same share for every input, and the better one is taken.
 *   5. The text is read once more, and each threshold is set for its share when all inputs before
 *      it are dropped already.
 */
#ifndef LACE_COMPRESS_SPARSIFY_H
#define LACE_COMPRESS_SPARSIFY_H

#include "compress/walk.h"
#include "model/sparsity.h"

typedef struct sparsify_options {
    double sparsity;   /* share of the weights that are not to be read; more than 0, at most 0.9 */
    bool is_uniform;   /* the same share for every input: no measuring */
    int32_t n_windows; /* of the text that are read; 0 (default): all */
    lace_progress_fn on_progress;
    void *progress_user;
} sparsify_options;

/* What became of the thresholds of one kind of input, over all layers. */
typedef struct sparsify_row {
    uint64_t n_weights;       /* of the matrices that read it */
    double mean, least, most; /* share of it that is 0; the mean is by weights */
} sparsify_row;

typedef struct sparsify_result {
    sparsify_row rows[SPARSITY_INPUTS];
    double sparsity;         /* of all weights in question, on the text */
    double kld_uniform, kld; /* on a few windows of the text; -1: not measured */
    bool is_uniform;         /* which one was taken */
} sparsify_result;

/* Set the thresholds of a walk that was opened with `uses_sparsity`, by its text. */
lace_status sparsify(walk *w, const lace_token *tokens, size_t n_tokens,
                     const sparsify_options *options, sparsify_result *out, lace_error *err);

/*
 * Which share of the activations is 0 on another text with the thresholds as they are, over up to
 * n_windows windows: fills the rows and `sparsity`.
 */
lace_status sparsify_count(walk *w, const lace_token *tokens, size_t n_tokens, int32_t n_windows,
                           sparsify_result *out, lace_error *err);

/* ---- Sizes of activations, counted ----------------------------------------------------------- */

/* How often each size occurs; sizes that differ by less than 1/256 are counted as one. */
enum { SIZES = 1 << 16 };

typedef struct sizes {
    uint64_t n;
    uint32_t counts[SIZES]; /* by the upper bits of |x| */
} sizes;

void sizes_add(sizes *s, float x);

/* The largest threshold below which there is at most this share; 0 for a share of 0. */
float sizes_threshold(const sizes *s, double share);

/* The share of values below a threshold, and the mean over all values of their squares. */
double sizes_share(const sizes *s, float threshold);
double sizes_energy(const sizes *s, float threshold);

#endif
