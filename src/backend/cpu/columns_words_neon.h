/* The words of columns_tmpl.c that all levels of Advanced SIMD share: all but vi_dot. */
#ifndef LACE_BACKEND_CPU_COLUMNS_WORDS_NEON_H
#define LACE_BACKEND_CPU_COLUMNS_WORDS_NEON_H

#include "backend/cpu/tile_neon.h"

enum { VB = 32, BYTE_OFFSET = 0 }; /* bytes are taken as signed: signed_bytes() */

ALWAYS_INLINE vi vi_load(const uint8_t *at)
{
    return load_words(at, 0);
}

ALWAYS_INLINE vi vi_set(int32_t word)
{
    return broadcast_word((const uint8_t *)&word);
}

ALWAYS_INLINE void weave_16(const uint8x16_t w[4], uint8x16_t words[4])
{
    uint16x8_t low = vreinterpretq_u16_u8(vzip1q_u8(w[0], w[1]));
    uint16x8_t high = vreinterpretq_u16_u8(vzip2q_u8(w[0], w[1]));
    uint16x8_t low2 = vreinterpretq_u16_u8(vzip1q_u8(w[2], w[3]));
    uint16x8_t high2 = vreinterpretq_u16_u8(vzip2q_u8(w[2], w[3]));
    words[0] = vreinterpretq_u8_u16(vzip1q_u16(low, low2));
    words[1] = vreinterpretq_u8_u16(vzip2q_u16(low, low2));
    words[2] = vreinterpretq_u8_u16(vzip1q_u16(high, high2));
    words[3] = vreinterpretq_u8_u16(vzip2q_u16(high, high2));
}

ALWAYS_INLINE void vi_weave(const vi w[4], vi words[4])
{
    uint8x16_t a[4] = {w[0].a, w[1].a, w[2].a, w[3].a}, b[4] = {w[0].b, w[1].b, w[2].b, w[3].b};
    uint8x16_t words_a[4], words_b[4];
    weave_16(a, words_a);
    weave_16(b, words_b);
    for (int i = 0; i < 4; i++)
        words[i] = (vi){words_a[i], words_b[i]};
}

ALWAYS_INLINE vi vi_low(vi x)
{
    return bits(x, 0, 15);
}

ALWAYS_INLINE vi vi_high(vi x)
{
    return (vi){vshrq_n_u8(x.a, 4), vshrq_n_u8(x.b, 4)};
}

ALWAYS_INLINE vf vi_floats(vi x)
{
    return floats_from_words(x);
}

#endif
