/* What mixed_device.c and mixed_program.c share. */
#ifndef LACE_BACKEND_MIXED_MIXED_DEVICE_H
#define LACE_BACKEND_MIXED_MIXED_DEVICE_H

#include "backend/mixed.h"

typedef struct mixed_device {
    device base;
    device *parts[DEVICES_MAX];
    int32_t n_parts;
    uint8_t *layers; /* [n_layers] */
    int32_t n_layers, output;
} mixed_device;

extern const backend backend_mixed;

lace_status mixed_program_compile(device *d, const plan *p, const program_options *o, program **out,
                                  lace_error *err);
lace_status mixed_program_prepare(program *p, const program_memory *m, lace_error *err);
void mixed_program_free(program *p);
lace_status mixed_program_run(program *p, const batch *b, const choice_rule *rules, bool is_traced,
                              lace_error *err);
lace_status mixed_program_warm_up(program *p, lace_error *err);
const float *mixed_program_logits(const program *p, int32_t row);
const float *mixed_program_hidden(const program *p, int32_t row);
int32_t mixed_program_n_steps(const program *p);
program_step mixed_program_step_at(const program *p, int32_t i, const batch *b);

#endif
