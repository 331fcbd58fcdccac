/* Expanding sparse tiles, AVX2: pdep puts 8 values into their places. */
#ifndef LACE_BACKEND_CPU_EXPAND_AVX2_H
#define LACE_BACKEND_CPU_EXPAND_AVX2_H

#include "backend/cpu/dot_avx2.h"
#include "tensor/sparse.h"

#define SPARSE_HAS_PANELS 0

ALWAYS_INLINE uint64_t spread8(uint64_t values, uint8_t mask)
{
    return _pdep_u64(values, _pdep_u64(mask, 0x0101010101010101u) * 255);
}

ALWAYS_INLINE void levels_of(const uint8_t *from, const int shift, uint8_t out[64])
{
    for (int i = 0; i < 64; i += 32) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(from + i));
        _mm256_storeu_si256((__m256i *)(out + i), look_up(SPARSE_LEVELS, 0, bits(x, shift, 15)));
    }
}

#include "backend/cpu/expand_bytes.h"

#endif
