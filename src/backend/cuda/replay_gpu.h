/*
 * One token of one sequence on a GPU, for plans of any form: the launches of all steps recorded as
 * one graph and replayed, one submission for a token. Where backend/cuda/decode_gpu.h knows the plan's form
 * its fused kernels are faster; the functions are the same.
 */
#ifndef LACE_BACKEND_CUDA_REPLAY_GPU_H
#define LACE_BACKEND_CUDA_REPLAY_GPU_H

#include "backend/cuda/gpu.h"
#include "backend/cuda/sample_params.h"
#include "plan/plan.h"

typedef struct gpu_replay gpu_replay;

/* What single tokens are computed with, fused (decode_gpu.h) or not. */
typedef struct gpu_token_options {
    const plan *p; /* its steps hold addresses of the card */
    gpu *g;
    cuda_queue *queue;
    const gpu_launchers *launchers;
    uint8_t *scratch;
    uint64_t scratch_bytes;
    bool is_exact;    /* gpu_job */
    gpu_batch tables; /* where the page tables are */
} gpu_token_options;

lace_status gpu_replay_create(const gpu_token_options *o, gpu_replay **out, lace_error *err);
void gpu_replay_free(gpu_replay *r); /* NULL is fine */

/* Queue one token; its logits will be in the plan's value. */
lace_status gpu_replay_token(gpu_replay *r, int32_t token, int32_t position, int32_t sequence,
                             lace_error *err);

/* Tokens ahead of the host, as gpu_decode_begin and so on; for cards that can sample. */
lace_status gpu_replay_begin(gpu_replay *r, int32_t token, int32_t position, int32_t sequence,
                             const choice_rule *rule, lace_error *err);
lace_status gpu_replay_ahead(gpu_replay *r, int32_t position, lace_error *err);
lace_status gpu_replay_next(gpu_replay *r, int32_t *word, lace_error *err);

#endif
