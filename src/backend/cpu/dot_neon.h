/*
 * Sums of products of bytes, Advanced SIMD without sdot, and what matmul_quant_tmpl.h may count on.
 *
 * smlal adds products of signed bytes in 16 bits, one of each vector of words to a sum. With
 * weights up to 15 or 31 the sums of 8 vectors fit (31 * 127 * 8 = 31496), up to 63 those of 4, of
 * 8 bits those of 2 (128 * 127 * 2 = 32512); then they are added, in pairs, to sums of 32 bits.
 */
#ifndef LACE_BACKEND_CPU_DOT_NEON_H
#define LACE_BACKEND_CPU_DOT_NEON_H

#include "backend/cpu/tile_neon.h"

#define QUANT_LEVEL     neon
#define QUANT_TOKENS    4
#define QUANT_SIGNED    1
#define QUANT_DIRECT    64
#define QUANT_HAS_PAIRS 0
#define QUANT_HAS_GEMM  0
#define QUANT_HAS_FEW   0

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

#endif
