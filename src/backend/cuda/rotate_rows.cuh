/* Rotation of activations that meet rotated weights. */
#ifndef LACE_KERNELS_CUDA_ROTATE_ROWS_CUH
#define LACE_KERNELS_CUDA_ROTATE_ROWS_CUH

#include <stdint.h>

/*
 * 16 neighbouring lanes rotate 128 values (tensor/rotate.h), 8 each: lane l has values l, l + 16,
 * ..., which are columns 8 l and on of tiles (gpu_tiles.h). They grow by sqrt(128) at most, for
 * which f16 has room behind 2^12.
 */
static __device__ __forceinline__ void rotate_values(float (&v)[8], int first)
{
    const uint64_t signs[2] = {0x9e3779b97f4a7c15, 0xd1b54a32d192ed03};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t flips = (uint32_t)(signs[i / 4] >> (16 * (i % 4) + first));
        v[i] *= flips & 1 ? -0.08838834764831845f : 0.08838834764831845f;
    }
#pragma unroll
    for (int o = 1; o < 8; o <<= 1)
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (!(i & o)) {
                float a = v[i], b = v[i | o];
                v[i] = a + b;
                v[i | o] = a - b;
            }
#pragma unroll
    for (int o = 1; o < 16; o <<= 1)
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float other = __shfl_xor_sync(~0u, v[i], o);
            v[i] = threadIdx.x & o ? other - v[i] : v[i] + other;
        }
}

#endif
