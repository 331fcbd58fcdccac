/* Small functions that row kernels share: sums of a warp and of a block, activations, the cache. */
#ifndef LACE_KERNELS_CUDA_ROWS_CUH
#define LACE_KERNELS_CUDA_ROWS_CUH

#include "backend/cuda/block_values.cuh"
#include "backend/cuda/gpu_params.h"

__device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int o = 16; o; o >>= 1)
        v += __shfl_xor_sync(~0u, v, o);
    return v;
}

__device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
    for (int o = 16; o; o >>= 1)
        v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
    return v;
}

/* The tokens of a sequence in a batch: how many, and the first of them. */
struct tokens_of {
    int n, first;

    __device__ __forceinline__ tokens_of(const int32_t *sequences, int sequence, int n_tokens)
        : n(n_tokens == 1), first(0)
    {
        for (int t = 0; n_tokens > 1 && t < n_tokens; t += 32) {
            const int mine = t + (threadIdx.x & 31);
            const uint32_t found =
                __ballot_sync(~0u, mine < n_tokens && sequences[mine] == sequence);
            first = n == 0 && found ? t + __ffs(found) - 1 : first;
            n += __popc(found);
        }
    }
};

/* The sum over all threads of a block, in a fixed order. */
template <int THREADS> __device__ __forceinline__ float block_sum(float v)
{
    __shared__ float parts[THREADS / 32];
    v = warp_sum(v);
    __syncthreads(); /* the one before may still be read */
    if ((threadIdx.x & 31) == 0)
        parts[threadIdx.x >> 5] = v;
    __syncthreads();
    v = 0;
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++)
        v += parts[i];
    return v;
}

/* The largest of all threads of a block; not below 0. */
template <int THREADS> __device__ __forceinline__ float block_max(float v)
{
    __shared__ float parts[THREADS / 32];
    v = warp_max(v);
    __syncthreads(); /* the one before may still be read */
    if ((threadIdx.x & 31) == 0)
        parts[threadIdx.x >> 5] = v;
    __syncthreads();
    v = 0;
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++)
        v = fmaxf(v, parts[i]);
    return v;
}

/* silu, gelu_tanh and clamped: the kinds that products end in. More would cost them registers. */
__device__ __forceinline__ float glu_of_product(int kind, float g, float u)
{
    if (kind == 0)
        return g / (1.0f + expf(-g)) * u;
    if (kind == 1)
        return 0.5f * g * (1.0f + tanhf(0.7978845608f * (g + 0.044715f * g * g * g))) * u;
    g = fminf(g, 7.0f);
    u = fminf(fmaxf(u, -7.0f), 7.0f) + 1.0f;
    return g / (1.0f + expf(-1.702f * g)) * u;
}

/* Every glu_kind of ops/step.h. */
__device__ __forceinline__ float glu(int kind, float g, float u)
{
    switch (kind) {
    case 3:
        return 0.5f * g * erfcf(-0.7071067812f * g) * u;
    case 4:
        return (g < 0 ? 0 : g * g) * u;
    case 5:
        return 1.0f / (1.0f + expf(-g)) * u;
    case 6:
        return tanhf(g) * u;
    case 7:
        return g * u;
    default:
        return glu_of_product(kind, g, u);
    }
}

/* One head of one position: keys at k_offset, values at v_offset. */
__device__ __forceinline__ uint8_t *cache_row(const gpu_cache &c, uint64_t offset, int sequence,
                                              int head, int position)
{
    int page = c.tables[(int64_t)sequence * c.pages_per_sequence + position / c.page_tokens];
    return c.data + (uint64_t)page * c.page_bytes + offset +
           (uint64_t)(head * c.page_tokens + position % c.page_tokens) * c.row_bytes;
}

/* The last position that token t, whose own is given, sees. */
__device__ __forceinline__ int last_seen(const gpu_attend &a, int t, int own)
{
    int last = a.cache.seen ? a.cache.seen[t] - 1 : own;
    return a.ahead && last > own + a.ahead ? own + a.ahead : last;
}

#endif
