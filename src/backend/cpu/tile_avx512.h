/*
 * The words that unpack_tmpl.h and matmul_quant_tmpl.h are written in, for AVX-512.
 *
 * A vector of words (vi) is as in tiles.h: 4 columns of TILE_PART rows, here of all 16. Loads take
 * the address of what belongs to 16 rows, and which part of them is wanted.
 */
#ifndef LACE_BACKEND_CPU_TILE_AVX512_H
#define LACE_BACKEND_CPU_TILE_AVX512_H

#include "backend/cpu/unroll.h"
#include "backend/cpu/vec_avx512.h"

enum { TILE_PART = 16, TILE_PARTS = 1 };
typedef __m512i vi;

ALWAYS_INLINE vi repeat_16(__m128i x)
{
    return _mm512_broadcast_i32x4(x);
}

#include "backend/cpu/tile_x86.h"

ALWAYS_INLINE vi load_words(const uint8_t *at, int part)
{
    return _mm512_loadu_si512(at);
}

/* 16-bit floats, bytes, and 16-bit numbers shifted right and cut to bytes. */
ALWAYS_INLINE vf load_halves(const uint8_t *at, int part)
{
    return v_load_f16(at);
}

ALWAYS_INLINE vb load_bytes(const uint8_t *at, int part)
{
    return _mm_loadu_si128((const __m128i *)at);
}

ALWAYS_INLINE vb load_shifted(const uint8_t *at, int part, int shift)
{
    __m256i x = _mm256_loadu_si256((const __m256i *)at);
    return _mm256_cvtepi16_epi8(_mm256_srli_epi16(x, shift));
}

ALWAYS_INLINE vf load_floats(const uint8_t *at, int part)
{
    return _mm512_loadu_ps(at);
}

/* e8m0_to_f32_half() of each byte. */
ALWAYS_INLINE vf floats_from_e8m0(vb bytes)
{
    vi e = _mm512_cvtepu8_epi32(bytes);
    vi normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    vi tiny = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    __mmask16 is_tiny = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_tiny, tiny));
}

/* The same for a count that is known only when it runs: (x >> at & mask) << left. */
ALWAYS_INLINE vi field(vi x, int at, int mask, const int left)
{
    vi turned = _mm512_rorv_epi32(x, _mm512_set1_epi32(at - left));
    return _mm512_and_si512(turned, _mm512_set1_epi8((char)(mask << left)));
}

/* In each byte, `value` if bit number j of it is set. */
ALWAYS_INLINE vi if_bit(vi x, int j, int value)
{
    return _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(x, _mm512_set1_epi8((char)(1 << j))),
                                 _mm512_set1_epi8((char)value));
}

/* w | (the same), without an operation for it. */
#define OR_IF_BIT or_if_bit
ALWAYS_INLINE vi or_if_bit(vi w, vi x, int j, int value)
{
    __mmask64 is_set = _mm512_test_epi8_mask(x, _mm512_set1_epi8((char)(1 << j)));
    return _mm512_mask_add_epi8(w, is_set, w, _mm512_set1_epi8((char)value));
}

/* A field that stays where it is, because products take all 8 bits of a
 * weight; its scale shrinks. */
#define LOW_FIELD low_field
ALWAYS_INLINE vi low_field(vi x, int at, int mask)
{
    return _mm512_and_si512(x, _mm512_set1_epi8((char)(mask << at)));
}
ALWAYS_INLINE vf low_field_scale(vf scale, int at)
{
    return v_mul(scale, v_set(1.0f / (float)(1 << at)));
}

/* table[x % 64], for all bytes x. */
#if defined(__AVX512VBMI__)
#define LOOK_UP_IGNORES_HIGH_BITS
ALWAYS_INLINE vi look_up_64(const uint8_t table[64], vi x)
{
    return _mm512_permutexvar_epi8(x, _mm512_loadu_si512(table));
}
#else
/* Without VBMI in quarters of the table, of which bits 4 and 5 choose one. */
ALWAYS_INLINE vi look_up_quarter(const uint8_t *quarter, vi low)
{
    return _mm512_shuffle_epi8(repeat_16(_mm_loadu_si128((const __m128i *)quarter)), low);
}

ALWAYS_INLINE vi look_up_64(const uint8_t table[64], vi x)
{
    vi low = _mm512_and_si512(x, _mm512_set1_epi8(15));
    __mmask64 bit4 = _mm512_test_epi8_mask(x, _mm512_set1_epi8(16));
    __mmask64 bit5 = _mm512_test_epi8_mask(x, _mm512_set1_epi8(32));
    vi y0 = look_up_quarter(table, low), y1 = look_up_quarter(table + 16, low);
    vi y2 = look_up_quarter(table + 32, low), y3 = look_up_quarter(table + 48, low);
    return _mm512_mask_blend_epi8(bit5, _mm512_mask_blend_epi8(bit4, y0, y1),
                                  _mm512_mask_blend_epi8(bit4, y2, y3));
}
#endif

/* Bytes shifted right; what comes in from above is anything. */
ALWAYS_INLINE vi shifted(vi x, int at)
{
    return at ? _mm512_srli_epi16(x, (unsigned)at) : x;
}

/* Of the bits under the mask a, of the others b. */
ALWAYS_INLINE vi merge(vi a, vi b, int mask)
{
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8((char)mask), a, b, 0xca);
}

/* Byte number i of each word, in all four of its bytes. */
ALWAYS_INLINE vi spread_byte(vi x, const int i)
{
    const vi each = _mm512_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0, 0x0c0c0c0c, 0x08080808,
                                     0x04040404, 0, 0x0c0c0c0c, 0x08080808, 0x04040404, 0,
                                     0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    return _mm512_shuffle_epi8(x, _mm512_add_epi8(each, _mm512_set1_epi8((char)i)));
}

#endif
