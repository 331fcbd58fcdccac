/* Products with matrices in columns, Advanced SIMD with sdot. */
#include "backend/cpu/columns_words_neon.h"

#define COLUMNS_LEVEL dotprod

ALWAYS_INLINE int32x4_t dot_16(uint8x16_t sum, uint8x16_t w, uint8x16_t x, const int most)
{
    return vdotq_s32(vreinterpretq_s32_u8(sum), signed_bytes(w, most), vreinterpretq_s8_u8(x));
}

ALWAYS_INLINE vi vi_dot(vi sum, vi w, vi x, const int most)
{
    return vi_of(dot_16(sum.a, w.a, x.a, most), dot_16(sum.b, w.b, x.b, most));
}

#include "backend/cpu/columns_tmpl.c"
