/*
 * Sums of products of bytes, AVX2. In each row
 *
 *     dot_bytes(sum, w, x, most)        sum + the products of 4 bytes of weights w, unsigned and at
 *                                       most `most`, with 4 signed bytes x
 *     dot_words(start, w, x, n, most)   start + the products of n such vectors w[i] with the n
 *                                       words at x, which all rows share
 *
 * Where LEVEL_SIGNED (level.h) is 1, weights above 127 are taken as signed, with 128 taken off.
 *
 * vpmaddubsw adds two products of an unsigned and a signed byte in 16 bits, with saturation. With
 * weights up to 15, 31 or 63 the sums of 8, 4 or 2 vectors cannot reach it (15 * 127 * 2 * 8 =
 * 30480), so only one in so many is widened to 32 bits. Weights of 8 bits are taken as signed: |w|
 * times x with the sign of w, at most 128 * 127 * 2 = 32512.
 */
#ifndef LACE_BACKEND_CPU_DOT_AVX2_H
#define LACE_BACKEND_CPU_DOT_AVX2_H

#include "backend/cpu/tile_avx2.h"

/* Two products in each 16 bits. */
ALWAYS_INLINE vi pairs_of_bytes(vi w, vi x, const int most)
{
    if (most > 127) {
        w = _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
        x = _mm256_sign_epi8(x, w);
        w = _mm256_abs_epi8(w);
    }
    return _mm256_maddubs_epi16(w, x);
}

ALWAYS_INLINE vi dot_bytes(vi sum, vi w, vi x, const int most)
{
    const vi ones = _mm256_set1_epi16(1);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs_of_bytes(w, x, most), ones));
}

ALWAYS_INLINE vi dot_words(vi start, const vi *w, const uint8_t *x, const int n, const int most)
{
    const vi ones = _mm256_set1_epi16(1);
    const int together = most > 127 ? 1 : 32767 / (most * 127 * 2); /* vectors in 16 bits */
    vi sum = start, products = ones;
    UNROLL
    for (int i = 0; i < n; i++) {
        vi p = pairs_of_bytes(w[i], broadcast_word(x + 4 * i), most);
        products = i % together == 0 ? p : _mm256_add_epi16(products, p);
        __asm__("" : "+x"(products)); /* no tree of sums, which would need more registers */
        if (i % together == together - 1 || i == n - 1)
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(products, ones));
    }
    return sum;
}

#endif
