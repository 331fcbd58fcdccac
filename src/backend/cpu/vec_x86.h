/*
 * The words of vec_avx2.h and vec_avx512.h that read the same for both. The including file defines
 * vf, v_doubles (the same vector as doubles) and VW, and
 *
 *     MM(op)       _mm256_op or _mm512_op
 *     MM_BITS(op)  _mm256_op_si256 or _mm512_op_si512
 *
 * What each word means is said here, for all levels, or where vec_avx512.h has it.
 */
#ifndef LACE_BACKEND_CPU_VEC_X86_H
#define LACE_BACKEND_CPU_VEC_X86_H

static inline vf v_set(float x)
{
    return MM(set1_ps)(x);
}
static inline vf v_load(const float *p)
{
    return MM(loadu_ps)(p);
}
static inline void v_store(float *p, vf x)
{
    MM(storeu_ps)(p, x);
}

static inline vf v_add(vf a, vf b)
{
    return MM(add_ps)(a, b);
}
static inline vf v_sub(vf a, vf b)
{
    return MM(sub_ps)(a, b);
}
static inline vf v_mul(vf a, vf b)
{
    return MM(mul_ps)(a, b);
}
static inline vf v_div(vf a, vf b)
{
    return MM(div_ps)(a, b);
}
static inline vf v_fma(vf a, vf b, vf c) /* a * b + c */
{
    return MM(fmadd_ps)(a, b, c);
}
static inline vf v_max(vf a, vf b) /* b, if one is a NaN */
{
    return MM(max_ps)(a, b);
}
static inline vf v_min(vf a, vf b)
{
    return MM(min_ps)(a, b);
}
static inline vf v_copysign(vf size, vf sign)
{
    return MM(or_ps)(size, MM(and_ps)(sign, MM(set1_ps)(-0.0f)));
}

/* The product as a value of its own: the compiler must not fuse it with an addition. */
static inline vf v_mul_rounded(vf a, vf b)
{
    vf product = MM(mul_ps)(a, b);
    __asm__("" : "+v"(product));
    return product;
}

/* 32 values as int8; v_to_i8_32 of each level makes them of floats. */
typedef __m256i vq;
static inline void vq_store(void *p, vq x)
{
    _mm256_storeu_si256((__m256i *)p, x);
}
/* Sums of the first and the last 16. */
static inline void vq_sums(vq x, int16_t sums[2])
{
    /* Of 8 bytes each, made positive by adding 128 to each byte. */
    __m256i eight =
        _mm256_sad_epu8(_mm256_xor_si256(x, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
    __m256i sixteen = _mm256_add_epi64(eight, _mm256_srli_si256(eight, 8));
    sums[0] = (int16_t)(_mm256_extract_epi16(sixteen, 0) - 16 * 128);
    sums[1] = (int16_t)(_mm256_extract_epi16(sixteen, 8) - 16 * 128);
}

/* a0+a2 b0+b2 a1+a3 b1+b3 in every 16 bytes; then the same for two pairs: A B C D. */
static inline vf add_pair(vf a, vf b)
{
    return MM(add_ps)(MM(unpacklo_ps)(a, b), MM(unpackhi_ps)(a, b));
}
static inline vf add_four(const vf x[4])
{
    v_doubles ab = MM(castps_pd)(add_pair(x[0], x[1])), cd = MM(castps_pd)(add_pair(x[2], x[3]));
    return MM(add_ps)(MM(castpd_ps)(MM(unpacklo_pd)(ab, cd)),
                      MM(castpd_ps)(MM(unpackhi_pd)(ab, cd)));
}

/* 4x4 within every 16 bytes. */
static inline void transpose_fours(const vf x[4], vf out[4])
{
    v_doubles a = MM(castps_pd)(MM(unpacklo_ps)(x[0], x[1]));
    v_doubles b = MM(castps_pd)(MM(unpackhi_ps)(x[0], x[1]));
    v_doubles c = MM(castps_pd)(MM(unpacklo_ps)(x[2], x[3]));
    v_doubles d = MM(castps_pd)(MM(unpackhi_ps)(x[2], x[3]));
    out[0] = MM(castpd_ps)(MM(unpacklo_pd)(a, c));
    out[1] = MM(castpd_ps)(MM(unpackhi_pd)(a, c));
    out[2] = MM(castpd_ps)(MM(unpacklo_pd)(b, d));
    out[3] = MM(castpd_ps)(MM(unpackhi_pd)(b, d));
}

/* One f16 as a float, and back. */
static inline float v_f16(uint16_t h)
{
    return _cvtsh_ss(h);
}
static inline uint16_t v_to_f16(float x)
{
    return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
}

#endif
