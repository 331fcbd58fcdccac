/*
 * What the fused kernels of one token share: their order, copies, and vectors on their way.
 *
 * From sm_90 on these kernels overlap (programmatic dependent launch); below, each begins when the
 * one in front of it has ended, and tiles are copied by threads. Each loads what does not depend on the one
 * in front (weights, old keys and values) before it waits for it. Who makes a vector also norms it,
 * up to the factor 1 / rms, and turns it into the planes that tiles are multiplied with; the factor
 * is applied to the consumer's result, which is linear in it. So a product begins with one small
 * copy.
 */
#ifndef LACE_KERNELS_CUDA_DECODE_COMMON_CUH
#define LACE_KERNELS_CUDA_DECODE_COMMON_CUH

#include "backend/cuda/decode_params.h"
#include "backend/cuda/rows.cuh"
#include "backend/cuda/tile_dot.cuh"

/* Dependent launch, bulk copies and clusters. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define HAS_OVERLAP 1
#endif

/* Sums of rows for some of them at a time; cards of sm_90 have shared memory for all. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
#define HAS_ROUNDS 1
#endif

/* ---- Order ----------------------------------------------------------------------------------- */

#ifdef HAS_OVERLAP
__device__ __forceinline__ void let_next_begin()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__device__ __forceinline__ void wait_for_last()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
#else
__device__ __forceinline__ void let_next_begin()
{
}

__device__ __forceinline__ void wait_for_last()
{
}
#endif

/*
 * Parameters are read through a cache that does not have them when a kernel begins. So all lines
 * are asked for at once, one by each lane, before there is anything to wait for. (A word of them
 * that happens to be that number costs nothing; without a use the compiler leaves the loads out.)
 */
template <class P> __device__ __forceinline__ void touch_parameters(const P &p)
{
    const uint32_t *words = (const uint32_t *)&p;
    const int last = (int)(sizeof p / 4) - 1;
    uint32_t w = words[min(16 * (int)(threadIdx.x & 31), last)];
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.eq.u32 p, %0, 0x5bd1e995;\n"
                 "@p nanosleep.u32 1;\n"
                 "}" ::"r"(w));
}

/*
 * The same as a copy, for code that reads parameters by chance: they come at once, as any memory
 * would.
 */
template <class P> __device__ __forceinline__ void copy_parameters(P *to, const P &p, int n_threads)
{
    static_assert(sizeof p % 8 == 0, "whole words");
    const uint2 *from = (const uint2 *)&p;
    asm volatile("" : "+l"(from));
    for (int i = threadIdx.x; i < (int)(sizeof p / 8); i += n_threads)
        ((uint2 *)to)[i] = from[i];
}

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

#ifdef HAS_OVERLAP
__device__ __forceinline__ void barrier_init(uint32_t b)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(b) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t b, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "AGAIN:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra DONE;\n"
                 "bra AGAIN;\n"
                 "DONE:\n"
                 "}" ::"r"(b),
                 "r"(parity)
                 : "memory");
}

/* Bytes from global to shared memory by the copy engine. Both ends lie alike within 128 bytes. */
__device__ __forceinline__ void copy_bulk(uint32_t to, const void *from, uint32_t n, uint32_t b,
                                          uint64_t policy)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(n)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(n), "r"(b), "l"(policy)
                 : "memory");
}
#endif

/* ---- Vectors --------------------------------------------------------------------------------- */

/* Of the 16 lanes that are this one's half of a warp. One instruction for each half, which do not
 * wait for each other, take less time than four exchanges in a row. */
__device__ __forceinline__ uint32_t most_of_half(uint32_t v)
{
    const bool is_second = threadIdx.x & 16;
    uint32_t first = __reduce_max_sync(~0u, is_second ? 0 : v);
    uint32_t second = __reduce_max_sync(~0u, is_second ? v : 0);
    return is_second ? second : first;
}

__device__ __forceinline__ int sum_of_half(int v)
{
    const bool is_second = threadIdx.x & 16;
    int first = __reduce_add_sync(~0u, is_second ? 0 : v);
    int second = __reduce_add_sync(~0u, is_second ? v : 0);
    return is_second ? second : first;
}

/* 16 neighbouring lanes hold a group, one value each; i is the value's place. Lanes of a half that
 * is not `active` write nothing. */
__device__ __forceinline__ void vector_put(const decode_vector &to, float v, int i, bool active)
{
    if (to.act == GPU_ACT_FLOATS || to.act == GPU_ACT_ROTATED) {
        int at = i;
        if (to.act == GPU_ACT_ROTATED) {
            at = rotation_place(i);
            v *= rotation_sign(i);
#pragma unroll
            for (int o = 1; o < 16; o <<= 1)
                v = rotation_step(v, i, o, o);
        }
        if (active)
            ((float *)to.planes)[at] = v;
        return;
    }
    float most = __uint_as_float(most_of_half(__float_as_uint(fabsf(v))));
    const float tiny = 1e-30f;
    bool is_some = most > tiny;
    float2 *scales = (float2 *)(to.planes + 2 * to.k * act_value_bytes((gpu_act)to.act));
    if (to.act == GPU_ACT_INT) {
        const float full = 127 * 256 + 127;
        float d = is_some ? most * (1.0f / full) : 0.0f;
        int q = __float2int_rn(v * (is_some ? __fdividef(full, most) : 0.0f));
        int sum = sum_of_half(q);
        int high = (q + 128) >> 8;
        if (active) {
            to.planes[i] = (uint8_t)high;
            to.planes[to.k + i] = (uint8_t)(q - 256 * high);
            if ((i & 15) == 0)
                scales[i >> 4] = make_float2(d, d * (float)sum);
        }
        return;
    }
    float u = v * (is_some ? __fdividef(1.0f, most) : 0.0f);
    uint16_t high, low;
    if (to.act == GPU_ACT_F16) {
        __half h = __float2half_rn(u);
        high = __half_as_ushort(h);
        low = __half_as_ushort(__float2half_rn(u - __half2float(h)));
    } else {
        __nv_bfloat16 h = __float2bfloat16_rn(u);
        high = __bfloat16_as_ushort(h);
        low = __bfloat16_as_ushort(__float2bfloat16_rn(u - __bfloat162float(h)));
    }
    if (active) {
        ((uint16_t *)to.planes)[i] = high;
        ((uint16_t *)to.planes)[to.k + i] = low;
        if ((i & 15) == 0)
            scales[i >> 4] = make_float2(is_some ? most : 0.0f, 0.0f);
    }
}

__device__ __forceinline__ void copy_16(uint32_t to, const void *from, bool is_there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(is_there ? 16 : 0)
                 : "memory");
}

/* Bytes that are read once. */
__device__ __forceinline__ void copy_16_once(uint32_t to, const void *from, uint64_t policy)
{
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(from), "l"(policy)
                 : "memory");
}

__device__ __forceinline__ void copy_4(uint32_t to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N> __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Of two results the larger, of equal ones the first. */
__device__ __forceinline__ bool is_better(float a, int i, float b, int j)
{
    return a > b || (a == b && i < j);
}

#endif
