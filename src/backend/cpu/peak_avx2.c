/* The limits of a core with AVX2. */
#include <immintrin.h>

#include "backend/cpu/peak.h"

/* Without VNNI, 32 products take three instructions: to int16 pairs, to int32, and the sum. */
static inline __m256i dot(__m256i sum, __m256i x, __m256i y)
{
    __m256i pairs = _mm256_maddubs_epi16(x, y);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* The first factor is the sum, or the products would be computed once, before the loop. */
PEAK_LOOP(peak_int8_avx2, __m256i, 12, _mm256_setzero_si256(), _mm256_set1_epi8(3),
          _mm256_set1_epi8(5), dot(acc, acc, y), 32, _mm256_extract_epi32(acc, 0))

PEAK_LOOP(peak_fp32_avx2, __m256, 12, _mm256_setzero_ps(), _mm256_set1_ps(0.5f),
          _mm256_set1_ps(1.0f), _mm256_fmadd_ps(acc, x, y), 8, _mm256_cvtss_f32(acc))

uint64_t peak_read_avx2(const uint8_t *data, size_t n_bytes)
{
    size_t n = n_bytes / PEAK_STREAMS;
    __m256i a = _mm256_setzero_si256(), b = a;
    for (size_t i = 0; i < n; i += 128)
        for (int s = 0; s < PEAK_STREAMS; s++) {
            const uint8_t *at = data + (size_t)s * n + i;
            _mm_prefetch((const char *)at + PEAK_PREFETCH, _MM_HINT_T0);
            _mm_prefetch((const char *)at + PEAK_PREFETCH + 64, _MM_HINT_T0);
            a = _mm256_xor_si256(a, _mm256_loadu_si256((const __m256i *)at));
            b = _mm256_xor_si256(b, _mm256_loadu_si256((const __m256i *)(at + 32)));
            a = _mm256_xor_si256(a, _mm256_loadu_si256((const __m256i *)(at + 64)));
            b = _mm256_xor_si256(b, _mm256_loadu_si256((const __m256i *)(at + 96)));
        }
    a = _mm256_xor_si256(a, b);
    return (uint64_t)(_mm256_extract_epi64(a, 0) ^ _mm256_extract_epi64(a, 1) ^
                      _mm256_extract_epi64(a, 2) ^ _mm256_extract_epi64(a, 3));
}
