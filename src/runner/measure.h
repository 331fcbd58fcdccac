/* How fast a device computes with a model's own matrices, and how fast it is reached. */
#ifndef LACE_RUNNER_MEASURE_H
#define LACE_RUNNER_MEASURE_H

#include "model/weigh.h"

/*
 * Of each type that the model has: some of its matrices are brought to the device and multiplied with one
 * row and with many. Takes up to 64 MB of the device for each type, one after the other.
 */
lace_status measure_types(const model *m, const char *device_name, const device_options *o,
                          pool *workers, type_speed out[DTYPE_COUNT], lace_error *err);

/* Bytes a second to the device's memory and back, and the time that the smallest way takes. */
/* What a step takes that computes nothing. */
lace_status measure_step(const char *device_name, const device_options *o, pool *workers,
                         double *out, lace_error *err);

lace_status measure_link(const char *device_name, const device_options *o, double *bytes_s,
                         double *switch_s, lace_error *err);

#endif
