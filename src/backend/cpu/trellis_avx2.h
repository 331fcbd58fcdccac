/* The words that unpack_trellis_tmpl.h is written in, for AVX2. What each means is said in
 * trellis_avx512.h. */
#ifndef LACE_BACKEND_CPU_TRELLIS_AVX2_H
#define LACE_BACKEND_CPU_TRELLIS_AVX2_H

#include "backend/cpu/tile_avx2.h"
#include "tensor/trellis.h"

ALWAYS_INLINE vi trellis_window(vi word, vi next, const int at)
{
    vi x = _mm256_srli_epi32(word, at);
    if (at > 16)
        x = _mm256_or_si256(x, _mm256_slli_epi32(next, 32 - at));
    return at == 16 ? x : _mm256_and_si256(x, _mm256_set1_epi32(0xffff));
}

ALWAYS_INLINE vi trellis_byte(vi window)
{
    vi product = _mm256_mullo_epi32(window, _mm256_set1_epi32((int)TRELLIS_FACTOR));
    vi pairs = _mm256_maddubs_epi16(product, _mm256_set1_epi8(64)); /* at most 510 * 64 */
    return _mm256_add_epi32(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)), _mm256_set1_epi32(192));
}

ALWAYS_INLINE vi trellis_levels(vi a, vi b, vi c, vi d)
{
    const vi mask = _mm256_set1_epi32(0xff00);
    vi ab = _mm256_or_si256(_mm256_srli_epi32(trellis_byte(a), 8),
                            _mm256_and_si256(trellis_byte(b), mask));
    vi cd = _mm256_or_si256(_mm256_srli_epi32(trellis_byte(c), 8),
                            _mm256_and_si256(trellis_byte(d), mask));
    return _mm256_or_si256(ab, _mm256_slli_epi32(cd, 16));
}

#endif
