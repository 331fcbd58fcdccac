/*
 * What the kernels share that attend with one token (decode_attend.cu, decode_attend_rows.cuh): how a
 * context is cut, the softmax of a piece, and how blocks that share a head's context come together.
 *
 * Some blocks for each head of k share its context; each warp takes pieces of 16 positions. A block
 * adds up what its warps have, and meets the others.
 */
#ifndef LACE_BACKEND_CUDA_DECODE_ATTEND_CUH
#define LACE_BACKEND_CUDA_DECODE_ATTEND_CUH

#include "backend/cuda/decode_turn.cuh"

template <bool TURNS>
__device__ __forceinline__ void load_matrices(uint32_t (&d)[4], uint32_t address)
{
    if (TURNS)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(address)
                     : "memory");
}

/* ---- Parts of the result, on their way to the block that adds them up ------------------------ */

#ifdef HAS_OVERLAP

enum { ATTEND_BLOCKS = 4 };

typedef decode_attention attend_parameters;

__device__ __forceinline__ const decode_attention &attention_of(const attend_parameters &p)
{
    return p;
}

/* The blocks that share a head's context, and which of them this one is. */
struct attend_team {
    int n_blocks, rank;

    __device__ __forceinline__ attend_team(const attend_parameters &)
    {
        asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n_blocks));
        asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    }
};

__device__ __forceinline__ uint32_t address_in(uint32_t address, int block)
{
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
    return there;
}

/* Stores into another block's shared memory, counted by a barrier there. */
__device__ __forceinline__ void push_4(uint32_t to, float4 v, uint32_t barrier)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
                 "[%0], {%1,%2,%3,%4}, [%5];" ::"r"(to),
                 "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ void push_2(uint32_t to, float2 v, uint32_t barrier)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 "
                 "[%0], {%1,%2}, [%3];" ::"r"(to),
                 "f"(v.x), "f"(v.y), "r"(barrier)
                 : "memory");
}

/* Everything that was promised to the barrier has come, from wherever in the cluster. */
__device__ __forceinline__ void wait_for_parts(uint32_t barrier)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "AGAIN:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;\n"
                 "@p bra DONE;\n"
                 "bra AGAIN;\n"
                 "DONE:\n"
                 "}" ::"r"(barrier)
                 : "memory");
}

/* What another block has left here. */
template <class T> __device__ __forceinline__ T part_at(const T *p)
{
    return *p;
}

#else

enum { ATTEND_BLOCKS = 2 };

typedef decode_attention_parts attend_parameters;

__device__ __forceinline__ const decode_attention &attention_of(const attend_parameters &p)
{
    return p.in;
}

struct attend_team {
    int n_blocks, rank;

    __device__ __forceinline__ attend_team(const attend_parameters &p)
        : n_blocks(gridDim.x / p.in.cache.n_heads), rank(blockIdx.x % n_blocks)
    {
    }
};

template <class T> __device__ __forceinline__ T part_at(const T *p)
{
    return __ldcg(p);
}

#endif

/* The largest of 16 lanes, and their sum. */
__device__ __forceinline__ float most_of_16(float v)
{
#pragma unroll
    for (int o = 8; o; o >>= 1)
        v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
    return v;
}

__device__ __forceinline__ float sum_of_16(float v)
{
#pragma unroll
    for (int o = 8; o; o >>= 1)
        v += __shfl_xor_sync(~0u, v, o);
    return v;
}

/* ---- Pieces of the context ------------------------------------------------------------------- */

/* Positions of a piece. */
enum { PIECE = 16, WARPS = DECODE_ATTEND_WARPS, THREADS = 32 * WARPS, MOST = DECODE_MAX_GROUP };

