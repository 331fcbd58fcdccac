/* Sums of products of bytes, Advanced SIMD with sdot, and what matmul_quant_tmpl.h may count on. */
#ifndef LACE_BACKEND_CPU_DOT_DOTPROD_H
#define LACE_BACKEND_CPU_DOT_DOTPROD_H

#include "backend/cpu/tile_neon.h"

#define QUANT_LEVEL     dotprod
#define QUANT_TOKENS    4
#define QUANT_SIGNED    1
#define QUANT_DIRECT    64
#define QUANT_HAS_PAIRS 0
#define QUANT_HAS_GEMM  0
#define QUANT_HAS_FEW   0

/* The vectors of words come in fours: a lane of x meets each. */
ALWAYS_INLINE vi dot_words(vi start, const vi *w, const uint8_t *x, const int n, const int most)
{
    int32x4_t a = vreinterpretq_s32_u8(start.a), b = vreinterpretq_s32_u8(start.b);
    UNROLL
    for (int i = 0; i < n; i += 4) {
        int8x16_t four = vreinterpretq_s8_u8(vld1q_u8(x + 4 * i));
        a = vdotq_laneq_s32(a, signed_bytes(w[i].a, most), four, 0);
        b = vdotq_laneq_s32(b, signed_bytes(w[i].b, most), four, 0);
        a = vdotq_laneq_s32(a, signed_bytes(w[i + 1].a, most), four, 1);
        b = vdotq_laneq_s32(b, signed_bytes(w[i + 1].b, most), four, 1);
        a = vdotq_laneq_s32(a, signed_bytes(w[i + 2].a, most), four, 2);
        b = vdotq_laneq_s32(b, signed_bytes(w[i + 2].b, most), four, 2);
        a = vdotq_laneq_s32(a, signed_bytes(w[i + 3].a, most), four, 3);
        b = vdotq_laneq_s32(b, signed_bytes(w[i + 3].b, most), four, 3);
    }
    return vi_of(a, b);
}

#endif
