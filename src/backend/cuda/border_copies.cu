/*
 * Both ends of a part of a plan, for one token: what enters is fetched from the host's memory, and
 * what leaves is brought there, with a word at last that the host polls. One block each: the values of
 * a token are a few KiB.
 */
#include "backend/cuda/border_params.h"
#include "backend/cuda/decode_common.cuh"

/* The host writes between two runs, so what it wrote is read past all caches. */
extern "C" __global__ void __launch_bounds__(BORDER_THREADS)
    border_enter(const __grid_constant__ border_copies p)
{
    let_next_begin();
    wait_for_last();
    for (int v = 0; v < p.n_values; v++) {
        const uint4 *from = (const uint4 *)p.values[v].from;
        uint4 *to = (uint4 *)p.values[v].to;
        for (int i = threadIdx.x; i < p.values[v].n; i += BORDER_THREADS)
            to[i] = __ldcv(from + i);
    }
    if (threadIdx.x == 0 && p.said) {
        *(uint4 *)p.state = __ldcv((const uint4 *)p.said);
        p.state->turn = __ldcv(&p.said->turn);
    }
}

extern "C" __global__ void __launch_bounds__(BORDER_THREADS)
    border_leave(const __grid_constant__ border_copies p)
{
    let_next_begin();
    wait_for_last();
    for (int v = 0; v < p.n_values; v++) {
        const uint4 *from = (const uint4 *)p.values[v].from;
        uint4 *to = (uint4 *)p.values[v].to;
        for (int i = threadIdx.x; i < p.values[v].n; i += BORDER_THREADS)
            to[i] = __ldcg(from + i);
    }
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0 && p.done)
        asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p.done), "r"(p.state->n_chosen)
                     : "memory");
}
