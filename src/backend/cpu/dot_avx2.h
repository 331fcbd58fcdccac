/*
 * Sums of products of bytes, AVX2, and what matmul_quant_tmpl.h may count on.
 *
 * vpmaddubsw adds two products of an unsigned and a signed byte in 16 bits, with saturation. With
 * weights up to 15, 31 or 63 the sums of 8, 4 or 2 vectors cannot reach it (15 * 127 * 2 * 8 =
 * 30480), so only one in so many is widened to 32 bits. Weights of 8 bits are taken as signed: |w|
 * times x with the sign of w, at most 128 * 127 * 2 = 32512.
 */
#ifndef LACE_BACKEND_CPU_DOT_AVX2_H
#define LACE_BACKEND_CPU_DOT_AVX2_H

#include "backend/cpu/tile_avx2.h"

#define QUANT_LEVEL     avx2
#define QUANT_TOKENS    4
#define QUANT_SIGNED    1
#define QUANT_DIRECT    64 /* tokens whose activations stay in the L2 cache together */
#define QUANT_HAS_PAIRS 0
#define QUANT_HAS_GEMM  0
#define QUANT_HAS_FEW   0

ALWAYS_INLINE vi dot_words(vi start, const vi *w, const uint8_t *x, const int n, const int most)
{
    const vi ones = _mm256_set1_epi16(1);
    const int together = most > 127 ? 1 : 32767 / (most * 127 * 2); /* vectors in 16 bits */
    vi sum = start, products = ones;
    UNROLL
    for (int i = 0; i < n; i++) {
        vi wi = w[i], xi = broadcast_word(x + 4 * i);
        if (most > 127) {
            wi = _mm256_xor_si256(wi, _mm256_set1_epi8((char)0x80));
            xi = _mm256_sign_epi8(xi, wi);
            wi = _mm256_abs_epi8(wi);
        }
        vi p = _mm256_maddubs_epi16(wi, xi);
        products = i % together == 0 ? p : _mm256_add_epi16(products, p);
        __asm__("" : "+x"(products)); /* no tree of sums, which would need more registers */
        if (i % together == together - 1 || i == n - 1)
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(products, ones));
    }
    return sum;
}

ALWAYS_INLINE vf floats_from_words(vi x)
{
    return _mm256_cvtepi32_ps(x);
}

ALWAYS_INLINE vi zero_words(void)
{
    return _mm256_setzero_si256();
}

#endif
