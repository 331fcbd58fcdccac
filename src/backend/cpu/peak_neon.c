/* The limits of a core with Advanced SIMD. */
#include <arm_neon.h>

#include "backend/cpu/peak.h"

/* Without sdot: 8 products to int16, added up in pairs. The first factor is the sum: see
 * peak_avx2.c. */
static inline int32x4_t dot(int32x4_t sum, int8x8_t y)
{
    int8x8_t x = vreinterpret_s8_s32(vget_low_s32(sum));
    return vpadalq_s16(sum, vmull_s8(x, y));
}

PEAK_LOOP(peak_int8_neon, int32x4_t, 8, vdupq_n_s32(0), vdupq_n_s32(3), vdupq_n_s32(0x05050505),
          dot(acc, vreinterpret_s8_s32(vget_low_s32(veorq_s32(x, y)))), 8, vgetq_lane_s32(acc, 0))

PEAK_LOOP(peak_fp32_neon, float32x4_t, 16, vdupq_n_f32(0), vdupq_n_f32(0.5f), vdupq_n_f32(1),
          vfmaq_f32(acc, x, y), 4, vgetq_lane_f32(acc, 0))
