/*
 * The words that the kernels' templates are written in, for Advanced SIMD: vectors of 8 floats, in
 * two registers. What each word means is said in vec_avx512.h.
 *
 * Pairs of registers, because 32 of them then serve the templates as the 16 of AVX2 do. They are a
 * struct of our own: compilers keep the two of a float32x4x2_t side by side, and copy to do so.
 */
#ifndef LACE_BACKEND_CPU_VEC_NEON_H
#define LACE_BACKEND_CPU_VEC_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { VW = 8 };
typedef struct vf {
    float32x4_t a, b; /* values 0 ... 3 and 4 ... 7 */
} vf;

static inline vf v_set(float x)
{
    return (vf){vdupq_n_f32(x), vdupq_n_f32(x)};
}
static inline vf v_load(const float *p)
{
    return (vf){vld1q_f32(p), vld1q_f32(p + 4)};
}
static inline void v_store(float *p, vf x)
{
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
}

static inline vf v_load_n(const float *p, int64_t n)
{
    float values[VW] = {0};
    for (int64_t i = 0; i < n; i++)
        values[i] = p[i];
    return v_load(values);
}
static inline void v_store_n(float *p, vf x, int64_t n)
{
    float values[VW];
    v_store(values, x);
    for (int64_t i = 0; i < n; i++)
        p[i] = values[i];
}

static inline vf v_load_f16(const void *p)
{
    uint16x8_t x = vreinterpretq_u16_u8(vld1q_u8(p));
    return (vf){vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(x))),
                vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(x)))};
}
static inline void v_store_f16(void *p, vf x)
{
    vst1_u8(p, vreinterpret_u8_f16(vcvt_f16_f32(x.a)));
    vst1_u8((uint8_t *)p + 8, vreinterpret_u8_f16(vcvt_f16_f32(x.b)));
}
static inline vf v_load_bf16(const void *p)
{
    uint16x8_t x = vreinterpretq_u16_u8(vld1q_u8(p));
    return (vf){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(x), 16)),
                vreinterpretq_f32_u32(vshll_high_n_u16(x, 16))};
}
static inline vf v_from_i8(int8x8_t x)
{
    int16x8_t wide = vmovl_s8(x);
    return (vf){vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))),
                vcvtq_f32_s32(vmovl_s16(vget_high_s16(wide)))};
}
static inline vf v_load_i8(const int8_t *p)
{
    return v_from_i8(vld1_s8(p));
}

