/* A text for calibration, written by the model itself: what it says is what it has to say well. */
#ifndef LACE_COMPRESS_FIT_TEXT_H
#define LACE_COMPRESS_FIT_TEXT_H

#include "base/buf.h"

/*
 * Append some texts of n_tokens each, many at a time, drawn from the whole distribution with a
 * fixed seed: the same model gives the same text. on_progress may be NULL.
 */
lace_status fit_text_write(lace_model *model, int32_t n_texts, int32_t n_tokens, int32_t n_threads,
                           lace_progress_fn on_progress, void *progress_user, buf *out,
                           lace_error *err);

#endif
