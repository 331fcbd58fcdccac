/*
 * The words that the kernels' templates are written in, for AVX2 with FMA and F16C: vectors of 8
 * floats. What each word means is said in vec_avx512.h.
 */
#ifndef LACE_BACKEND_CPU_VEC_AVX2_H
#define LACE_BACKEND_CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define MM(op)      _mm256_##op
#define MM_BITS(op) _mm256_##op##_si256

enum { VW = 8 };
typedef __m256 vf;
typedef __m256d v_doubles;

#include "backend/cpu/vec_x86.h"

static inline __m256i first_n(int64_t n)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), index);
}
static inline vf v_load_n(const float *p, int64_t n)
{
    return _mm256_maskload_ps(p, first_n(n));
}
static inline void v_store_n(float *p, vf x, int64_t n)
{
    _mm256_maskstore_ps(p, first_n(n), x);
}

static inline vf v_load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static inline void v_store_f16(void *p, vf x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
static inline vf v_load_bf16(const void *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline vf v_load_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
static inline vf v_load_levels(const uint8_t *p, bool is_high, const int8_t *table)
{
    __m128i x = _mm_loadl_epi64((const __m128i *)p);
    x = _mm_and_si128(is_high ? _mm_srli_epi16(x, 4) : x, _mm_set1_epi8(15));
    x = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)table), x);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x));
}
static inline vf v_load_5_bits(const uint8_t *p, bool is_high, uint32_t bits)
{
    __m128i x = _mm_loadl_epi64((const __m128i *)p);
    x = _mm_and_si128(is_high ? _mm_srli_epi16(x, 4) : x, _mm_set1_epi8(15));
    __m256i each = _mm256_set_epi32(128, 64, 32, 16, 8, 4, 2, 1);
    __m256i unset = _mm256_andnot_si256(_mm256_set1_epi32((int)bits), each);
    __m256i less = _mm256_and_si256(_mm256_cmpeq_epi32(unset, each), _mm256_set1_epi32(16));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_cvtepi8_epi32(x), less));
}
static inline vf v_gather(const float *x, const void *at)
{
    __m256i index = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)at));
    return _mm256_i32gather_ps(x, index, 4);
}

static inline vf v_abs(vf x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}
static inline vf v_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf v_truncate(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}
static inline vf v_select_less(vf a, vf b, vf x, vf y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
/* In two steps, because 2^-150 and 2^128 are not floats. */
static inline vf v_scale_exponent(vf x, vf n)
{
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    __m256i rest = _mm256_sub_epi32(whole, half), bias = _mm256_set1_epi32(127);
    half = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    rest = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(x, _mm256_castsi256_ps(half)), _mm256_castsi256_ps(rest));
}

static inline float v_sum(vf x)
{
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
static inline float v_hmax(vf x)
{
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

typedef struct vd2 {
    __m256d low, high;
} vd2;
static inline vd2 vd2_zero(void)
{
    return (vd2){_mm256_setzero_pd(), _mm256_setzero_pd()};
}
static inline vd2 vd2_add_square(vd2 sum, vf x)
{
    __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    return (vd2){_mm256_fmadd_pd(low, low, sum.low), _mm256_fmadd_pd(high, high, sum.high)};
}
static inline double vd2_sum(vd2 sum)
{
    __m256d x = _mm256_add_pd(sum.low, sum.high);
    __m128d y = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_add_sd(y, _mm_unpackhi_pd(y, y)));
}

static inline vq v_to_i8_32(const vf x[32 / VW])
{
    __m256i a = _mm256_packs_epi32(_mm256_cvtps_epi32(x[0]), _mm256_cvtps_epi32(x[1]));
    __m256i b = _mm256_packs_epi32(_mm256_cvtps_epi32(x[2]), _mm256_cvtps_epi32(x[3]));
    /* Packing works in each half: x0a x1a x2a x3a | x0b x1b x2b x3b, of four bytes each. */
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
}

static inline void v_split_pairs(vf a, vf b, vf *even, vf *odd)
{
    vf low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
    *even = _mm256_shuffle_ps(low, high, 0x88);
    *odd = _mm256_shuffle_ps(low, high, 0xDD);
}
static inline void v_join_pairs(vf even, vf odd, vf *a, vf *b)
{
    vf low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
    *a = _mm256_permute2f128_ps(low, high, 0x20);
    *b = _mm256_permute2f128_ps(low, high, 0x31);
}

static inline vf v_sum_each(const vf x[VW])
{
    vf a = add_four(x), b = add_four(x + 4);
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

static inline void v_transpose(vf x[VW])
{
    vf t[VW];
    for (int i = 0; i < VW; i += 4)
        transpose_fours(x + i, t + i);
    for (int i = 0; i < 4; i++) {
        x[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        x[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
}

#endif
