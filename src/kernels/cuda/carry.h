/*
 * What a step of a batch leaves for the next one on the card, so that less has to be launched.
 *
 * A product that was cut along K leaves its parts, and the norm or the rotation that follows adds
 * them up. A norm leaves its rows as atoms too (batch_common.cuh), which is what the product behind
 * it reads. Who leaves something has looked at the next step and knows that it is taken.
 */
#ifndef LACE_KERNELS_CUDA_CARRY_H
#define LACE_KERNELS_CUDA_CARRY_H

#include "kernels/cuda/batch_params.h"
#include "kernels/cuda/between_params.h"
#include "kernels/cuda/gpu.h"

typedef struct gpu_carry {
    uint8_t *memory;  /* on the card: scales of rows, then their atoms */
    const step *norm; /* whose result the atoms are; NULL: nobody's */
    int32_t n_rows;
    bool is_half;         /* their order */
    batch_finish sums[3]; /* products whose parts are still apart */
    int32_t n_sums;
} gpu_carry;

/* The memory of a carry for these steps and batches of up to max_tokens. */
uint64_t gpu_carry_bytes(const step *steps, int32_t n_steps, int64_t max_tokens);

/* Whether the step behind s adds up the parts of s. */
bool gpu_carries_sums(const gpu_job *j, const step *s);

/* The atoms of the rows that s reads, and their scales; false: there are none. */
bool gpu_carried_atoms(const gpu_job *j, const step *s, int64_t n_rows, bool is_half, uint8_t **x,
                       float **scales);

/* The launchers that take what is left. */
lace_status gpu_launch_norm_batched(const gpu_job *j, const step *s, lace_error *err);
lace_status gpu_launch_rope_batched(const gpu_job *j, const step *s, lace_error *err);

/* Starts a kernel that waits for the one in front itself. */
lace_status gpu_start_overlapping(const gpu_job *j, const char *name, const uint32_t grid[3],
                                  uint32_t threads, uint32_t shared_bytes, const void *params,
                                  lace_error *err);

#endif
