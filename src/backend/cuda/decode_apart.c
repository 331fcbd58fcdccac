/* What a token's graph has besides fused kernels: steps as they are, norms behind products. */
#include "backend/cuda/decode_apart.h"

#include <assert.h>

enum { FIRST_LENGTH = 128 };

lace_status gpu_apart_prepare(gpu_apart *a, const gpu_token_options *o, decode_state *state,
                              lace_error *err)
{
    a->o = *o;
    a->host = (batch){
        .n_tokens = 1, .n_outputs = 1, .positions = &a->host_position, .outputs = &a->host_output};
    a->batch = o->tables;
    a->batch.n_tokens = a->batch.n_outputs = 1;
    a->batch.tokens = &state->token;
    a->batch.positions = &state->position;
    a->batch.sequences = &state->sequence;
    a->batch.host = &a->host;
    a->batch.host_sequences = &a->host_sequence;
    TRY(gpu_find(o->g, "decode_join_kernel", &a->join, err));
    TRY(gpu_find(o->g, "decode_pack_kernel", &a->pack, err));
    TRY(cuda_kernel_allow(a->join, 0, false, err));
    return cuda_kernel_allow(a->pack, 0, false, err);
}

int gpu_apart_choose_length(gpu_apart *a, int32_t position)
{
    int length = 0;
    while (length + 1 < GPU_APART_LENGTHS && position >= FIRST_LENGTH << length)
        length++;
    int32_t longest = a->o.p->limits.n_context, top = FIRST_LENGTH << length;
    a->host_position = (top < longest && length + 1 < GPU_APART_LENGTHS ? top : longest) - 1;
    return length;
}

lace_status gpu_apart_attend(const gpu_apart *a, const layer_steps *l, decode_vector next,
                             lace_error *err)
{
    gpu_job j = {.g = a->o.g,
                 .queue = a->o.queue,
                 .batch = &a->batch,
                 .scratch = a->o.scratch,
                 .scratch_bytes = a->o.scratch_bytes,
                 .is_exact = a->o.is_exact};
    for (const step *s = l->qkv + 1; s <= l->attend; s++) {
        assert(a->o.launchers->ops[s->op]);
        TRY(a->o.launchers->ops[s->op](&j, s, err));
    }
    decode_pack p = {.x = (const float *)l->attend->out[0].data,
                     .next = next,
                     .width = (int32_t)l->attend->out[0].width};
    int32_t each = 4 * DECODE_PACK_THREADS;
    cuda_launch launch = {.kernel = a->pack,
                          .grid = {(uint32_t)((p.width + each - 1) / each)},
                          .block = {DECODE_PACK_THREADS},
                          .overlaps = true};
    void *arguments[] = {&p};
    return cuda_run(a->o.queue, &launch, arguments, err);
}

lace_status gpu_apart_join(const gpu_apart *a, const step *norm, const step *add, float *residual,
                           decode_vector next, const step *next_norm, float *next_squares,
                           lace_error *err)
{
    decode_join p = {.y = a->y,
                     .norm = norm->a.norm.weight,
                     .next_norm = next_norm ? next_norm->a.norm.weight : NULL,
                     .residual = residual,
                     .next = next,
                     .next_squares = next_squares,
                     .width = (int32_t)norm->in[0].width,
                     .eps = norm->a.norm.eps,
                     .scale = add->a.add.scale};
    cuda_launch launch = {
        .kernel = a->join, .grid = {1}, .block = {DECODE_JOIN_THREADS}, .overlaps = true};
    void *arguments[] = {&p};
    return cuda_run(a->o.queue, &launch, arguments, err);
}
