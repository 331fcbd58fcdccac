/* Single values out of a file's blocks: for tables that are read by the row, and for packing. */
#ifndef LACE_KERNELS_CUDA_BLOCK_VALUES_CUH
#define LACE_KERNELS_CUDA_BLOCK_VALUES_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "tensor/blocks.h"
#include "tensor/dtype_list.h"

/* Blocks may lie at any address. */
__device__ __forceinline__ uint32_t load_u16_at(const void *p)
{
    const uint8_t *b = (const uint8_t *)p;
    return b[0] | (uint32_t)b[1] << 8;
}

__device__ __forceinline__ float load_f16_at(const void *p)
{
    return __half2float(__ushort_as_half((unsigned short)load_u16_at(p)));
}

__device__ __forceinline__ float e8m0_half(uint32_t e) /* 2^(e - 128) */
{
    return e < 2 ? __uint_as_float(0x00200000u << e) : __uint_as_float((e - 1) << 23);
}

/* The 6-bit scale and min of a group of Q4_K and Q5_K. */
__device__ __forceinline__ void k_scale_min(const uint8_t *s, int g, int *scale, int *min)
{
    if (g < 4) {
        *scale = s[g] & 63;
        *min = s[g + 4] & 63;
    } else {
        *scale = (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
        *min = (s[g + 4] >> 4) | (s[g] >> 6) << 4;
    }
}

__device__ __forceinline__ int q3_k_scale(const uint8_t *s, int g) /* 0..63 */
{
    int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
    return low | ((s[8 + g % 4] >> (2 * (g / 4))) & 3) << 4;
}

__device__ __forceinline__ int iq4_xs_scale(const block_iq4_xs *b, int g) /* 0..63 */
{
    int low = (b->scales_low[g / 2] >> (4 * (g & 1))) & 15;
    return low | ((load_u16_at(&b->scales_high) >> (2 * g)) & 3) << 4;
}

__device__ __forceinline__ int iq4_value(int q)
{
    const unsigned long long low = 0xf6eaddcfbfad9881ull, high = 0x7159453526190d01ull;
    return (int8_t)((q < 8 ? low : high) >> (8 * (q & 7)));
}

__device__ __forceinline__ int fp4_value(int q) /* doubled */
{
    int v = (int)((0x0c08060403020100ull >> (8 * (q & 7))) & 255);
    return q & 8 ? -v : v;
}

/* A nibble of the types that halve 32 values. */
__device__ __forceinline__ int halved_nibble(const uint8_t *quants, int i)
{
    return i < 16 ? quants[i] & 15 : quants[i - 16] >> 4;
}

/* The quant of value i of a block, as the tile of its kind wants it. */
__device__ __forceinline__ int block_quant(int type, const uint8_t *block, int i)
{
    switch (type) {
    case DTYPE_Q8_0:
        return ((const block_q8_0 *)block)->quants[i];
    case DTYPE_Q5_0:
    case DTYPE_Q5_1: {
        bool has_min = type == DTYPE_Q5_1;
        const uint8_t *high = block + (has_min ? 4 : 2);
        int q = halved_nibble(high + 4, i) | ((high[i / 8] >> (i & 7)) & 1) << 4;
        return has_min ? q : q - 16;
    }
    case DTYPE_Q4_0:
    case DTYPE_IQ4_NL:
        return halved_nibble(block + 2, i);
    case DTYPE_MXFP4:
        return halved_nibble(block + 1, i);
    case DTYPE_Q4_1:
        return halved_nibble(block + 4, i);
    case DTYPE_Q4_K: {
        const block_q4_k *b = (const block_q4_k *)block;
        return (b->quants[32 * (i / 64) + i % 32] >> (i & 32 ? 4 : 0)) & 15;
    }
    case DTYPE_Q5_K: {
        const block_q5_k *b = (const block_q5_k *)block;
        int low = (b->low[32 * (i / 64) + i % 32] >> (i & 32 ? 4 : 0)) & 15;
        return low | ((b->high[i % 32] >> (i / 32)) & 1) << 4;
    }
    case DTYPE_IQ4_XS: {
        const block_iq4_xs *b = (const block_iq4_xs *)block;
        return halved_nibble(b->quants + 16 * (i / 32), i % 32);
    }
    case DTYPE_Q2_K: {
        const block_q2_k *b = (const block_q2_k *)block;
        return (b->quants[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32))) & 3;
    }
    case DTYPE_Q6_K: {
        const block_q6_k *b = (const block_q6_k *)block;
        int h = i / 128, m = i % 128;
        int low = (b->low[64 * h + m % 64] >> (m & 64 ? 4 : 0)) & 15;
        return low | ((b->high[32 * h + m % 32] >> (2 * (m / 32))) & 3) << 4;
    }
    case DTYPE_Q3_K: { /* offset so that Q6_K's 32 is taken away */
        const block_q3_k *b = (const block_q3_k *)block;
        int low = (b->low[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32))) & 3;
        return (low | ((b->high[i % 32] >> (i / 32)) & 1) << 2) - 4 + 32;
    }
    default:
        return 0;
    }
}