/* As in vec_avx512.h. */
static inline vf v_load_levels(const uint8_t *p, bool is_high, const int8_t *table)
{
    uint8x8_t x = vld1_u8(p);
    x = is_high ? vshr_n_u8(x, 4) : vand_u8(x, vdup_n_u8(15));
    return v_from_i8(vqtbl1_s8(vld1q_s8(table), x));
}
static inline vf v_load_5_bits(const uint8_t *p, bool is_high, uint32_t bits)
{
    static const uint8_t each[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    uint8x8_t x = vld1_u8(p);
    x = is_high ? vshr_n_u8(x, 4) : vand_u8(x, vdup_n_u8(15));
    uint8x8_t is_set = vtst_u8(vdup_n_u8((uint8_t)bits), vld1_u8(each));
    uint8x8_t less = vbic_u8(vdup_n_u8(16), is_set);
    return v_from_i8(vreinterpret_s8_u8(vsub_u8(x, less)));
}

static inline vf v_add(vf a, vf b)
{
    return (vf){vaddq_f32(a.a, b.a), vaddq_f32(a.b, b.b)};
}
static inline vf v_sub(vf a, vf b)
{
    return (vf){vsubq_f32(a.a, b.a), vsubq_f32(a.b, b.b)};
}
static inline vf v_mul(vf a, vf b)
{
    return (vf){vmulq_f32(a.a, b.a), vmulq_f32(a.b, b.b)};
}
static inline vf v_div(vf a, vf b)
{
    return (vf){vdivq_f32(a.a, b.a), vdivq_f32(a.b, b.b)};
}
static inline vf v_fma(vf a, vf b, vf c)
{
    return (vf){vfmaq_f32(c.a, a.a, b.a), vfmaq_f32(c.b, a.b, b.b)};
}
/* a < b ? x : y, for each value. */
static inline vf v_select_less(vf a, vf b, vf x, vf y)
{
    return (vf){vbslq_f32(vcltq_f32(a.a, b.a), x.a, y.a), vbslq_f32(vcltq_f32(a.b, b.b), x.b, y.b)};
}
/* Not fmax and fmin: they differ with a NaN. */
static inline vf v_max(vf a, vf b)
{
    return v_select_less(b, a, a, b);
}
static inline vf v_min(vf a, vf b)
{
    return v_select_less(a, b, a, b);
}
static inline vf v_abs(vf x)
{
    return (vf){vabsq_f32(x.a), vabsq_f32(x.b)};
}
static inline vf v_copysign(vf size, vf sign)
{
    const uint32x4_t top = vdupq_n_u32(0x80000000u);
    return (vf){vbslq_f32(top, sign.a, size.a), vbslq_f32(top, sign.b, size.b)};
}
static inline vf v_round(vf x)
{
    return (vf){vrndnq_f32(x.a), vrndnq_f32(x.b)};
}
static inline vf v_truncate(vf x)
{
    return (vf){vrndq_f32(x.a), vrndq_f32(x.b)};
}

/* In two steps, because 2^-150 and 2^128 are not floats. */
static inline float32x4_t scale_exponent(float32x4_t x, float32x4_t n)
{
    int32x4_t whole = vcvtnq_s32_f32(n), half = vshrq_n_s32(whole, 1);
    int32x4_t rest = vsubq_s32(whole, half), bias = vdupq_n_s32(127);
    half = vshlq_n_s32(vaddq_s32(half, bias), 23);
    rest = vshlq_n_s32(vaddq_s32(rest, bias), 23);
    return vmulq_f32(vmulq_f32(x, vreinterpretq_f32_s32(half)), vreinterpretq_f32_s32(rest));
}
static inline vf v_scale_exponent(vf x, vf n)
{
    return (vf){scale_exponent(x.a, n.a), scale_exponent(x.b, n.b)};
}

static inline vf v_mul_rounded(vf a, vf b)
{
    vf product = v_mul(a, b);
    __asm__("" : "+w"(product.a), "+w"(product.b));
    return product;
}

static inline float v_sum(vf x)
{
    return vaddvq_f32(vaddq_f32(x.a, x.b));
}
static inline float v_hmax(vf x)
{
    return vmaxvq_f32(vmaxq_f32(x.a, x.b));
}

typedef struct vd2 {
    float64x2_t a, b, c, d;
} vd2;
static inline vd2 vd2_zero(void)
{
    float64x2_t zero = vdupq_n_f64(0);
    return (vd2){zero, zero, zero, zero};
}
static inline vd2 vd2_add_square(vd2 sum, vf x)
{
    float64x2_t a = vcvt_f64_f32(vget_low_f32(x.a)), b = vcvt_high_f64_f32(x.a);
    float64x2_t c = vcvt_f64_f32(vget_low_f32(x.b)), d = vcvt_high_f64_f32(x.b);
    return (vd2){vfmaq_f64(sum.a, a, a), vfmaq_f64(sum.b, b, b), vfmaq_f64(sum.c, c, c),
                 vfmaq_f64(sum.d, d, d)};
}
static inline double vd2_sum(vd2 sum)
{
    return vaddvq_f64(vaddq_f64(vaddq_f64(sum.a, sum.b), vaddq_f64(sum.c, sum.d)));
}

typedef struct vq {
    int8x16_t a, b; /* values 0 ... 15 and 16 ... 31 */
} vq;
static inline int16x8_t to_i16(vf x)
{
    return vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(x.a)), vqmovn_s32(vcvtnq_s32_f32(x.b)));
}
static inline vq v_to_i8_32(const vf x[32 / VW])
{
    return (vq){vcombine_s8(vqmovn_s16(to_i16(x[0])), vqmovn_s16(to_i16(x[1]))),
                vcombine_s8(vqmovn_s16(to_i16(x[2])), vqmovn_s16(to_i16(x[3])))};
}
static inline void vq_store(void *p, vq x)
{
    vst1q_s8(p, x.a);
    vst1q_s8((int8_t *)p + 16, x.b);
}
static inline void vq_sums(vq x, int16_t sums[2])
{
    sums[0] = vaddlvq_s8(x.a);
    sums[1] = vaddlvq_s8(x.b);
}

