/* Which tokens are computed: the state's, those that were just chosen, or those chosen last. */
#include "backend/cuda/batch_common.cuh"
#include "backend/cuda/sample_params.h"

extern "C" __global__ void replay_begin_kernel(replay_begin p)
{
    launch_next();
    wait_previous();
    decode_state s = *p.state;
    if (p.best) {
        s.token = p.best->row;
        s.position++;
        s.n_chosen++;
        *p.state = s;
    }
    *p.token = s.token;
    *p.position = s.position;
    *p.sequence = s.sequence;
}

/* Tokens TOKEN_CHOSEN become those that were chosen last for their sequences. */
extern "C" __global__ void fill_tokens(fill_tokens_params p)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p.n && p.tokens[i] == p.chosen_id)
        p.tokens[i] = p.last_tokens[p.sequences[i]];
}
