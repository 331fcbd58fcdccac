/* The CPU as a backend (backend/backend.h). */
#ifndef LACE_BACKEND_CPU_CPU_DEVICE_H
#define LACE_BACKEND_CPU_CPU_DEVICE_H

#include "backend/backend.h"
#include "backend/cpu/kernels.h"

extern const backend backend_cpu;

/* One more of so many bytes, in the manner of a card: what several devices do can be tried anywhere. */
lace_status cpu_device_open_apart(uint64_t memory_bytes, const device_options *o, device **out,
                                  lace_error *err);

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
const float *cpu_program_hidden(const program *p, int32_t row);
int32_t cpu_program_n_steps(const program *p);
program_step cpu_program_step_at(const program *p, int32_t i, const batch *b);

/* own_weight.c */
lace_status cpu_weight_make(device *d, const float *rows, int64_t n_rows, int64_t n_cols,
                            bool is_half, pool *workers, weight *out, lace_error *err);
void cpu_weight_free(device *d, weight *x);

/* product_time.c */
lace_status cpu_time_product(device *d, pool *workers, const timed_rows *m, double *out,
                             lace_error *err);

#endif
