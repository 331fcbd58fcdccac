/* Products with matrices in CSR, AVX2. */
#include "backend/cpu/vec_avx2.h"

#define CSR_LEVEL avx2

static inline vf gather(const float *x, const uint8_t *columns)
{
    __m256i at = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)columns));
    return _mm256_i32gather_ps(x, at, 4);
}

#include "backend/cpu/matmul_csr_tmpl.c"
