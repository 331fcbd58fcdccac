/* COLLECT among several cards: a rank's columns to where others find them, and theirs from there. */
#include "backend/cuda/batch_common.cuh"
#include "backend/cuda/collect_params.h"

static __device__ __forceinline__ uint32_t read_number(const uint32_t *at)
{
    uint32_t n;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(n) : "l"(at) : "memory");
    return n;
}

static __device__ __forceinline__ void write_number(uint32_t *at, uint32_t n)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(n) : "memory");
}

static __device__ __forceinline__ uint64_t now_ns(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

/* The columns of a rank between its part, which is rows without gaps, and x; by all blocks. */
template <typename word, bool takes>
static __device__ __forceinline__ void copy_words(const gpu_collect &p, int rank, uint8_t *part)
{
    const int each = sizeof(word) / 4;
    int n = (p.first[rank + 1] - p.first[rank]) / each;
    int64_t all = (int64_t)p.n_rows * n, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
        float *at = p.x + i / n * p.stride + p.first[rank] + i % n * each;
        word *other = (word *)part + i;
        if (takes)
            *(word *)at =
                __ldcv(other); /* the host's memory, which no cache of the card may keep */
        else
            *other = *(const word *)at;
    }
}

template <bool takes>
static __device__ __forceinline__ void copy_part(const gpu_collect &p, int rank, uint8_t *part)
{
    if (p.is_wide)
        copy_words<float4, takes>(p, rank, part);
    else
        copy_words<float, takes>(p, rank, part);
}

/* True for one thread of the last block that comes by. */
static __device__ __forceinline__ bool is_last(uint32_t *counter)
{
    if (atomicAdd(counter, 1) != gridDim.x - 1)
        return false;
    *counter = 0;
    return true;
}

/* Until rank k has given its part to exchange n, the group has failed, or it took too long. */
static __device__ __forceinline__ void wait_for(const gpu_collect &p, int k, uint32_t n)
{
    uint64_t begin = now_ns();
    while ((int32_t)(read_number(p.board->done[k]) - n) < 0) {
        if (read_number(&p.board->has_failed))
            return;
        if (now_ns() - begin > p.deadline_ns)
            write_number(&p.board->has_failed, 1);
    }
}

/* Over the board. The blocks of all cards are on them at the same time: there are few. */
extern "C" __global__ void __launch_bounds__(COLLECT_THREADS) collect_rows(const gpu_collect p)
{
    wait_previous();
    uint32_t n = *(volatile uint32_t *)&p.counts->n_exchanges + 1;
    bool gives = !p.at_first || p.rank != 0, takes = !p.at_first || p.rank == 0;
    if (gives)
        copy_part<false>(p, p.rank, (uint8_t *)p.board->parts[p.rank][n & 1]);
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0 && is_last(&p.counts->n_sent)) {
        __threadfence_system();
        write_number(p.board->done[p.rank], n);
    }
    if (takes) {
        if (threadIdx.x < p.n_ranks)
            wait_for(p, threadIdx.x, n);
        __syncthreads();
        for (int k = 0; k < p.n_ranks; k++)
            if (k != p.rank)
                copy_part<true>(p, k, (uint8_t *)p.board->parts[k][n & 1]);
    }
    __syncthreads();
    if (threadIdx.x == 0 && is_last(&p.counts->n_taken))
        *(volatile uint32_t *)&p.counts->n_exchanges = n;
}

/* The same in two parts, with NCCL between them. */
extern "C" __global__ void __launch_bounds__(COLLECT_THREADS) collect_give(const gpu_collect p)
{
    wait_previous();
    copy_part<false>(p, p.rank, p.staging + (uint64_t)p.rank * p.part_bytes);
}

extern "C" __global__ void __launch_bounds__(COLLECT_THREADS) collect_take(const gpu_collect p)
{
    wait_previous();
    for (int k = 0; k < p.n_ranks; k++)
        if (k != p.rank)
            copy_part<true>(p, k, p.staging + (uint64_t)k * p.part_bytes);
}
