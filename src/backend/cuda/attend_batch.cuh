/* What the two kernels of batched attention share: matrix instructions, and
 * rows of the cache. */
#ifndef LACE_KERNELS_CUDA_ATTEND_BATCH_CUH
#define LACE_KERNELS_CUDA_ATTEND_BATCH_CUH

#include "backend/cuda/batch_common.cuh"
#include "backend/cuda/batch_params.h"
#include "backend/cuda/rows.cuh"

#define LOG2_E 1.4426950408889634f

static __device__ __forceinline__ void mma_f16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                               uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* 8 values of a row of the cache, from number i (a multiple of
 * 8) on, as f16. */
static __device__ __forceinline__ uint4 cache_load8(int type, const uint8_t *row, int i)
{
    if (type == DTYPE_F16)
        return *(const uint4 *)(row + 2 * i);
    if (type == DTYPE_F32) {
        const float4 *x = (const float4 *)(row + 4 * i);
        float4 a = x[0], b = x[1];
        return make_uint4(pack_f16(a.x, a.y), pack_f16(a.z, a.w), pack_f16(b.x, b.y),
                          pack_f16(b.z, b.w));
    }
    /* Blocks of 34 bytes lie at even addresses. */
    const uint16_t *block = (const uint16_t *)(row + i / 32 * 34);
    float scale = __half2float(__ushort_as_half(block[0]));
    uint32_t out[4];
#pragma unroll
    for (int n = 0; n < 4; n++) {
        uint32_t two = block[1 + (i % 32) / 2 + n];
        out[n] = pack_f16(scale * (float)(int8_t)(two & 255), scale * (float)(int8_t)(two >> 8));
    }
    return make_uint4(out[0], out[1], out[2], out[3]);
}

/* 8 values as f16, and what those are short of. */
static __device__ __forceinline__ uint4 split8(const float (&x)[8], uint4 &rest)
{
    uint32_t high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        high[i] = pack_f16(x[2 * i], x[2 * i + 1]);
        float2 back = __half22float2(*(__half2 *)&high[i]);
        low[i] = pack_f16(x[2 * i] - back.x, x[2 * i + 1] - back.y);
    }
    rest = make_uint4(low[0], low[1], low[2], low[3]);
    return make_uint4(high[0], high[1], high[2], high[3]);
}

/* The same of a row of the cache, F32 or Q8_0. */
static __device__ __forceinline__ uint4 cache_split8(int type, const uint8_t *row, int i,
                                                     uint4 &rest)
{
    float x[8];
    if (type == DTYPE_F32) {
        const float4 *from = (const float4 *)(row + 4 * i);
        float4 a = from[0], b = from[1];
        x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
        x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
    } else {
        const uint16_t *block = (const uint16_t *)(row + i / 32 * 34);
        float scale = __half2float(__ushort_as_half(block[0]));
#pragma unroll
        for (int n = 0; n < 4; n++) {
            uint32_t two = block[1 + (i % 32) / 2 + n];
            x[2 * n] = scale * (float)(int8_t)(two & 255);
            x[2 * n + 1] = scale * (float)(int8_t)(two >> 8);
        }
    }
    return split8(x, rest);
}

/* Two powers of 2 and shares, which are in 0..1. */
static __device__ __forceinline__ float power_of_2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ uint32_t pack_shares(float low, float high)
{
    __half2 h = __floats2half2_rn(low, high);
    return *(uint32_t *)&h;
}

/* Keys of a position, for pages of a power of 2; values lie v_offset - k_offset
 * behind them. */
static __device__ __forceinline__ const uint8_t *
cache_keys(const gpu_cache &c, int page_shift, const int32_t *table, int head, int position)
{
    int in_page = position & ((1 << page_shift) - 1);
    return c.data + (uint64_t)table[position >> page_shift] * c.page_bytes + c.k_offset +
           (uint64_t)((head << page_shift) + in_page) * c.row_bytes;
}

static __device__ __forceinline__ const int32_t *cache_table(const gpu_cache &c, int sequence)
{
    return c.tables + (int64_t)sequence * c.pages_per_sequence;
}

/* A score in powers of 2, from the plain product. */
static __device__ __forceinline__ float finish_score(const gpu_attend &a, float dot)
{
    float s = dot * a.scale;
    if (a.softcap > 0)
        s = a.softcap * tanhf(s / a.softcap);
    return s * LOG2_E;
}

#endif