/* The softmax, kept online: scores become shares; returns how what was before fades. */
__device__ __forceinline__ float share_scores(float (&scores)[2][2], float &most, float &sum)
{
    float now =
        fmaxf(most, fmaxf(fmaxf(scores[0][0], scores[0][1]), fmaxf(scores[1][0], scores[1][1])));
    now = fmaxf(now, __shfl_xor_sync(~0u, now, 1));
    now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
    float fade = most == -INFINITY ? 0.0f : __expf(most - now), part = 0;
    most = now;
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            scores[n][h] = now == -INFINITY ? 0.0f : __expf(scores[n][h] - now);
            part += scores[n][h];
        }
    sum = sum * fade + part; /* of this lane's positions */
    return fade;
}

/* ---- Parts of blocks ------------------------------------------------------------------------- */

/* Of each head and warp, and of each block and head: the largest score, and the sum of shares. */
typedef float warp_numbers[MOST][WARPS];
typedef float2 block_sums[DECODE_MAX_CLUSTER][MOST];

/*
 * Where the warps of a block leave what they have summed up: [warp][head][values], with so many bytes
 * from warp to warp and so many floats from head to head.
 */
template <int HEAD_DIM, int WARP, int HEAD> struct parts_layout {
    static constexpr int DIM = HEAD_DIM, WARP_BYTES = WARP, HEAD_STEP = HEAD;
};

/* Values i to i + 3 of what the warps of this block have, added up; and the numbers of their head. */
struct block_part {
    float4 v;
    float2 sums;

    template <class L>
    static __device__ __forceinline__ block_part of(const warp_numbers &warp_most,
                                                    const warp_numbers &warp_sums,
                                                    const uint8_t *page_memory, int i, int h)
    {
        float4 mosts = *(const float4 *)warp_most[h], sums = *(const float4 *)warp_sums[h];
        float top = fmaxf(fmaxf(mosts.x, mosts.y), fmaxf(mosts.z, mosts.w));
        float base = top == -INFINITY ? 0.0f : top;
        const float e[4] = {__expf(mosts.x - base), __expf(mosts.y - base), __expf(mosts.z - base),
                            __expf(mosts.w - base)};
        float l = e[0] * sums.x + e[1] * sums.y + e[2] * sums.z + e[3] * sums.w;
        float4 v = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            float4 x = *(const float4 *)(page_memory + w * L::WARP_BYTES +
                                         4 * (i + h * (L::HEAD_STEP - L::DIM)));
            v = make_float4(v.x + e[w] * x.x, v.y + e[w] * x.y, v.z + e[w] * x.z, v.w + e[w] * x.w);
        }
        return {v, make_float2(top, l)};
    }
};

/* This block's share of the values: 16 lanes have values of one head, each of them weighs one
 * block. */
template <int DIM>
__device__ __forceinline__ void add_parts(const float2 (*all_sums)[MOST], const float *all_parts,
                                          const decode_attention &p, int head, int group,
                                          int n_values, int share, int n_shared, int n_blocks,
                                          int rank, int tid, int lane)
{
    for (int i0 = tid & ~31; i0 < n_shared; i0 += THREADS) {
        int k = i0 + lane, i = rank * share + k, h = min(i, n_values - 1) / DIM, b = lane & 15;
        float2 its = b < n_blocks ? part_at(&all_sums[b][h]) : make_float2(-INFINITY, 0);
        float top = most_of_16(its.x), sink = 0;
        if (p.sinks) {
            float s = p.sinks[head * group + h];
            top = fmaxf(top, s);
            sink = __expf(s - top);
        }
        float e = its.x == -INFINITY ? 0.0f : __expf(its.x - top);
        float weight = __fdividef(e, sum_of_16(e * its.y) + sink), v = 0;
#pragma unroll 2
        for (int n = 0; n < n_blocks; n++)
            v += __shfl_sync(~0u, weight, n, 16) * part_at(&all_parts[n * share + k]);
        vector_put(p.next, v, head * n_values + i, k < n_shared);
    }
}

/*
 * The blocks of a head come together: those of a cluster push what they have to each other, and each
 * adds up a share of the values; others leave it in memory, and the last of them adds up all. Sums
 * are made in the order of the blocks, so nobody sees who was the last.
 */
#ifdef HAS_OVERLAP

