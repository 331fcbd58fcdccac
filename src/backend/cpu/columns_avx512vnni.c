/* Products with matrices in columns, AVX-512 VNNI. */
#include "backend/cpu/tile_avx512.h"

#define COLUMNS_LEVEL avx512vnni
enum { VB = 64, BYTE_OFFSET = 128 };

ALWAYS_INLINE vi vi_load(const uint8_t *at)
{
    return _mm512_loadu_si512(at);
}

ALWAYS_INLINE vi vi_set(int32_t word)
{
    return _mm512_set1_epi32(word);
}

ALWAYS_INLINE void vi_weave(const vi w[4], vi words[4])
{
    vi low = _mm512_unpacklo_epi8(w[0], w[1]), high = _mm512_unpackhi_epi8(w[0], w[1]);
    vi low2 = _mm512_unpacklo_epi8(w[2], w[3]), high2 = _mm512_unpackhi_epi8(w[2], w[3]);
    words[0] = _mm512_unpacklo_epi16(low, low2);
    words[1] = _mm512_unpackhi_epi16(low, low2);
    words[2] = _mm512_unpacklo_epi16(high, high2);
    words[3] = _mm512_unpackhi_epi16(high, high2);
}

ALWAYS_INLINE vi vi_low(vi x)
{
    return _mm512_and_si512(x, _mm512_set1_epi8(15));
}

ALWAYS_INLINE vi vi_high(vi x)
{
    return vi_low(_mm512_srli_epi16(x, 4));
}

ALWAYS_INLINE vi vi_dot(vi sum, vi w, vi x, const int most)
{
    return _mm512_dpbusd_epi32(sum, w, x);
}

ALWAYS_INLINE vf vi_floats(vi x)
{
    return _mm512_cvtepi32_ps(x);
}

#include "backend/cpu/columns_tmpl.c"
