/*
 * Meeting a goal: a model of a size, a speed or a loss, and the curve that it lies on.
 *
 * Types are chosen (fit.h), the model is made in memory, and then it is measured: its divergence
 * from the original on a held-out text, and the time of a token on this machine. Where that misses
 * the goal, other types are chosen, a few times.
 */
#ifndef LACE_COMPRESS_FIT_GOAL_H
#define LACE_COMPRESS_FIT_GOAL_H

#include "compress/fit.h"
#include "compress/fit_dot.h"
#include "compress/measure.h"

typedef struct fit_goal_options {
    /* The goal: one of these is above 0. */
    uint64_t size; /* bytes of the file: the least loss that fits */
    double speed;  /* tokens a second: the least loss that is as fast */
    double loss;   /* divergence from the original: the smallest file that keeps it */

    const char *input;      /* required: a GGUF file of plain numbers */
    lace_model *original;   /* required: that file, open */
    const buf *calibration; /* a text to choose and to calibrate on; NULL: the model writes one */
    const char *calibration_name; /* for messages; NULL is fine */
    const buf *held_out;          /* a text to measure on; NULL: the end of the other one */
    fit_family family;            /* default FIT_LACE */
    int32_t n_calibrate;          /* windows for error feedback; default 64 */
    const char *device;           /* as in calibrate_options */
    int32_t n_windows;            /* of the final measurement; default 20 */
    int32_t n_tries;              /* exchanges of types between two tensors; default 16 */
    int32_t n_threads;            /* 0 (default): one per core */
    bool is_plain;                /* no error feedback: each value to the nearest; default false */
    bool wants_curve;             /* default false */
    measure_watch watch;          /* .on_progress is told about all parts of the work */
} fit_goal_options;

fit_goal_options fit_goal_options_default(void);

enum { FIT_MAX_DOTS = 64 };

typedef struct fit_result {
    buf made; /* the GGUF file; to be freed with buf_deinit, also after a failure */
    quality_result quality;
    double us;                      /* of a token */
    uint64_t n_values[DTYPE_COUNT]; /* that were given each type, of the tensors chosen for */
    fit_dot dots[FIT_MAX_DOTS];     /* the curve, GGUF's mixes, and the result; if it is wanted */
    size_t n_dots;
} fit_result;

/* LACE_E_LIMIT, with what can be had, for a goal that cannot be met. */
lace_status fit_meet(const fit_goal_options *options, fit_result *out, lace_error *err);

#endif
