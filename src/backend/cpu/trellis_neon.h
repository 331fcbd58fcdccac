/* The words that unpack_trellis_tmpl.h is written in, for Advanced SIMD. What each means is said in
 * trellis_avx512.h. */
#ifndef LACE_BACKEND_CPU_TRELLIS_NEON_H
#define LACE_BACKEND_CPU_TRELLIS_NEON_H

#include "backend/cpu/tile_neon.h"
#include "tensor/trellis.h"

ALWAYS_INLINE uint32x4_t trellis_window_4(uint8x16_t word, uint8x16_t next, const int at)
{
    uint32x4_t x = vshlq_u32(vreinterpretq_u32_u8(word), vdupq_n_s32(-at));
    if (at > 16)
        x = vorrq_u32(x, vshlq_u32(vreinterpretq_u32_u8(next), vdupq_n_s32(32 - at)));
    return at == 16 ? x : vandq_u32(x, vdupq_n_u32(0xffff));
}

ALWAYS_INLINE vi trellis_window(vi word, vi next, const int at)
{
    return (vi){vreinterpretq_u8_u32(trellis_window_4(word.a, next.a, at)),
                vreinterpretq_u8_u32(trellis_window_4(word.b, next.b, at))};
}

/* trellis_level() of four windows, with 128 added. */
ALWAYS_INLINE uint32x4_t trellis_level_4(uint8x16_t window)
{
    uint32x4_t product = vmulq_u32(vreinterpretq_u32_u8(window), vdupq_n_u32(TRELLIS_FACTOR));
    uint32x4_t sum = vpaddlq_u16(vpaddlq_u8(vreinterpretq_u8_u32(product)));
    return vshrq_n_u32(vaddq_u32(sum, vdupq_n_u32(3)), 2);
}

ALWAYS_INLINE uint8x16_t trellis_levels_4(uint8x16_t a, uint8x16_t b, uint8x16_t c, uint8x16_t d)
{
    uint32x4_t ab = vsliq_n_u32(trellis_level_4(a), trellis_level_4(b), 8);
    uint32x4_t cd = vsliq_n_u32(trellis_level_4(c), trellis_level_4(d), 8);
    return vreinterpretq_u8_u32(vsliq_n_u32(ab, cd, 16));
}

ALWAYS_INLINE vi trellis_levels(vi a, vi b, vi c, vi d)
{
    return (vi){trellis_levels_4(a.a, b.a, c.a, d.a), trellis_levels_4(a.b, b.b, c.b, d.b)};
}

#endif
