/*
 * What the batched kernels share: barriers and bulk copies, and the form of their activations.
 *
 * Activations of a matrix product are f16 "atoms": 8 rows (tokens) by 64 values, 1024 bytes, in the
 * order in which the tensor cores read shared memory, so that a block of them is one plain copy:
 *
 *     x[k / 64][row / 8] -> 1024 bytes: row % 8 -> 128 bytes: 8 chunks of 16 bytes
 *
 * Chunk number n of row i lies in place n ^ i (the 128-byte swizzle). k is permuted as weights lie
 * in the registers of a warp (batch_unpack.cuh), in one of two orders:
 *
 *     int kinds:   k = 32 s + 8 c + 4 step + h + 2 e  ->  chunk 4 s + 2 step + h, place 2 c + e
 *     half kinds:  k = 16 q + 4 c + 2 h + e           ->  chunk 2 q + h,          place 2 c + e
 */
#ifndef LACE_KERNELS_CUDA_BATCH_COMMON_CUH
#define LACE_KERNELS_CUDA_BATCH_COMMON_CUH

#include <cuda_fp16.h>
#include <stdint.h>

enum { ATOM_ROWS = 8, ATOM_K = 64, ATOM_BYTES = 1024 };

/* Largest magnitude that is kept: beyond it an f16 would be infinite. */
#define F16_MOST 65504.0f

static __device__ __forceinline__ float clamp_f16(float x)
{
    return fminf(fmaxf(x, -F16_MOST), F16_MOST);
}

static __device__ __forceinline__ uint32_t pack_f16(float low, float high)
{
    __half2 h = __floats2half2_rn(clamp_f16(low), clamp_f16(high));
    return *(uint32_t *)&h;
}

/* Where chunk n of row `row`, for the 64 values of block k64, begins. */
static __device__ __forceinline__ size_t atom_chunk(int k64, int row, int chunk, int n_atoms)
{
    return ((size_t)k64 * n_atoms + (row >> 3)) * ATOM_BYTES + (row & 7) * 128 +
           ((chunk ^ (row & 7)) << 4);
}

/* 8 consecutive values of a row, k a multiple of 8, in the order of int or half kinds. */
static __device__ __forceinline__ void atom_store8(uint8_t *x, int k, int row, int n_atoms,
                                                   const float v[8], bool is_half)
{
    if (is_half) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint8_t *at = x + atom_chunk(k >> 6, row, (k >> 4 & 3) * 2 + h, n_atoms);
            *(uint2 *)(at + (k & 8)) = make_uint2(pack_f16(v[2 * h], v[2 * h + 1]),
                                                  pack_f16(v[4 + 2 * h], v[4 + 2 * h + 1]));
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int from = 4 * (i >> 1) + (i & 1);
        uint8_t *at = x + atom_chunk(k >> 6, row, (k >> 5 & 1) * 4 + i, n_atoms);
        *(uint32_t *)(at + (k >> 1 & 12)) = pack_f16(v[from], v[from + 2]);
    }
}

/* The first three of glu_kind (ops/step.h, gpu_glu_is_fused) with the fast functions: off by 1e-6 of itself. */
static __device__ __forceinline__ float glu_fast(int kind, float g, float u)
{
    if (kind == 1) {
        float z = 1.5957691216f * (g + 0.044715f * g * g * g); /* (1 + tanh(z / 2)) / 2 */
        return __fdividef(g, 1.0f + __expf(-z)) * u;
    }
    if (kind == 2) {
        g = fminf(g, 7.0f);
        u = fminf(fmaxf(u, -7.0f), 7.0f) + 1.0f;
    }
    return __fdividef(g, 1.0f + __expf(kind == 2 ? -1.702f * g : -g)) * u;
}

/* ---- Barriers in shared memory and bulk copies (sm_90) --------------------------------------- */

static __device__ __forceinline__ uint32_t shared_u32(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

#if __CUDA_ARCH__ >= 900
static __device__ __forceinline__ void bar_init(uint32_t bar, uint32_t count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

static __device__ __forceinline__ void bar_expect(uint32_t bar, uint32_t n_bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(n_bytes)
                 : "memory");
}

static __device__ __forceinline__ void bar_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

/* A barrier of this block's threads; one that other blocks of the cluster arrive at. */
#define BAR_WAIT(name, scope)                                                                      \
    static __device__ __forceinline__ void name(uint32_t bar, uint32_t parity)                     \
    {                                                                                              \
        asm volatile("{\n"                                                                         \
                     ".reg .pred p;\n"                                                             \
                     "AGAIN:\n"                                                                    \
                     "mbarrier.try_wait.parity" scope ".shared::cta.b64 p, [%0], %1;\n"            \
                     "@p bra DONE;\n"                                                              \
                     "bra AGAIN;\n"                                                                \
                     "DONE:\n"                                                                     \
                     "}" ::"r"(bar),                                                               \
                     "r"(parity)                                                                   \
                     : "memory");                                                                  \
    }
BAR_WAIT(bar_wait, "")
BAR_WAIT(bar_wait_cluster, ".acquire.cluster")
#undef BAR_WAIT

static __device__ __forceinline__ uint64_t policy_evict_first(void)
{
    uint64_t p;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
    return p;
}

static __device__ __forceinline__ void copy_in(uint32_t to, const void *from, uint32_t n_bytes,
                                               uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "%2, [%3];" ::"r"(to),
                 "l"(from), "r"(n_bytes), "r"(bar)
                 : "memory");
}

static __device__ __forceinline__ void copy_in_once(uint32_t to, const void *from, uint32_t n_bytes,
                                                    uint32_t bar, uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(n_bytes), "r"(bar), "l"(policy)
                 : "memory");
}

/* To the same place, and counted by the same barrier, in each block of the cluster that `blocks` has a
 * bit for. */
static __device__ __forceinline__ void copy_in_all(uint32_t to, const void *from, uint32_t n_bytes,
                                                   uint32_t bar, uint16_t blocks)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(n_bytes), "r"(bar), "h"(blocks)
                 : "memory");
}

/* At a barrier of another block of the cluster. */
static __device__ __forceinline__ void bar_arrive_at(uint32_t bar, uint32_t block)
{
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n"
                 "}" ::"r"(bar),
                 "r"(block)
                 : "memory");
}

/* All threads of the cluster's blocks: each says that it is here, and waits for the others. */
static __device__ __forceinline__ void cluster_arrive(void)
{
    asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
}

static __device__ __forceinline__ void cluster_wait(void)
{
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

static __device__ __forceinline__ void copy_out(void *to, uint32_t from, uint32_t n_bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(n_bytes)
                 : "memory");
}
#endif

/* Start the next kernel of the stream early; wait for the one before. */
static __device__ __forceinline__ void launch_next(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

static __device__ __forceinline__ void wait_previous(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#endif
