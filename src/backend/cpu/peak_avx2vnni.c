/* The int8 limit of a core with AVX-VNNI. */
#include <immintrin.h>

#include "backend/cpu/peak.h"

PEAK_LOOP(peak_int8_avx2vnni, __m256i, 12, _mm256_setzero_si256(), _mm256_set1_epi8(3),
          _mm256_set1_epi8(5), _mm256_dpbusd_avx_epi32(acc, x, y), 32, _mm256_extract_epi32(acc, 0))
