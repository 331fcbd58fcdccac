/*
 * The words that unpack_tmpl.h and matmul_quant_tmpl.h are written in, for Advanced SIMD: 8 rows,
 * the first or the second half of a tile. What each word means is said in tile_x86.h and
 * tile_avx512.h.
 */
#ifndef LACE_BACKEND_CPU_TILE_NEON_H
#define LACE_BACKEND_CPU_TILE_NEON_H

#include "backend/cpu/unroll.h"
#include "backend/cpu/vec_neon.h"

enum { TILE_PART = 8, TILE_PARTS = 2 };
typedef struct vi {
    uint8x16_t a, b; /* rows 0 ... 3 and 4 ... 7 */
} vi;
typedef uint8x8_t vb;

ALWAYS_INLINE vi load_words(const uint8_t *at, int part)
{
    return (vi){vld1q_u8(at + 32 * part), vld1q_u8(at + 32 * part + 16)};
}

ALWAYS_INLINE vf load_halves(const uint8_t *at, int part)
{
    return v_load_f16(at + 16 * part);
}

ALWAYS_INLINE vb load_bytes(const uint8_t *at, int part)
{
    return vld1_u8(at + 8 * part);
}

ALWAYS_INLINE vb load_shifted(const uint8_t *at, int part, int shift)
{
    uint16x8_t x = vreinterpretq_u16_u8(vld1q_u8(at + 16 * part));
    return vmovn_u16(vshlq_u16(x, vdupq_n_s16((int16_t)-shift)));
}

ALWAYS_INLINE vf load_floats(const uint8_t *at, int part)
{
    return v_load((const float *)(at + 32 * part));
}

ALWAYS_INLINE vb vb_or(vb a, vb b)
{
    return vorr_u8(a, b);
}

ALWAYS_INLINE vb byte_bits(vb x, int at, int mask)
{
    return vand_u8(vshl_u8(x, vdup_n_s8((int8_t)-at)), vdup_n_u8((uint8_t)mask));
}

ALWAYS_INLINE vf floats_from_bytes(vb bytes)
{
    uint16x8_t x = vmovl_u8(bytes);
    return (vf){vcvtq_f32_u32(vmovl_u16(vget_low_u16(x))),
                vcvtq_f32_u32(vmovl_u16(vget_high_u16(x)))};
}

ALWAYS_INLINE vf floats_from_signed(vb bytes)
{
    int16x8_t x = vmovl_s8(vreinterpret_s8_u8(bytes));
    return (vf){vcvtq_f32_s32(vmovl_s16(vget_low_s16(x))),
                vcvtq_f32_s32(vmovl_s16(vget_high_s16(x)))};
}

ALWAYS_INLINE float32x4_t float_from_e8m0(uint32x4_t e)
{
    uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    uint32x4_t tiny = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    return vreinterpretq_f32_u32(vbslq_u32(vcgtq_u32(e, vdupq_n_u32(1)), normal, tiny));
}

ALWAYS_INLINE vf floats_from_e8m0(vb bytes)
{
    uint16x8_t x = vmovl_u8(bytes);
    return (vf){float_from_e8m0(vmovl_u16(vget_low_u16(x))),
                float_from_e8m0(vmovl_u16(vget_high_u16(x)))};
}

ALWAYS_INLINE vf floats_from_s_scale(vb bytes)
{
    uint16x8_t x = vmovl_u8(bytes);
    uint32x4_t first = vdupq_n_u32((127u - 28) << 23);
    return (vf){
        vreinterpretq_f32_u32(vaddq_u32(vshlq_n_u32(vmovl_u16(vget_low_u16(x)), 20), first)),
        vreinterpretq_f32_u32(vaddq_u32(vshlq_n_u32(vmovl_u16(vget_high_u16(x)), 20), first))};
}

ALWAYS_INLINE vi vi_or(vi a, vi b)
{
    return (vi){vorrq_u8(a.a, b.a), vorrq_u8(a.b, b.b)};
}

/* Bytes are shifted, not words. The count is negative to the right. */
ALWAYS_INLINE vi shift_and(vi x, int count, int mask)
{
    int8x16_t by = vdupq_n_s8((int8_t)count);
    uint8x16_t m = vdupq_n_u8((uint8_t)mask);
    return (vi){vandq_u8(vshlq_u8(x.a, by), m), vandq_u8(vshlq_u8(x.b, by), m)};
}

ALWAYS_INLINE vi bits(vi x, int at, int mask)
{
    return shift_and(x, -at, mask);
}

