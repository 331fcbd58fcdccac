/* Sums of products of bytes, AVX2 with AVX-VNNI, and what matmul_quant_tmpl.h may count on. */
#ifndef LACE_BACKEND_CPU_DOT_AVX2VNNI_H
#define LACE_BACKEND_CPU_DOT_AVX2VNNI_H

#include "backend/cpu/tile_avx2.h"

#define QUANT_LEVEL     avx2vnni
#define QUANT_TOKENS    4
#define QUANT_SIGNED    0
#define QUANT_DIRECT    64 /* tokens whose activations stay in the L2 cache together */
#define QUANT_HAS_PAIRS 0
#define QUANT_HAS_GEMM  0
#define QUANT_HAS_FEW   0

ALWAYS_INLINE vi dot_words(vi start, const vi *w, const uint8_t *x, const int n, const int most)
{
    /* Two sums, for half the latency. */
    vi a = start, b = _mm256_setzero_si256();
    UNROLL
    for (int i = 0; i < n / 2; i++) {
        a = _mm256_dpbusd_avx_epi32(a, w[i], broadcast_word(x + 4 * i));
        b = _mm256_dpbusd_avx_epi32(b, w[n / 2 + i], broadcast_word(x + 4 * (n / 2 + i)));
    }
    return _mm256_add_epi32(a, b);
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
