/* One head of one token, by a block: turned, and written to the cache. */
#ifndef LACE_KERNELS_CUDA_HEAD_ROWS_CUH
#define LACE_KERNELS_CUDA_HEAD_ROWS_CUH

#include "backend/cuda/rows.cuh"

/* The block turns one head. */
template <int THREADS>
__device__ __forceinline__ void turn_head(float *x, const float *table, int n_dims, int is_neox)
{
    for (int i = threadIdx.x; i < n_dims / 2; i += THREADS) {
        float *a = x + (is_neox ? i : 2 * i), *b = a + (is_neox ? n_dims / 2 : 1);
        float c = table[2 * i], s = table[2 * i + 1], x0 = *a, x1 = *b;
        *a = x0 * c - x1 * s;
        *b = x0 * s + x1 * c;
    }
}

/* The block writes one head; Q8_0: 32 lanes make a block of 32 values. */
template <int THREADS>
__device__ __forceinline__ void write_row(uint8_t *to, const float *x, int n, int type)
{
    if (type == DTYPE_F32)
        for (int i = threadIdx.x; i < n; i += THREADS)
            ((float *)to)[i] = x[i];
    else if (type == DTYPE_F16)
        for (int i = threadIdx.x; i < n; i += THREADS)
            ((__half *)to)[i] = __float2half_rn(x[i]);
    else
        for (int i = threadIdx.x; i < n; i += THREADS) {
            float most = fabsf(x[i]);
#pragma unroll
            for (int o = 16; o; o >>= 1)
                most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
            float d = most / 127.0f, inverse = d ? 1.0f / d : 0.0f;
            block_q8_0 *b = (block_q8_0 *)to + i / 32;
            b->quants[i % 32] = (int8_t)roundf(x[i] * inverse);
            if (i % 32 == 0)
                b->scale = __half_as_ushort(__float2half_rn(d));
        }
}

#endif
