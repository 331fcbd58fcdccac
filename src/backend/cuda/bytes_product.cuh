/*
 * The int8 instruction of sm_90a: 64 rows of weights (unsigned bytes in the registers of four warps)
 * times N rows of activations (signed bytes in shared memory), 32 values deep.
 */
#ifndef LACE_KERNELS_CUDA_BYTES_PRODUCT_CUH
#define LACE_KERNELS_CUDA_BYTES_PRODUCT_CUH

#include "backend/cuda/batch_product.cuh"

#define BYTES_4(d, i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define BYTES_16(d, i) BYTES_4(d, i), BYTES_4(d, i + 4), BYTES_4(d, i + 8), BYTES_4(d, i + 12)

/* d = a[4] x b, or added to d; the places as in product_add. */
static __device__ __forceinline__ void bytes_add(int (&d)[16], const uint32_t *a, uint64_t b,
                                                 int adds)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k32.s32.u8.s8 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
                 "{%16,%17,%18,%19}, %20, p;\n}"
                 : BYTES_16(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
}

static __device__ __forceinline__ void bytes_add(int (&d)[32], const uint32_t *a, uint64_t b,
                                                 int adds)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k32.s32.u8.s8 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
                 "{%32,%33,%34,%35}, %36, p;\n}"
                 : BYTES_16(d, 0), BYTES_16(d, 16)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
}

/* Nobody reads sums before the wait in front of this. */
template <int N> static __device__ __forceinline__ void bytes_hold(int (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(d[i])::"memory");
}

#endif
