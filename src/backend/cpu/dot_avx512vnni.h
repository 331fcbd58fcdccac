/* Sums of products of bytes, AVX-512 VNNI, and what matmul_quant_tmpl.h may count on. */
#ifndef LACE_BACKEND_CPU_DOT_AVX512VNNI_H
#define LACE_BACKEND_CPU_DOT_AVX512VNNI_H

#include "backend/cpu/tile_avx512.h"
#include "backend/cpu/few_avx512vnni.h"

#define QUANT_LEVEL     avx512vnni
#define QUANT_TOKENS    8  /* at once: their sums fit in registers beside 8 vectors of weights */
#define QUANT_SIGNED    0  /* bytes of weights are taken as unsigned */
#define QUANT_DIRECT    32 /* tokens up to which decoding panels first does not pay */
#define QUANT_HAS_PAIRS 0
#define QUANT_HAS_GEMM  1
#define QUANT_HAS_FEW   1

/* start + the products of n vectors of words with the n words at x, in each of the 16 rows. */
ALWAYS_INLINE vi dot_words(vi start, const vi *w, const uint8_t *x, const int n, const int most)
{
    /* Two sums, for half the latency. */
    vi a = start, b = _mm512_setzero_si512();
    UNROLL
    for (int i = 0; i < n / 2; i++) {
        a = _mm512_dpbusd_epi32(a, w[i], broadcast_word(x + 4 * i));
        b = _mm512_dpbusd_epi32(b, w[n / 2 + i], broadcast_word(x + 4 * (n / 2 + i)));
    }
    return _mm512_add_epi32(a, b);
}

ALWAYS_INLINE vf floats_from_words(vi x)
{
    return _mm512_cvtepi32_ps(x);
}

ALWAYS_INLINE vi zero_words(void)
{
    return _mm512_setzero_si512();
}

#endif
