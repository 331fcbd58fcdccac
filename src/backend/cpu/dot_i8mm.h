/*
 * Sums of products of bytes, Advanced SIMD with usdot and usmmla: both take weights as unsigned and
 * activations as signed bytes. What each word means is said in dot_avx2.h.
 *
 * usmmla multiplies 2 rows with 2 tokens, 8 columns of each, where usdot does 4 rows with one token
 * and 4 columns: twice the products of an instruction.
 */
#ifndef LACE_BACKEND_CPU_DOT_I8MM_H
#define LACE_BACKEND_CPU_DOT_I8MM_H

#include "backend/cpu/tile_neon.h"

#define DOT_LANE(sum, w, x, lane, most) vusdotq_laneq_s32(sum, w, x, lane)
#include "backend/cpu/dot_lanes.h"

/* 8 columns of rows 0, 1 or 2, 3 of four, from two vectors of 4 columns. */
ALWAYS_INLINE uint8x16_t first_rows(uint8x16_t w0, uint8x16_t w1)
{
    return vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(w0), vreinterpretq_u32_u8(w1)));
}

ALWAYS_INLINE uint8x16_t last_rows(uint8x16_t w0, uint8x16_t w1)
{
    return vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(w0), vreinterpretq_u32_u8(w1)));
}

/* Products of rows with two tokens, (row 0: token 0, 1; row 1: token 0, 1), to those of one. */
ALWAYS_INLINE uint8x16_t of_token_0(int32x4_t first, int32x4_t last, uint8x16_t start)
{
    return vreinterpretq_u8_s32(vaddq_s32(vreinterpretq_s32_u8(start), vuzp1q_s32(first, last)));
}

ALWAYS_INLINE uint8x16_t of_token_1(int32x4_t first, int32x4_t last, uint8x16_t start)
{
    return vreinterpretq_u8_s32(vaddq_s32(vreinterpretq_s32_u8(start), vuzp2q_s32(first, last)));
}

/* dot_words for the tokens at x0 and x1. sum: the starts, then the sums. */
ALWAYS_INLINE void dot_pair(vi sum[2], const vi *w, const uint8_t *x0, const uint8_t *x1,
                            const int n)
{
    int32x4_t a0 = vdupq_n_s32(0), a1 = a0, b0 = a0, b1 = a0;
    UNROLL
    for (int i = 0; i < n; i += 2) {
        int8x16_t x = vreinterpretq_s8_u8(vcombine_u8(vld1_u8(x0 + 4 * i), vld1_u8(x1 + 4 * i)));
        a0 = vusmmlaq_s32(a0, first_rows(w[i].a, w[i + 1].a), x);
        a1 = vusmmlaq_s32(a1, last_rows(w[i].a, w[i + 1].a), x);
        b0 = vusmmlaq_s32(b0, first_rows(w[i].b, w[i + 1].b), x);
        b1 = vusmmlaq_s32(b1, last_rows(w[i].b, w[i + 1].b), x);
    }
    sum[0] = (vi){of_token_0(a0, a1, sum[0].a), of_token_0(b0, b1, sum[0].b)};
    sum[1] = (vi){of_token_1(a0, a1, sum[1].a), of_token_1(b0, b1, sum[1].b)};
}

#endif
