/* The CPU as a backend (backend/backend.h). */
#ifndef LACE_BACKEND_CPU_CPU_DEVICE_H
#define LACE_BACKEND_CPU_CPU_DEVICE_H

#include "backend/backend.h"
#include "backend/cpu/kernels.h"

extern const backend backend_cpu;

/* Of a CPU's device: its kernels, and how it keeps weights. */
const kernel_table *cpu_device_kernels(const device *d);

/* program.c */
lace_status cpu_program_compile(device *d, const plan *p, const program_options *o, program **out,
                                lace_error *err);
lace_status cpu_program_prepare(program *p, const program_memory *m, lace_error *err);
void cpu_program_free(program *p);
lace_status cpu_program_run(program *p, const batch *b, const choice_rule *rules, bool is_traced,
                            lace_error *err);
void cpu_program_run_steps(program *p, const batch *b, int32_t begin, int32_t end);
const float *cpu_program_logits(const program *p, int32_t row);
int32_t cpu_program_n_steps(const program *p);
program_step cpu_program_step_at(const program *p, int32_t i, const batch *b);

#endif
