/*
 * What products of one token share: tiles that are streamed through a ring in shared memory, the
 * planes of activations beside it, and sums of what warps have multiplied.
 */
#ifndef LACE_KERNELS_CUDA_DECODE_RING_CUH
#define LACE_KERNELS_CUDA_DECODE_RING_CUH

#include "backend/cuda/decode_common.cuh"

#ifdef HAS_OVERLAP

/* The second plane is moved by half the banks, so that both can be read at once. */
enum { PLANE_PAD = 64 };

/* Tiles are as long as lines of 128 bytes, or begin anywhere in one. */
template <int KIND> __host__ __device__ constexpr int stage_bytes()
{
    return tile_info<KIND>::bytes % 128 ? (tile_info<KIND>::bytes + 96 + 127) / 128 * 128
                                        : tile_info<KIND>::bytes;
}

/* Of the planes in shared memory. */
__device__ __forceinline__ int vector_bytes(const decode_vector &v)
{
    return 2 * v.k * act_value_bytes((gpu_act)v.act) + v.k / GPU_GROUP * 8;
}

/* Row i of a block's sums: those of its warps, added up. */
__device__ __forceinline__ float slot_sum(const float *slots, int n_slots, int i)
{
    float sums[4] = {0, 0, 0, 0}; /* short chains */
#pragma unroll
    for (int w = 0; w < DECODE_WARPS; w++)
        sums[w % 4] += slots[w * n_slots * TILE_ROWS + i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* Sum over a block in a fixed order; thread 0 has it. */
__device__ __forceinline__ float block_total(float v, float *parts)
{
    v = warp_sum(v);
    if ((threadIdx.x & 31) == 0)
        parts[threadIdx.x >> 5] = v;
    __syncthreads();
    v = 0;
    for (int w = 0; threadIdx.x == 0 && w < DECODE_WARPS; w++)
        v += parts[w];
    return v;
}

#endif
#endif
