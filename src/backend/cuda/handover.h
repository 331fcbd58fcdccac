/*
 * What a step of a batch leaves for the next one on the card, so that less has to be launched.
 *
 * A product that was cut along K leaves its parts, and the norm or the rotation that follows adds
 * them up. A norm leaves its rows as atoms too (batch_common.cuh) or as slabs (small_batch_params.h), which
 * is what the product behind it reads; attention and gates of a few tokens leave slabs. Who leaves
 * something has looked at the next step and knows that it is taken.
 */
#ifndef LACE_BACKEND_CUDA_HANDOVER_H
#define LACE_BACKEND_CUDA_HANDOVER_H

#include "backend/cuda/batch_params.h"
#include "backend/cuda/between_params.h"
#include "backend/cuda/gpu.h"

/* Atoms in the order of int and of half kinds; slabs. */
typedef enum row_form { ROWS_ATOMS_INT, ROWS_ATOMS_HALF, ROWS_SLABS } row_form;

typedef struct gpu_handover {
    uint8_t *memory;  /* on the card: scales of rows, then their atoms; or slabs */
    const step *made; /* whose result it is; NULL: nobody's */
    int32_t n_rows;
    row_form form;
    batch_finish sums[3]; /* products whose parts are still apart */
    int32_t n_sums;
} gpu_handover;

/* The memory of a handover for these steps and batches of up to max_tokens. */
uint64_t gpu_handover_bytes(const step *steps, int32_t n_steps, int64_t max_tokens);

/* Whether the step behind s adds up the parts of s. */
bool gpu_leaves_parts(const gpu_job *j, const step *s);

/* The rows that s reads in this form, and the scales of atoms; false: there are none. */
bool gpu_handed_over(const gpu_job *j, const step *s, int64_t n_rows, row_form form, uint8_t **x,
                     float **scales);

/* The launchers that take what is left. */
lace_status gpu_launch_norm_batched(const gpu_job *j, const step *s, lace_error *err);
lace_status gpu_launch_rope_batched(const gpu_job *j, const step *s, lace_error *err);

/* Products of a few tokens (launch_small_batch.c): whether s is one, and its launch. */
bool gpu_is_small_batch(const gpu_job *j, const step *s);
lace_status gpu_launch_small_batch(const gpu_job *j, const step *s, lace_error *err);
uint64_t gpu_small_batch_scratch_bytes(const step *s);
uint64_t gpu_slab_bytes(int64_t n_cols);

/* Starts a kernel that waits for the one in front itself. */
lace_status gpu_start_overlapping(const gpu_job *j, const char *name, const uint32_t grid[3],
                                  uint32_t threads, uint32_t shared_bytes, const void *params,
                                  lace_error *err);

#endif
