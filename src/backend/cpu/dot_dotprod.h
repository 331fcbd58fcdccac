/* Sums of products of bytes, Advanced SIMD with sdot. What the words mean is said in dot_avx2.h. */
#ifndef LACE_BACKEND_CPU_DOT_DOTPROD_H
#define LACE_BACKEND_CPU_DOT_DOTPROD_H

#include "backend/cpu/tile_neon.h"

#define DOT_LANE(sum, w, x, lane, most) vdotq_laneq_s32(sum, signed_bytes(w, most), x, lane)
#include "backend/cpu/dot_lanes.h"

ALWAYS_INLINE int32x4_t dot_16(uint8x16_t sum, uint8x16_t w, uint8x16_t x, const int most)
{
    return vdotq_s32(vreinterpretq_s32_u8(sum), signed_bytes(w, most), vreinterpretq_s8_u8(x));
}

ALWAYS_INLINE vi dot_bytes(vi sum, vi w, vi x, const int most)
{
    return vi_of(dot_16(sum.a, w.a, x.a, most), dot_16(sum.b, w.b, x.b, most));
}

#endif
