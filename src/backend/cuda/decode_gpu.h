/*
 * One token of one sequence on a GPU, as a recorded graph of fused kernels
 * (backend/cuda/decode_*.cu), for plans of the common form: norm, q k v, attention, output, norm,
 * gate and up, down, and no more than five kernels for each layer; experts, norms behind products
 * and attention of other kinds take some more (decode_form.h).
 */
#ifndef LACE_BACKEND_CUDA_DECODE_GPU_H
#define LACE_BACKEND_CUDA_DECODE_GPU_H

#include "backend/cuda/decode_params.h"
#include "backend/cuda/gpu.h"
#include "backend/cuda/sample_params.h"
#include "plan/plan.h"
#include "backend/cuda/replay_gpu.h"

typedef struct gpu_decode gpu_decode;

/* Memory on the card that it takes; 0 if the plan has another form, or the card cannot do it. */
uint64_t gpu_decode_bytes(const plan *p, const gpu *g);

/* *out is NULL if the plan has another form. */
lace_status gpu_decode_create(const gpu_token_options *o, gpu_decode **out, lace_error *err);
void gpu_decode_free(gpu_decode *d); /* NULL is fine */

/* Queue one token; its logits will be at gpu_decode_logits, on the card. */
lace_status gpu_decode_token(gpu_decode *d, int32_t token, int32_t position, int32_t sequence,
                             lace_error *err);
const float *gpu_decode_logits(const gpu_decode *d);

/*
 * Choosing tokens on the card, ahead of the host. Begin with a token that is to be computed; each
 * `ahead` queues the computation of the newest token and the choice of the one behind it, the best
 * (rule NULL) or by the rule; `next` waits for the next choice that was queued, a word as
 * sample_params.h has them.
 */
lace_status gpu_decode_begin(gpu_decode *d, int32_t token, int32_t position, int32_t sequence,
                             const choice_rule *rule, lace_error *err);
lace_status gpu_decode_ahead(gpu_decode *d, int32_t position, lace_error *err);
lace_status gpu_decode_next(gpu_decode *d, int32_t *word, lace_error *err);

#endif