template <class L> struct meeting {
    static constexpr int DIM = L::DIM;
    block_sums &all_sums;
    float (&all_parts)[MOST * DIM + 32 * DECODE_MAX_CLUSTER];
    uint64_t &parts_barrier;

    /* Of n_values each block adds up a share. */
    static __device__ __forceinline__ int share_of(int n_values, int n_blocks)
    {
        return (n_values / 16 + n_blocks - 1) / n_blocks * 16;
    }

    /* Says how many bytes will come, and that this block is there. */
    __device__ __forceinline__ void announce(int n_blocks, int n_shared, int group, int tid)
    {
        const uint32_t barrier = shared_address(&parts_barrier);
        if (tid == 0) {
            barrier_init(barrier);
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                         "r"(n_blocks * (4 * n_shared + 8 * group))
                         : "memory");
        }
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    }

    /* first_to: where this thread's first value goes. */
    __device__ __forceinline__ void
    add_up(const warp_numbers &warp_most, const warp_numbers &warp_sums, const uint8_t *page_memory,
           const attend_parameters &p, int n_blocks, int rank, int head, int group, int n_values,
           int share, int n_shared, int first_to, int tid, int lane)
    {
        const uint32_t barrier = shared_address(&parts_barrier);
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); /* everyone is there */
        const uint32_t parts_at = shared_address(all_parts), sums_at = shared_address(all_sums);
#pragma unroll 1
        for (int i = 4 * tid, to = first_to; i < n_values; i += 4 * THREADS, to = i / share) {
            int h = i / DIM, d = i - h * DIM;
            block_part mine = block_part::of<L>(warp_most, warp_sums, page_memory, i, h);
            push_4(address_in(parts_at + 4 * (rank * share + i - to * share), to), mine.v,
                   address_in(barrier, to));
            if (d < 4 * n_blocks)
                push_2(address_in(sums_at + 8 * (rank * MOST + h), d / 4), mine.sums,
                       address_in(barrier, d / 4));
        }
        wait_for_parts(barrier);
        add_parts<DIM>(all_sums, all_parts, p, head, group, n_values, share, n_shared, n_blocks,
                       rank, tid, lane);
    }
};

#else

template <class L> struct meeting {
    static constexpr int DIM = L::DIM;
    block_sums &all_sums; /* these two are not used */
    float (&all_parts)[MOST * DIM + 32 * DECODE_MAX_CLUSTER];
    uint64_t &is_last;

    static __device__ __forceinline__ int share_of(int n_values, int)
    {
        return n_values;
    }

    __device__ __forceinline__ void announce(int, int, int, int)
    {
    }

    __device__ __forceinline__ void add_up(const warp_numbers &warp_most,
                                           const warp_numbers &warp_sums,
                                           const uint8_t *page_memory, const attend_parameters &p,
                                           int n_blocks, int rank, int head, int group,
                                           int n_values, int, int, int, int tid, int lane)
    {
        float *values = p.values + (int64_t)head * DECODE_MAX_CLUSTER * n_values;
        float2(*sums)[MOST] = (float2(*)[MOST])p.sums + head * DECODE_MAX_CLUSTER;
        for (int i = 4 * tid; i < n_values; i += 4 * THREADS) {
            int h = i / DIM;
            block_part mine = block_part::of<L>(warp_most, warp_sums, page_memory, i, h);
            *(float4 *)(values + rank * n_values + i) = mine.v;
            if (i == h * DIM)
                sums[rank][h] = mine.sums;
        }
        __threadfence(); /* what this thread has left is seen before its block's ticket */
        __syncthreads();
        if (tid == 0) {
            is_last = atomicAdd(p.tickets + head, 1) == (uint32_t)n_blocks - 1;
            if (is_last)
                p.tickets[head] = 0; /* for the next layer */
        }
        __syncthreads();
        if (!is_last)
            return;
        __threadfence();
        add_parts<DIM>(sums, values, p.in, head, group, n_values, n_values, n_values, n_blocks, 0,
                       tid, lane);
    }
};

#endif

#endif
