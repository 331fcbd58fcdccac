/* Launches of operations with recurrent state: convolutions, state spaces, the delta rule. */
#ifndef LACE_BACKEND_CUDA_LAUNCH_RECURRENT_H
#define LACE_BACKEND_CUDA_LAUNCH_RECURRENT_H

#include "backend/cuda/gpu.h"

lace_status gpu_launch_conv(const gpu_job *j, const step *s, lace_error *err);
lace_status gpu_launch_scan(const gpu_job *j, const step *s, lace_error *err);
lace_status gpu_launch_delta(const gpu_job *j, const step *s, lace_error *err);

/* What chunks of a prompt need (chunk_params.h). */
uint64_t gpu_chunks_scratch_bytes(const gpu *g, const step *s, int64_t n_rows);

/* ---- Operands of f32 rows -------------------------------------------------------------------- */

static inline int64_t floats(const operand *o)
{
    return (int64_t)(o->stride / 4);
}

static inline float *data(const operand *o)
{
    return (float *)o->data;
}

#endif
