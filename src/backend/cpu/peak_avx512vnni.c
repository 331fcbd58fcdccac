/* The int8 limit of a core with AVX-512 VNNI. */
#include <immintrin.h>

#include "backend/cpu/peak.h"

PEAK_LOOP(peak_int8_avx512vnni, __m512i, 16, _mm512_setzero_si512(), _mm512_set1_epi8(3),
          _mm512_set1_epi8(5), _mm512_dpbusd_epi32(acc, x, y), 64, _mm512_cvtsi512_si32(acc))