ALWAYS_INLINE vi high_nibbles(vi x)
{
    return (vi){vshrq_n_u8(x.a, 4), vshrq_n_u8(x.b, 4)};
}

ALWAYS_INLINE vi field(vi x, int at, int mask, const int left)
{
    vi low = shift_and(x, -at, mask);
    return left ? shift_and(low, left, 255) : low;
}

ALWAYS_INLINE vi if_bit(vi x, int j, int value)
{
    uint8x16_t bit = vdupq_n_u8((uint8_t)(1 << j)), v = vdupq_n_u8((uint8_t)value);
    return (vi){vandq_u8(vtstq_u8(x.a, bit), v), vandq_u8(vtstq_u8(x.b, bit), v)};
}

ALWAYS_INLINE vi look_up(const int8_t table[16], int offset, vi x)
{
    uint8x16_t values = vaddq_u8(vreinterpretq_u8_s8(vld1q_s8(table)), vdupq_n_u8((uint8_t)offset));
    return (vi){vqtbl1q_u8(values, x.a), vqtbl1q_u8(values, x.b)};
}

ALWAYS_INLINE vi look_up_64(const uint8_t table[64], vi x)
{
    uint8x16x4_t values = {
        {vld1q_u8(table), vld1q_u8(table + 16), vld1q_u8(table + 32), vld1q_u8(table + 48)}};
    uint8x16_t low = vdupq_n_u8(63);
    return (vi){vqtbl4q_u8(values, vandq_u8(x.a, low)), vqtbl4q_u8(values, vandq_u8(x.b, low))};
}

/* Byte number i of each word, in all four of its bytes. */
ALWAYS_INLINE vi spread_byte(vi x, const int i)
{
    static const uint8_t each[16] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12};
    uint8x16_t at = vaddq_u8(vld1q_u8(each), vdupq_n_u8((uint8_t)i));
    return (vi){vqtbl1q_u8(x.a, at), vqtbl1q_u8(x.b, at)};
}

ALWAYS_INLINE vi broadcast_word(const uint8_t *at)
{
    uint32_t word;
    memcpy(&word, at, 4);
    uint8x16_t x = vreinterpretq_u8_u32(vdupq_n_u32(word));
    return (vi){x, x};
}

ALWAYS_INLINE vi zero_words(void)
{
    return (vi){vdupq_n_u8(0), vdupq_n_u8(0)};
}

/* Words as numbers of 32 bits, and back. */
ALWAYS_INLINE vi vi_of(int32x4_t a, int32x4_t b)
{
    return (vi){vreinterpretq_u8_s32(a), vreinterpretq_u8_s32(b)};
}

ALWAYS_INLINE vf floats_from_words(vi x)
{
    return (vf){vcvtq_f32_s32(vreinterpretq_s32_u8(x.a)), vcvtq_f32_s32(vreinterpretq_s32_u8(x.b))};
}

ALWAYS_INLINE void weave_16(const uint8x16_t w[4], uint8x16_t words[4])
{
    uint16x8_t low = vreinterpretq_u16_u8(vzip1q_u8(w[0], w[1]));
    uint16x8_t high = vreinterpretq_u16_u8(vzip2q_u8(w[0], w[1]));
    uint16x8_t low2 = vreinterpretq_u16_u8(vzip1q_u8(w[2], w[3]));
    uint16x8_t high2 = vreinterpretq_u16_u8(vzip2q_u8(w[2], w[3]));
    words[0] = vreinterpretq_u8_u16(vzip1q_u16(low, low2));
    words[1] = vreinterpretq_u8_u16(vzip2q_u16(low, low2));
    words[2] = vreinterpretq_u8_u16(vzip1q_u16(high, high2));
    words[3] = vreinterpretq_u8_u16(vzip2q_u16(high, high2));
}

ALWAYS_INLINE void weave_columns(const vi w[4], vi words[4])
{
    uint8x16_t a[4] = {w[0].a, w[1].a, w[2].a, w[3].a}, b[4] = {w[0].b, w[1].b, w[2].b, w[3].b};
    uint8x16_t words_a[4], words_b[4];
    weave_16(a, words_a);
    weave_16(b, words_b);
    for (int i = 0; i < 4; i++)
        words[i] = (vi){words_a[i], words_b[i]};
}

/* Weights as signed bytes: those above 127 have 128 added, see QUANT_SIGNED. */
ALWAYS_INLINE int8x16_t signed_bytes(uint8x16_t w, const int most)
{
    return vreinterpretq_s8_u8(most > 127 ? veorq_u8(w, vdupq_n_u8(0x80)) : w);
}

#endif
