/*
 * One token: what lies between q k v and attention where the fused attention does not do it. Heads
 * are picked out of rows, normed, turned, and those of keys and values written to the cache, by one
 * kernel with a block for each of them.
 */
#include "backend/cuda/decode_common.cuh"
#include "backend/cuda/head_rows.cuh"

__device__ __forceinline__ void norm_head(float *row, const decode_stream &s, const float *by)
{
    float sum = 0;
    for (int i = threadIdx.x; i < s.dim; i += DECODE_HEAD_THREADS)
        sum += row[i] * row[i];
    sum = block_sum<DECODE_HEAD_THREADS>(sum);
    const float factor = 1.0f / sqrtf(sum / (float)s.dim + s.eps);
    for (int i = threadIdx.x; i < s.dim; i += DECODE_HEAD_THREADS)
        row[i] = row[i] * factor * by[i];
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(DECODE_HEAD_THREADS)
    decode_heads_kernel(const __grid_constant__ decode_heads p)
{
    constexpr int THREADS = DECODE_HEAD_THREADS;
    __shared__ float row[DECODE_HEAD_DIM];
    const int tid = threadIdx.x;
    int head = blockIdx.x, n = 0;
    let_next_begin();
    while (head >= p.streams[n].n_heads)
        head -= p.streams[n++].n_heads;
    const decode_stream &s = p.streams[n];
    const float *norm = s.norm ? s.norm + (s.is_wide ? (int64_t)head * s.dim : 0) : nullptr;
    wait_for_last();
    const float *x = s.x + (int64_t)head * s.x_step;
    for (int i = tid; i < s.dim; i += THREADS)
        row[i] = __ldcg(x + i);
    __syncthreads();
    if (norm)
        norm_head(row, s, norm);
    if (s.turns) {
        turn_head<THREADS>(row, p.angles, p.n_dims, p.is_neox);
        __syncthreads();
    }
    if (s.out)
        for (int i = tid; i < s.dim; i += THREADS)
            s.out[(int64_t)head * s.out_step + i] = row[i];
    if (s.writes)
        write_row<THREADS>(
            cache_row(p.cache, s.offset, p.cache.sequences[0], head, p.cache.positions[0]), row,
            s.dim, p.cache.type);
}
