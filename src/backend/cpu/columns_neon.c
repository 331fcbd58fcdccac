/* Products with matrices in columns, Advanced SIMD without sdot. */
#include "backend/cpu/columns_words_neon.h"

#define COLUMNS_LEVEL neon

/* Two products fit into 16 bits: 2 * 128 * 127 = 32512. */
ALWAYS_INLINE int32x4_t dot_16(uint8x16_t sum, uint8x16_t w, uint8x16_t x, const int most)
{
    int8x16_t weights = signed_bytes(w, most), values = vreinterpretq_s8_u8(x);
    int16x8_t low = vmull_s8(vget_low_s8(weights), vget_low_s8(values));
    int16x8_t high = vmull_high_s8(weights, values);
    return vpadalq_s16(vreinterpretq_s32_u8(sum), vpaddq_s16(low, high));
}

ALWAYS_INLINE vi vi_dot(vi sum, vi w, vi x, const int most)
{
    return vi_of(dot_16(sum.a, w.a, x.a, most), dot_16(sum.b, w.b, x.b, most));
}

#include "backend/cpu/columns_tmpl.c"
