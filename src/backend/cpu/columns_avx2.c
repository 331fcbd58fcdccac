/* Products with matrices in columns, AVX2. */
#include "backend/cpu/tile_avx2.h"

#define COLUMNS_LEVEL avx2
enum { VB = 32, BYTE_OFFSET = 0 };

ALWAYS_INLINE vi vi_load(const uint8_t *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

ALWAYS_INLINE vi vi_set(int32_t word)
{
    return _mm256_set1_epi32(word);
}

ALWAYS_INLINE void vi_weave(const vi w[4], vi words[4])
{
    vi low = _mm256_unpacklo_epi8(w[0], w[1]), high = _mm256_unpackhi_epi8(w[0], w[1]);
    vi low2 = _mm256_unpacklo_epi8(w[2], w[3]), high2 = _mm256_unpackhi_epi8(w[2], w[3]);
    words[0] = _mm256_unpacklo_epi16(low, low2);
    words[1] = _mm256_unpackhi_epi16(low, low2);
    words[2] = _mm256_unpacklo_epi16(high, high2);
    words[3] = _mm256_unpackhi_epi16(high, high2);
}

ALWAYS_INLINE vi vi_low(vi x)
{
    return _mm256_and_si256(x, _mm256_set1_epi8(15));
}

ALWAYS_INLINE vi vi_high(vi x)
{
    return vi_low(_mm256_srli_epi16(x, 4));
}

/*
 * Pairs are summed in 16 bits with saturation, which large bytes would reach: they are taken as
 * signed, |w| times x with the sign of w, at most 128 * 127 * 2.
 */
ALWAYS_INLINE vi vi_dot(vi sum, vi w, vi x, const int most)
{
    const vi ones = _mm256_set1_epi16(1);
    if (most > 127) {
        w = _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
        x = _mm256_sign_epi8(x, w);
        w = _mm256_abs_epi8(w);
    }
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones));
}

ALWAYS_INLINE vf vi_floats(vi x)
{
    return _mm256_cvtepi32_ps(x);
}

#include "backend/cpu/columns_tmpl.c"
