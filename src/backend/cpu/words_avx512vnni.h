/*
 * Numbers in fixed point, for gemm_words_avx512vnni: int16 of 13 bits and a sign, with a power of
 * two for some neighbours. Rounding them so costs about what rounding to F16 does, 3e-8 of the
 * squares.
 */
#ifndef LACE_BACKEND_CPU_WORDS_AVX512VNNI_H
#define LACE_BACKEND_CPU_WORDS_AVX512VNNI_H

#include "backend/cpu/gemm_avx512vnni.h"
#include "backend/cpu/vec_avx512.h"

enum {
    WORDS_GROUP_BYTES = 1024 + 64, /* 32 columns of a panel, see gemm_avx512vnni.h */
    WORDS_X_GROUP = 128            /* columns of a row that share a power of two */
};

/*
 * 2^(12 - exponent of x), which brings x below 2^13. Limits keep what follows from it within the
 * exponents of floats: below 2^-47 values fade to 0.
 */
static inline __m512 to_13_bits(__m512 x)
{
    x = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(0x1p-47f)), _mm512_set1_ps(0x1p40f));
    __m512i exponent = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7f800000));
    return _mm512_castsi512_ps(
        _mm512_sub_epi32(_mm512_set1_epi32((int)((127u + 127 + 12) << 23)), exponent));
}

/* Two vectors as one of pairs of words: low[i], high[i]. */
static inline __m512i words_of_pairs(__m512 low, __m512 high, __m512 factor)
{
    /* Added to this, a number of few bits is rounded to a whole one, in the sum's lower half. */
    const __m512 shift = _mm512_set1_ps(0x1.8p23f);
    __m512i even = _mm512_castps_si512(_mm512_fmadd_ps(low, factor, shift));
    __m512i odd = _mm512_castps_si512(_mm512_fmadd_ps(high, factor, shift));
    return _mm512_mask_blend_epi16(0xaaaaaaaa, even, _mm512_slli_epi32(odd, 16));
}

/* Bytes of a row: words, then an exponent for each group of 32. */
static inline uint64_t words_row_bytes(int64_t n_cols)
{
    return (uint64_t)(2 * n_cols + n_cols / 32 * 4 + 63) & ~(uint64_t)63;
}

/* A row of floats; n_cols is a multiple of 32. */
static inline void words_from_floats(const float *x, int64_t n_cols, uint8_t *out)
{
    int32_t *exponents = (int32_t *)(out + 2 * n_cols);
    for (int64_t i = 0; i < n_cols; i += WORDS_X_GROUP) {
        int64_t left = n_cols - i;
        int n = (int)(left < WORDS_X_GROUP ? left : WORDS_X_GROUP) / 16;
        __m512 v[WORDS_X_GROUP / 16], most = _mm512_setzero_ps();
        for (int k = 0; k < n; k++) {
            v[k] = _mm512_loadu_ps(x + i + 16 * k);
            most = _mm512_max_ps(_mm512_abs_ps(v[k]), most);
        }
        __m512 factor = to_13_bits(_mm512_set1_ps(_mm512_reduce_max_ps(most)));
        for (int k = 0; k < n; k++) {
            __m512i word = _mm512_cvtps_epi32(_mm512_mul_ps(v[k], factor));
            _mm256_storeu_si256((__m256i *)(out + 2 * (i + 16 * k)), _mm512_cvtsepi32_epi16(word));
        }
        /* The exponent of 1 / factor, 60 larger. */
        int32_t bits = _mm_cvtsi128_si32(_mm512_castsi512_si128(_mm512_castps_si512(factor)));
        for (int k = 0; k < n / 2; k++)
            exponents[i / 32 + k] = ((127 + 60) << 23) - bits;
    }
}

#endif
