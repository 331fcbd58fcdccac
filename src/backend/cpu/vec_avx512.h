/*
 * The words that the kernels' templates are written in, for AVX-512: vectors of 16 floats. Those
 * that it shares with AVX2 are in vec_x86.h.
 */
#ifndef LACE_BACKEND_CPU_VEC_AVX512_H
#define LACE_BACKEND_CPU_VEC_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define MM(op)      _mm512_##op
#define MM_BITS(op) _mm512_##op##_si512

enum { VW = 16 }; /* floats in a vector */
typedef __m512 vf;
typedef __m512d v_doubles;

#include "backend/cpu/vec_x86.h"

/* The first n < VW values; the others are 0. */
static inline vf v_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
static inline void v_store_n(float *p, vf x, int64_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x);
}

static inline vf v_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline void v_store_f16(void *p, vf x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
static inline vf v_load_bf16(const void *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline vf v_load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
/* VW numbers of 4 bits: the low halves of bytes, or the high ones, as indices into a table. */
static inline vf v_load_levels(const uint8_t *p, bool is_high, const int8_t *table)
{
    __m128i x = _mm_loadu_si128((const __m128i *)p);
    x = _mm_and_si128(is_high ? _mm_srli_epi16(x, 4) : x, _mm_set1_epi8(15));
    x = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)table), x);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(x));
}
/* The same as numbers, and 16 less where a bit is not set. */
static inline vf v_load_5_bits(const uint8_t *p, bool is_high, uint32_t bits)
{
    __m128i x = _mm_loadu_si128((const __m128i *)p);
    x = _mm_and_si128(is_high ? _mm_srli_epi16(x, 4) : x, _mm_set1_epi8(15));
    __m512i y = _mm512_cvtepi8_epi32(x);
    return _mm512_cvtepi32_ps(_mm512_mask_sub_epi32(y, (__mmask16)~bits, y, _mm512_set1_epi32(16)));
}
/* VW values of x, at indices of 16 bits. */
static inline vf v_gather(const float *x, const void *at)
{
    __m512i index = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at));
    return _mm512_i32gather_ps(index, x, 4);
}

static inline vf v_abs(vf x)
{
    return _mm512_abs_ps(x);
}
static inline vf v_round(vf x) /* halves to even */
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf v_truncate(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}
/* a < b ? x : y, for each value. */
static inline vf v_select_less(vf a, vf b, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
/* x * 2^n for whole n within +-160, into infinity and subnormals. */
static inline vf v_scale_exponent(vf x, vf n)
{
    return _mm512_scalef_ps(x, n);
}

static inline float v_sum(vf x)
{
    return _mm512_reduce_add_ps(x);
}
static inline float v_hmax(vf x)
{
    return _mm512_reduce_max_ps(x);
}

/* sum += x^2 in double; two vectors of doubles for one of floats. */
typedef struct vd2 {
    __m512d low, high;
} vd2;
static inline vd2 vd2_zero(void)
{
    return (vd2){_mm512_setzero_pd(), _mm512_setzero_pd()};
}
static inline vd2 vd2_add_square(vd2 sum, vf x)
{
    __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    return (vd2){_mm512_fmadd_pd(low, low, sum.low), _mm512_fmadd_pd(high, high, sum.high)};
}
static inline double vd2_sum(vd2 sum)
{
    return _mm512_reduce_add_pd(_mm512_add_pd(sum.low, sum.high));
}

/* 32 floats rounded to int8, halves to even, in order. */
static inline vq v_to_i8_32(const vf x[32 / VW])
{
    return _mm256_set_m128i(_mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x[1])),
                            _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x[0])));
}

/* 2 VW values in pairs (0 1)(2 3)... taken apart into the even and the odd ones, and back. */
static inline void v_split_pairs(vf a, vf b, vf *even, vf *odd)
{
    const __m512i e = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = _mm512_permutex2var_ps(a, e, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(e, _mm512_set1_epi32(1)), b);
}
static inline void v_join_pairs(vf even, vf odd, vf *a, vf *b)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *a = _mm512_permutex2var_ps(even, low, odd);
    *b = _mm512_permutex2var_ps(even, _mm512_add_epi32(low, _mm512_set1_epi32(8)), odd);
}

/* Value i of the result is the sum over x[i]: VW sums at 3 operations each. */
static inline vf v_sum_each(const vf x[VW])
{
    vf s[4], y[2];
    for (int i = 0; i < 4; i++)
        s[i] = add_four(x + 4 * i);
    for (int i = 0; i < 2; i++)
        y[i] = _mm512_add_ps(_mm512_shuffle_f32x4(s[2 * i], s[2 * i + 1], 0x44),
                             _mm512_shuffle_f32x4(s[2 * i], s[2 * i + 1], 0xEE));
    return _mm512_add_ps(_mm512_shuffle_f32x4(y[0], y[1], 0x88),
                         _mm512_shuffle_f32x4(y[0], y[1], 0xDD));
}

/* Row i, column j becomes row j, column i. */
static inline void v_transpose(vf x[VW])
{
    vf t[VW];
    for (int i = 0; i < VW; i += 4)
        transpose_fours(x + i, t + i);
    for (int i = 0; i < 4; i++) { /* 4x4 of the quarters */
        vf a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88),
           b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xDD);
        vf c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
        vf d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xDD);
        x[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        x[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        x[i + 8] = _mm512_shuffle_f32x4(a, c, 0xDD);
        x[i + 12] = _mm512_shuffle_f32x4(b, d, 0xDD);
    }
}

#endif
