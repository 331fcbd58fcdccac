/*
 * Calibrated quantizing: the model reads a text, and every matrix is written so that its outputs on
 * that text change least.
 *
 * Matrices are taken in the order in which the model computes. Each sees the inputs that the
 * matrices before it make after they were quantized, and is first moved so that it makes of them
 * what the original made of the original's inputs (hessian_correct); then it is quantized with
 * feedback (gptq.h). The embedding comes first; as the output it is judged by the inputs of the
 * original's output.
 *
 * With a size instead of a mix, tensors get types of lace's own by what they cost: each matrix is
 * quantized alone, the KL divergence of the model's predictions is measured, and bytes go where
 * they lower the sum most.
 */
#ifndef LACE_COMPRESS_CALIBRATE_H
#define LACE_COMPRESS_CALIBRATE_H

#include "compress/quantize.h"

typedef struct calibrate_options {
    const mix *mix;               /* the types; with `size`, those of tensors that are not chosen */
    uint64_t size;                /* bytes of the whole file; 0 (default): the mix's */
    const quantize_made *types;   /* types of tensors, chosen before (fit.h); NULL: the mix's */
    const char *text;             /* required */
    size_t n_bytes;               /* of the text */
    int32_t n_context;            /* tokens of a window; default 512 */
    int32_t n_windows;            /* of the text, spread over it; 0 (default): 128, and down to 32
                                     for models of more than 256 million parameters */
    int32_t n_threads;            /* 0 (default): one per core */
    const char *device;           /* that sums up inputs and factorizes the sums; NULL (default),
                                     "cpu": the host does */
    lace_progress_fn on_progress; /* may be NULL */
    void *progress_user;
} calibrate_options;

calibrate_options calibrate_options_default(void);

/*
 * The tensors of a GGUF file, quantized; experts of mixtures and what the plan does not multiply
 * with are left out. *out is to be freed with quantize_made_free.
 */
lace_status calibrate_model(const char *input, const calibrate_options *options,
                            quantize_made **out, lace_error *err);

#endif
