/* Products with matrices in CSR, AVX-512. */
#include "backend/cpu/vec_avx512.h"

#define CSR_LEVEL avx512

static inline vf gather(const float *x, const uint8_t *columns)
{
    __m512i at = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)columns));
    return _mm512_i32gather_ps(at, x, 4);
}

#include "backend/cpu/matmul_csr_tmpl.c"
