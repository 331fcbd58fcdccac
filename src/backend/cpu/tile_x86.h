/*
 * The words of tile_avx2.h and tile_avx512.h that read the same for both, in MM and MM_BITS of
 * vec_x86.h. The including file defines vi and repeat_16(x), x in every 16 bytes of a vector.
 */
#ifndef LACE_BACKEND_CPU_TILE_X86_H
#define LACE_BACKEND_CPU_TILE_X86_H

typedef __m128i vb; /* a byte of each row */

ALWAYS_INLINE vb vb_or(vb a, vb b)
{
    return _mm_or_si128(a, b);
}

/* Bits of bytes, as `bits` for words. */
ALWAYS_INLINE vb byte_bits(vb x, int at, int mask)
{
    x = at >= 0 ? _mm_srli_epi16(x, at) : _mm_slli_epi16(x, -at);
    return _mm_and_si128(x, _mm_set1_epi8((char)mask));
}

ALWAYS_INLINE vf floats_from_bytes(vb bytes)
{
    return MM(cvtepi32_ps)(MM(cvtepu8_epi32)(bytes));
}

ALWAYS_INLINE vf floats_from_signed(vb bytes)
{
    return MM(cvtepi32_ps)(MM(cvtepi8_epi32)(bytes));
}

/* s_scale_to_f32() of each byte. */
ALWAYS_INLINE vf floats_from_s_scale(vb bytes)
{
    vi e = MM(slli_epi32)(MM(cvtepu8_epi32)(bytes), 20);
    return (vf)MM(add_epi32)(e, MM(set1_epi32)((127 - 28) << 23));
}

ALWAYS_INLINE vf floats_from_words(vi x)
{
    return MM(cvtepi32_ps)(x);
}

ALWAYS_INLINE vi zero_words(void)
{
    return MM_BITS(setzero)();
}

ALWAYS_INLINE vi vi_or(vi a, vi b)
{
    return MM_BITS(or)(a, b);
}

/* Bits from `at` on under a mask for bytes. at < 0: shifted left. Known when this is compiled. */
ALWAYS_INLINE vi bits(vi x, int at, int mask)
{
    vi shifted = at >= 0 ? MM(srli_epi16)(x, (unsigned)at) : MM(slli_epi16)(x, (unsigned)-at);
    return MM_BITS(and)(shifted, MM(set1_epi8)((char)mask));
}

/* The high nibble of each byte. */
ALWAYS_INLINE vi high_nibbles(vi x)
{
    return bits(x, 4, 15);
}

/* table[x] + offset, for bytes x < 16. */
ALWAYS_INLINE vi look_up(const int8_t table[16], int offset, vi x)
{
    __m128i values = _mm_loadu_si128((const __m128i *)table);
    values = _mm_add_epi8(values, _mm_set1_epi8((char)offset));
    return MM(shuffle_epi8)(repeat_16(values), x);
}

ALWAYS_INLINE vi broadcast_word(const uint8_t *at)
{
    int32_t word;
    __builtin_memcpy(&word, at, 4);
    return MM(set1_epi32)(word);
}

/*
 * Four vectors of bytes, each a column, to four of words of 4 columns. Row r of every 16 rows is
 * in word r % 4 of vector r / 4.
 */
ALWAYS_INLINE void weave_columns(const vi w[4], vi words[4])
{
    vi low = MM(unpacklo_epi8)(w[0], w[1]), high = MM(unpackhi_epi8)(w[0], w[1]);
    vi low2 = MM(unpacklo_epi8)(w[2], w[3]), high2 = MM(unpackhi_epi8)(w[2], w[3]);
    words[0] = MM(unpacklo_epi16)(low, low2);
    words[1] = MM(unpackhi_epi16)(low, low2);
    words[2] = MM(unpacklo_epi16)(high, high2);
    words[3] = MM(unpackhi_epi16)(high, high2);
}

#endif
