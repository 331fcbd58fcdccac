/* Measuring models with a bar that shows how far it is. */
#ifndef LACE_CLI_MEASURE_BAR_H
#define LACE_CLI_MEASURE_BAR_H

#include "cli/progress.h"
#include "compress/measure.h"

/* A watch that draws on a bar, which is to be ended with progress_end. */
measure_watch measure_bar_watch(progress *bar);

/* measure_models over the text of a buffer, with a bar of its own. */
lace_status measure_models_shown(lace_model *tested, lace_model *base, const buf *source,
                                 const measure_options *options, quality_result *out,
                                 int32_t *n_windows, lace_error *err);

#endif
