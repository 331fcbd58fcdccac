/*
 * Trying types: tensors of a model are replaced by what they would read back as after quantizing,
 * and the KL divergence of the predictions from the original's is measured over a few windows of a
 * text. What came before the first change is not computed again.
 */
#ifndef LACE_COMPRESS_TRIAL_H
#define LACE_COMPRESS_TRIAL_H

#include "compress/walk.h"

typedef struct trial trial;

/*
 * Run the original over n_windows windows (or as many as there are), spread over the text. The walk
 * computes in f32 and is not to be used for anything else until the trial is freed, which puts all
 * tensors back.
 */
lace_status trial_create(walk *w, const lace_token *tokens, size_t n_tokens, int32_t n_windows,
                         trial **out, lace_error *err);
void trial_free(trial *t);

/*
 * From now on, compute with a tensor (of the walk's files, rows of whole blocks) as quantized to
 * `type`, each value to the nearest; with its own type: as it was.
 */
lace_status trial_set(trial *t, const tensor *which, dtype type, lace_error *err);

/*
 * From now on, compute everything from this layer on in trial_measure, because something else than
 * a tensor has changed there; INT32_MAX: nothing has.
 */
void trial_begin_at(trial *t, int32_t layer);

/* The mean divergence with what is set now. */
lace_status trial_measure(trial *t, double *kld, lace_error *err);

/* The divergence with this tensor quantized to `type`; it is as it was afterwards. */
lace_status trial_measure_alone(trial *t, const tensor *which, dtype type, double *kld,
                                lace_error *err);

#endif