static inline void v_split_pairs(vf a, vf b, vf *even, vf *odd)
{
    *even = (vf){vuzp1q_f32(a.a, a.b), vuzp1q_f32(b.a, b.b)};
    *odd = (vf){vuzp2q_f32(a.a, a.b), vuzp2q_f32(b.a, b.b)};
}
static inline void v_join_pairs(vf even, vf odd, vf *a, vf *b)
{
    *a = (vf){vzip1q_f32(even.a, odd.a), vzip2q_f32(even.a, odd.a)};
    *b = (vf){vzip1q_f32(even.b, odd.b), vzip2q_f32(even.b, odd.b)};
}

static inline float32x4_t add_four(const vf x[4])
{
    float32x4_t s[4];
    for (int i = 0; i < 4; i++)
        s[i] = vaddq_f32(x[i].a, x[i].b);
    return vpaddq_f32(vpaddq_f32(s[0], s[1]), vpaddq_f32(s[2], s[3]));
}
static inline vf v_sum_each(const vf x[VW])
{
    return (vf){add_four(x), add_four(x + 4)};
}

/* 4x4; out[i] has value i of the four. */
static inline void transpose_four(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d,
                                  float32x4_t out[4])
{
    float64x2_t ab0 = vreinterpretq_f64_f32(vzip1q_f32(a, b));
    float64x2_t ab2 = vreinterpretq_f64_f32(vzip2q_f32(a, b));
    float64x2_t cd0 = vreinterpretq_f64_f32(vzip1q_f32(c, d));
    float64x2_t cd2 = vreinterpretq_f64_f32(vzip2q_f32(c, d));
    out[0] = vreinterpretq_f32_f64(vzip1q_f64(ab0, cd0));
    out[1] = vreinterpretq_f32_f64(vzip2q_f64(ab0, cd0));
    out[2] = vreinterpretq_f32_f64(vzip1q_f64(ab2, cd2));
    out[3] = vreinterpretq_f32_f64(vzip2q_f64(ab2, cd2));
}
static inline void v_transpose(vf x[VW])
{
    float32x4_t t[4][4]; /* quarters: rows 0-3 and 4-7 of columns 0-3, the same of 4-7 */
    transpose_four(x[0].a, x[1].a, x[2].a, x[3].a, t[0]);
    transpose_four(x[4].a, x[5].a, x[6].a, x[7].a, t[1]);
    transpose_four(x[0].b, x[1].b, x[2].b, x[3].b, t[2]);
    transpose_four(x[4].b, x[5].b, x[6].b, x[7].b, t[3]);
    for (int i = 0; i < 4; i++) {
        x[i] = (vf){t[0][i], t[1][i]};
        x[4 + i] = (vf){t[2][i], t[3][i]};
    }
}

static inline float v_f16(uint16_t h)
{
    __fp16 x;
    memcpy(&x, &h, 2);
    return (float)x;
}
static inline uint16_t v_to_f16(float x)
{
    __fp16 half = (__fp16)x;
    uint16_t h;
    memcpy(&h, &half, 2);
    return h;
}

#endif
