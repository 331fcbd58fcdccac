/*
 * Fitting a model to a goal: every tensor may have one of several types, and each choice has a
 * price in bytes, in microseconds of this machine, and in divergence from the original.
 *
 * Bytes follow from the type. Microseconds are measured, kernel by kernel, in shapes of the model
 * (kernel_time.h). The divergence of a tensor is measured once, quantized alone to a type of about
 * 3 bits (trial.h), and for the others scaled with the squared error that they leave in its values.
 * Types are then bought where a byte, or a microsecond, lowers the sum of divergences most
 * (type_choice.h), and exchanged as long as that lowers the divergence of the whole, measured.
 */
#ifndef LACE_COMPRESS_FIT_H
#define LACE_COMPRESS_FIT_H

#include "compress/trial.h"
#include "compress/type_choice.h"

/* Types to choose from: all of lace's own, those of them that are made quickly, GGUF's, all. */
typedef enum fit_family { FIT_LACE, FIT_QUICK, FIT_GGUF, FIT_ALL } fit_family;

typedef struct fit_options {
    fit_family family;            /* default FIT_LACE */
    const char *text;             /* required: on which divergence is measured */
    size_t n_text;                /* bytes */
    int32_t n_context;            /* tokens of a window; default 512 */
    int32_t n_windows;            /* of the text, for each measurement; default 4 */
    int32_t n_threads;            /* 0 (default): one per core */
    lace_progress_fn on_progress; /* may be NULL */
    void *progress_user;
} fit_options;

fit_options fit_options_default(void);

typedef struct fit {
    fit_options options;
    walk *w;
    token_list tokens;
    trial *trial;
    choice_list list;   /* what each tensor may be */
    double original_us; /* of all matrices as they are */
    uint64_t n_values;  /* of all tensors */
    struct fit_times *times;
} fit;

/* Open a GGUF file of plain numbers and measure all choices. */
lace_status fit_create(const char *input, const fit_options *options, fit **out, lace_error *err);
void fit_free(fit *f);

/* The divergence of the whole model as chosen, measured on the text; values to the nearest. */
lace_status fit_measure(fit *f, double *kld, lace_error *err);

/*
 * Exchange types between two tensors while that lowers the measured divergence: up to n_tries
 * measurements, within the budget. *kld is the divergence before, and then after.
 */
lace_status fit_exchange(fit *f, choice_unit unit, double budget, int n_tries, double *kld,
                         lace_error *err);

/* A mix of GGUF's types on the same axes; kld is measured. What is chosen stays. */
lace_status fit_mix(fit *f, const mix *m, choice_point *out, lace_error *err);

/* Microseconds of a token in the matrices of such a mix. */
lace_status fit_mix_time(fit *f, const mix *m, double *us, lace_error *err);

/* The types of all matrices, for calibrate_options.types; to be freed with quantize_made_free. */
lace_status fit_types(const fit *f, quantize_made **out, lace_error *err);

/* The mix that the file is called after: the one of the type that most values have. */
const mix *fit_main_mix(const fit *f);

#endif
