/*
 * The int8 instruction of sm_90a: 64 rows of weights (unsigned bytes) times 128 rows of activations
 * (signed bytes), 32 values deep, both as atoms in shared memory.
 */
#ifndef LACE_KERNELS_CUDA_BYTES_PRODUCT_CUH
#define LACE_KERNELS_CUDA_BYTES_PRODUCT_CUH

#include "backend/cuda/batch_product.cuh"

#define BYTES_4(d, i)  "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define BYTES_16(d, i) BYTES_4(d, i), BYTES_4(d, i + 4), BYTES_4(d, i + 8), BYTES_4(d, i + 12)

/* d = a x b, or added to d; the places as in product_add. */
static __device__ __forceinline__ void bytes_add(int (&d)[64], uint64_t a, uint64_t b, int adds)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k32.s32.u8.s8 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
                 "%64, %65, p;\n}"
                 : BYTES_16(d, 0), BYTES_16(d, 16), BYTES_16(d, 32), BYTES_16(d, 48)
                 : "l"(a), "l"(b), "r"(adds));
}

/* Nobody reads sums before the wait in front of this. */
template <int N> static __device__ __forceinline__ void bytes_hold(int (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(d[i])::"memory");
}

#endif
