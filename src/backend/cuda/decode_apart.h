/*
 * Parts of a token's graph that its fused kernels do not have: attention of other kinds than
 * theirs, by the plan's own steps between the products; and norms behind products.
 */
#ifndef LACE_BACKEND_CUDA_DECODE_APART_H
#define LACE_BACKEND_CUDA_DECODE_APART_H

#include "backend/cuda/decode_params.h"
#include "backend/cuda/decode_form.h"
#include "backend/cuda/replay_gpu.h"

typedef struct gpu_apart {
    gpu_token_options o;
    gpu_batch batch; /* one token, which the state on the card names */
    batch host;      /* what launchers see of it */
    int32_t host_position, host_sequence, host_output;
    cuda_kernel *join, *pack;
    float *y; /* on the card: a product's result on its way to its norm */
} gpu_apart;

/* state: on the card. */
lace_status gpu_apart_prepare(gpu_apart *a, const gpu_token_options *o, decode_state *state,
                              lace_error *err);

/*
 * How steps divide the context depends on its length, so there is a graph for each power of two of
 * it: its number for this position. What is launched afterwards is for that.
 */
enum { GPU_APART_LENGTHS = 16 };
int gpu_apart_choose_length(gpu_apart *a, int32_t position);

/* The steps between q k v and output; their result becomes `next`. */
lace_status gpu_apart_attend(const gpu_apart *a, const layer_steps *l, decode_vector next,
                             lace_error *err);

/* residual += norm(y), by the steps `norm` and `add` that stand for it; on as launch_residual. */
lace_status gpu_apart_join(const gpu_apart *a, const step *norm, const step *add, float *residual,
                           decode_vector next, const step *next_norm, float *next_squares,
                           lace_error *err);

#endif