/* The value itself. */
__device__ __forceinline__ float block_value(int type, const uint8_t *row, int i)
{
    switch (type) {
    case DTYPE_F32: {
        const uint8_t *p = row + 4 * (int64_t)i;
        return __uint_as_float(load_u16_at(p) | load_u16_at(p + 2) << 16);
    }
    case DTYPE_F16:
        return load_f16_at(row + 2 * (int64_t)i);
    case DTYPE_BF16:
        return __uint_as_float(load_u16_at(row + 2 * (int64_t)i) << 16);
    case DTYPE_Q8_0:
    case DTYPE_Q5_0:
    case DTYPE_Q4_0: {
        int n_bytes = type == DTYPE_Q8_0   ? BLOCK_BYTES_Q8_0
                      : type == DTYPE_Q5_0 ? BLOCK_BYTES_Q5_0
                                           : BLOCK_BYTES_Q4_0;
        const uint8_t *b = row + (int64_t)(i / 32) * n_bytes;
        int q = block_quant(type, b, i % 32) - (type == DTYPE_Q4_0 ? 8 : 0);
        return load_f16_at(b) * (float)q;
    }
    case DTYPE_Q4_1:
    case DTYPE_Q5_1: {
        int n_bytes = type == DTYPE_Q4_1 ? BLOCK_BYTES_Q4_1 : BLOCK_BYTES_Q5_1;
        const uint8_t *b = row + (int64_t)(i / 32) * n_bytes;
        return load_f16_at(b) * (float)block_quant(type, b, i % 32) + load_f16_at(b + 2);
    }
    case DTYPE_IQ4_NL: {
        const uint8_t *b = row + (int64_t)(i / 32) * BLOCK_BYTES_IQ4_NL;
        return load_f16_at(b) * (float)iq4_value(block_quant(type, b, i % 32));
    }
    case DTYPE_MXFP4: {
        const uint8_t *b = row + (int64_t)(i / 32) * BLOCK_BYTES_MXFP4;
        return e8m0_half(b[0]) * (float)fp4_value(block_quant(type, b, i % 32));
    }
    case DTYPE_Q2_K: {
        const uint8_t *p = row + (int64_t)(i / 256) * BLOCK_BYTES_Q2_K;
        const block_q2_k *b = (const block_q2_k *)p;
        int s = b->scales[i % 256 / 16];
        return load_f16_at(&b->scale) * (float)(s & 15) * (float)block_quant(type, p, i % 256) -
               load_f16_at(&b->min) * (float)(s >> 4);
    }
    case DTYPE_Q3_K: {
        const uint8_t *p = row + (int64_t)(i / 256) * BLOCK_BYTES_Q3_K;
        const block_q3_k *b = (const block_q3_k *)p;
        return load_f16_at(&b->scale) * (float)(q3_k_scale(b->scales, i % 256 / 16) - 32) *
               (float)(block_quant(type, p, i % 256) - 32);
    }
    case DTYPE_Q4_K:
    case DTYPE_Q5_K: {
        int n_bytes = type == DTYPE_Q4_K ? BLOCK_BYTES_Q4_K : BLOCK_BYTES_Q5_K, s, m;
        const uint8_t *p = row + (int64_t)(i / 256) * n_bytes;
        k_scale_min(p + 4, i % 256 / 32, &s, &m);
        return load_f16_at(p) * (float)s * (float)block_quant(type, p, i % 256) -
               load_f16_at(p + 2) * (float)m;
    }
    case DTYPE_IQ4_XS: {
        const uint8_t *p = row + (int64_t)(i / 256) * BLOCK_BYTES_IQ4_XS;
        const block_iq4_xs *b = (const block_iq4_xs *)p;
        return load_f16_at(p) * (float)(iq4_xs_scale(b, i % 256 / 32) - 32) *
               (float)iq4_value(block_quant(type, p, i % 256));
    }
    case DTYPE_Q6_K: {
        const uint8_t *p = row + (int64_t)(i / 256) * BLOCK_BYTES_Q6_K;
        const block_q6_k *b = (const block_q6_k *)p;
        return load_f16_at(&b->scale) * (float)b->scales[i % 256 / 16] *
               (float)(block_quant(type, p, i % 256) - 32);
    }
    default:
        return 0;
    }
}

#endif
