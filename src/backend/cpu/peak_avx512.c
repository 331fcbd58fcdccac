/* The limits of a core with AVX-512. */
#include <immintrin.h>

#include "backend/cpu/peak.h"

static inline __m512i dot(__m512i sum, __m512i x, __m512i y)
{
    __m512i pairs = _mm512_maddubs_epi16(x, y);
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}

/* The first factor is the sum, or the products would be computed once, before the loop. */
PEAK_LOOP(peak_int8_avx512, __m512i, 12, _mm512_setzero_si512(), _mm512_set1_epi8(3),
          _mm512_set1_epi8(5), dot(acc, acc, y), 64, _mm512_cvtsi512_si32(acc))

PEAK_LOOP(peak_fp32_avx512, __m512, 16, _mm512_setzero_ps(), _mm512_set1_ps(0.5f),
          _mm512_set1_ps(1.0f), _mm512_fmadd_ps(acc, x, y), 16, _mm512_cvtss_f32(acc))

uint64_t peak_read_avx512(const uint8_t *data, size_t n_bytes)
{
    size_t n = n_bytes / PEAK_STREAMS;
    __m512i a = _mm512_setzero_si512(), b = a;
    for (size_t i = 0; i < n; i += 128)
        for (int s = 0; s < PEAK_STREAMS; s++) {
            const uint8_t *at = data + (size_t)s * n + i;
            _mm_prefetch((const char *)at + PEAK_PREFETCH, _MM_HINT_T0);
            _mm_prefetch((const char *)at + PEAK_PREFETCH + 64, _MM_HINT_T0);
            a = _mm512_xor_si512(a, _mm512_loadu_si512(at));
            b = _mm512_xor_si512(b, _mm512_loadu_si512(at + 64));
        }
    return (uint64_t)_mm512_reduce_add_epi64(_mm512_xor_si512(a, b));
}
