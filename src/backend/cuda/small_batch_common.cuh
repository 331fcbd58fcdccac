/* How rows of a few tokens become slabs (small_batch_params.h). */
#ifndef LACE_KERNELS_CUDA_SMALL_BATCH_COMMON_CUH
#define LACE_KERNELS_CUDA_SMALL_BATCH_COMMON_CUH

#include <cuda_fp16.h>

#include "backend/cuda/small_batch_params.h"
#include "backend/cuda/rows.cuh"

/*
 * A warp has the 256 values of a token and slab, lane l those from 8 l on. Scales are by 256 values
 * and not by rows: a row with one large value would leave few bits to all others.
 */
static __device__ __forceinline__ void slab_store8(uint8_t *slab, int token, const float (&v)[8],
                                                   int lane)
{
    const float full = 127 * 256 + 127;
    float most = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        most = fmaxf(most, fabsf(v[i]));
    most = warp_max(most);
    const float inverse = most > 1e-30f ? full / most : 0.0f;
    uint32_t high[2] = {0, 0}, low[2] = {0, 0};
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int q = __float2int_rn(v[i] * inverse), h = (q + 128) >> 8;
        sum += q;
        high[i >> 2] |= (uint32_t)(h & 255) << 8 * (i & 3);
        low[i >> 2] |= (uint32_t)(q & 255) << 8 * (i & 3); /* q - 256 h */
    }
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const int s = lane >> 2, c = lane & 3;
    *(uint4 *)(slab + 512 * s + 16 * (4 * token + c)) =
        make_uint4(high[0], high[1], low[0], low[1]);
    if (c == 0) {
        float mean = (float)sum * (1.0f / 32);
        __half first = __float2half_rn(mean);
        __half *to = (__half *)(slab + SMALL_SUMS_AT + 8 * (4 * token + (s >> 1)));
        to[s & 1] = first;
        to[2 + (s & 1)] = __float2half_rn(mean - __half2float(first));
    }
    if (lane == 0)
        *(float *)(slab + SMALL_SCALES_AT + 4 * token) = most > 1e-30f ? most / full : 0.0f;
}

#endif
