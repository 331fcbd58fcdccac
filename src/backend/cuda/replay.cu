/* Which token the steps of a recorded plan compute: the state's, or the one that was just chosen. */
#include "backend/cuda/batch_common.cuh"
#include "backend/cuda/decode_params.h"

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
