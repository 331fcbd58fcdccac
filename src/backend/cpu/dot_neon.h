/*
 * Sums of products of bytes, Advanced SIMD without sdot. What the words mean is said in dot_avx2.h.
 *
 * smlal adds products of signed bytes in 16 bits, one of each vector of words to a sum. With
 * weights up to 15 or 31 the sums of 8 vectors fit (31 * 127 * 8 = 31496), up to 63 those of 4, of
 * 8 bits those of 2 (128 * 127 * 2 = 32512); then they are added, in pairs, to sums of 32 bits.
 */
#ifndef LACE_BACKEND_CPU_DOT_NEON_H
#define LACE_BACKEND_CPU_DOT_NEON_H

#include "backend/cpu/tile_neon.h"

/* The products of 4 rows, one vector of words each. */
ALWAYS_INLINE int32x4_t dot_four(const uint8x16_t w[8], const uint8_t *x, const int n,
                                 const int most)
{
    const int together = 32767 / ((most > 127 ? 128 : most) * 127); /* vectors in 16 bits */
    int16x8_t low = vdupq_n_s16(0), high = low;
    int32x4_t sum_low = vdupq_n_s32(0), sum_high = sum_low; /* two of each row */
    UNROLL
    for (int i = 0; i < n; i++) {
        int8x16_t wi = signed_bytes(w[i], most);
        int8x16_t xi = vreinterpretq_s8_u8(broadcast_word(x + 4 * i).a);
        if (i % together == 0) {
            low = vmull_s8(vget_low_s8(wi), vget_low_s8(xi));
            high = vmull_high_s8(wi, xi);
        } else {
            low = vmlal_s8(low, vget_low_s8(wi), vget_low_s8(xi));
            high = vmlal_high_s8(high, wi, xi);
        }
        if (i % together == together - 1 || i == n - 1) {
            sum_low = vpadalq_s16(sum_low, low);
            sum_high = vpadalq_s16(sum_high, high);
        }
    }
    return vpaddq_s32(sum_low, sum_high);
}

ALWAYS_INLINE vi dot_words(vi start, const vi *w, const uint8_t *x, const int n, const int most)
{
    uint8x16_t a[8], b[8];
    UNROLL
    for (int i = 0; i < n; i++) {
        a[i] = w[i].a;
        b[i] = w[i].b;
    }
    return vi_of(vaddq_s32(vreinterpretq_s32_u8(start.a), dot_four(a, x, n, most)),
                 vaddq_s32(vreinterpretq_s32_u8(start.b), dot_four(b, x, n, most)));
}

/* Two products fit into 16 bits: 2 * 128 * 127 = 32512. */
ALWAYS_INLINE int32x4_t dot_16(uint8x16_t sum, uint8x16_t w, uint8x16_t x, const int most)
{
    int8x16_t weights = signed_bytes(w, most), values = vreinterpretq_s8_u8(x);
    int16x8_t low = vmull_s8(vget_low_s8(weights), vget_low_s8(values));
    int16x8_t high = vmull_high_s8(weights, values);
    return vpadalq_s16(vreinterpretq_s32_u8(sum), vpaddq_s16(low, high));
}

ALWAYS_INLINE vi dot_bytes(vi sum, vi w, vi x, const int most)
{
    return vi_of(dot_16(sum.a, w.a, x.a, most), dot_16(sum.b, w.b, x.b, most));
}

#endif
