/* How fast a device computes with a model's own matrices, and how fast it is reached. */
#ifndef LACE_RUNNER_MEASURE_H
#define LACE_RUNNER_MEASURE_H

#include "model/weigh.h"

/*
 * Of each type that the model has: some of its matrices are brought to the device and multiplied with one
 * row and with many; on a card also while they are brought there. Takes up to 256 MB of the device for
 * each type, one after the other, or one matrix; twice as much where they are brought.
 */
lace_status measure_types(const model *m, const char *device_name, const device_options *o,
                          pool *workers, type_speed out[DTYPE_COUNT], lace_error *err);

/* What a step takes that computes nothing. */
lace_status measure_step(const char *device_name, const device_options *o, pool *workers,
                         double *out, lace_error *err);

/* Bytes a second to the device's memory and back, and the time that the smallest way takes. */
lace_status measure_link(const char *device_name, const device_options *o, double *bytes_s,
                         double *switch_s, lace_error *err);

/* The experts of a layer on the CPU, a token's few of many. Zeros: the model has none. measure_layer.c */
lace_status measure_experts(const model *m, const device_options *o, pool *workers, type_speed *out,
                            lace_error *err);

/* Seconds that a layer's attention takes on the CPU for each token of a prompt of n_tokens, at most 512. 0:
 * no layer has the usual one. */
lace_status measure_attention(model *m, const device_options *o, pool *workers, int32_t n_tokens,
                              double *out, lace_error *err);

#endif
