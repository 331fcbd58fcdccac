/*
 * Measuring models over a text, by the method that llama.cpp made common, so that numbers compare:
 * the text is cut into tokens once and into windows; a window begins with BOS in place of its first
 * token, if the model wants one; the second half is scored.
 */
#ifndef LACE_COMPRESS_MEASURE_H
#define LACE_COMPRESS_MEASURE_H

#include "base/buf.h"
#include "base/bytes.h"
#include "compress/quality.h"

/* How far a measurement is. */
typedef struct measure_state {
    int32_t n_done, n_windows; /* whole windows */
    double part;               /* of the window under way, 0 to 1 */
    bool has_base;
    quality_result now; /* only means and errors; .n is 0 before the first score */
} measure_state;

/* Who watches: both are called by the measuring thread, may be NULL, and cancel with false. */
typedef struct measure_watch {
    lace_progress_fn on_progress;                          /* while weights are packed */
    bool (*on_window)(void *user, const measure_state *s); /* at the begin, and after each batch */
    void *user;
} measure_watch;

typedef struct measure_options {
    int32_t n_context;            /* tokens of a window; default 512 */
    int32_t n_windows;            /* 0 (default): all whole ones */
    int32_t n_batch;              /* tokens computed together; default 512 */
    int32_t n_threads;            /* 0 (default): one per core */
    lace_kv_type kv_type, v_type; /* of what is tested; the base has f16, or f32 if that has */
    const char *text_name;        /* for messages */
    const char *tested_name;      /* likewise */
    const char *base_name;
    measure_watch watch;
} measure_options;

measure_options measure_options_default(void);

/* The text of a file for measuring: as llama.cpp reads it, without the last line feed. */
lace_status measure_read_text(const char *path, buf *out, lace_error *err);

/*
 * Perplexity of a model on a text; with a base, both run in lock-step and the divergence of the
 * first from the base is measured too. *n_windows is how many were used.
 */
lace_status measure_models(lace_model *tested, lace_model *base, text source,
                           const measure_options *options, quality_result *out, int32_t *n_windows,
                           lace_error *err);

/* Microseconds of one token after the other: the median of single evaluations. */
lace_status measure_token_time(lace_model *model, int32_t n_threads, double *us, lace_error *err);

#endif
