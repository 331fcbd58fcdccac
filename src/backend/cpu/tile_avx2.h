/*
 * The words that unpack_tmpl.h and matmul_quant_tmpl.h are written in, for AVX2: 8 rows, the first
 * or the second half of a tile. What each word means is said in tile_avx512.h.
 */
#ifndef LACE_BACKEND_CPU_TILE_AVX2_H
#define LACE_BACKEND_CPU_TILE_AVX2_H

#include "backend/cpu/vec_avx2.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { TILE_PART = 8, TILE_PARTS = 2 };
typedef __m256i vi;
typedef __m128i vb;

ALWAYS_INLINE vi load_words(const uint8_t *at, int part)
{
    return _mm256_loadu_si256((const __m256i *)(at + 32 * part));
}

ALWAYS_INLINE vf load_halves(const uint8_t *at, int part)
{
    return v_load_f16(at + 16 * part);
}

ALWAYS_INLINE vb load_bytes(const uint8_t *at, int part)
{
    return _mm_loadl_epi64((const __m128i *)(at + 8 * part));
}

ALWAYS_INLINE vb load_shifted(const uint8_t *at, int part, int shift)
{
    __m128i x = _mm_srli_epi16(_mm_loadu_si128((const __m128i *)(at + 16 * part)), shift);
    return _mm_packus_epi16(_mm_and_si128(x, _mm_set1_epi16(255)), _mm_setzero_si128());
}

ALWAYS_INLINE vf load_floats(const uint8_t *at, int part)
{
    return _mm256_loadu_ps((const float *)(at + 32 * part));
}

ALWAYS_INLINE vb vb_or(vb a, vb b)
{
    return _mm_or_si128(a, b);
}

ALWAYS_INLINE vb byte_bits(vb x, int at, int mask)
{
    x = at >= 0 ? _mm_srli_epi16(x, at) : _mm_slli_epi16(x, -at);
    return _mm_and_si128(x, _mm_set1_epi8((char)mask));
}

ALWAYS_INLINE vf floats_from_bytes(vb bytes)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

ALWAYS_INLINE vf floats_from_signed(vb bytes)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

ALWAYS_INLINE vf floats_from_e8m0(vb bytes)
{
    vi e = _mm256_cvtepu8_epi32(bytes);
    vi normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    vi tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    vi is_normal = _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1));
    return _mm256_castsi256_ps(_mm256_blendv_epi8(tiny, normal, is_normal));
}

ALWAYS_INLINE vf floats_from_s_scale(vb bytes)
{
    vi e = _mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 20);
    return _mm256_castsi256_ps(_mm256_add_epi32(e, _mm256_set1_epi32((127 - 28) << 23)));
}

ALWAYS_INLINE vi vi_or(vi a, vi b)
{
    return _mm256_or_si256(a, b);
}

ALWAYS_INLINE vi bits(vi x, int at, int mask)
{
    vi shifted = at >= 0 ? _mm256_srli_epi16(x, at) : _mm256_slli_epi16(x, -at);
    return _mm256_and_si256(shifted, _mm256_set1_epi8((char)mask));
}

ALWAYS_INLINE vi field(vi x, int at, int mask, const int left)
{
    /* Words are shifted: what comes from the next byte is masked. */
    vi shifted = _mm256_srlv_epi32(x, _mm256_set1_epi32(at));
    shifted = _mm256_and_si256(shifted, _mm256_set1_epi8((char)mask));
    return left ? _mm256_slli_epi32(shifted, left) : shifted;
}

ALWAYS_INLINE vi if_bit(vi x, int j, int value)
{
    vi bit = _mm256_set1_epi8((char)(1 << j));
    vi is_set = _mm256_cmpeq_epi8(_mm256_and_si256(x, bit), bit);
    return _mm256_and_si256(is_set, _mm256_set1_epi8((char)value));
}

ALWAYS_INLINE vi look_up(const int8_t table[16], int offset, vi x)
{
    __m128i values = _mm_loadu_si128((const __m128i *)table);
    values = _mm_add_epi8(values, _mm_set1_epi8((char)offset));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), x);
}

ALWAYS_INLINE vi look_up_64(const uint8_t table[64], vi x)
{
    vi low = _mm256_and_si256(x, _mm256_set1_epi8(15)), y[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        y[i] = _mm256_shuffle_epi8(
            _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(table + 16 * i))), low);
    vi bit4 = _mm256_slli_epi16(x, 3), bit5 = _mm256_slli_epi16(x, 2);
    return _mm256_blendv_epi8(_mm256_blendv_epi8(y[0], y[1], bit4),
                              _mm256_blendv_epi8(y[2], y[3], bit4), bit5);
}

/* Byte number i of each word, in all four of its bytes. */
ALWAYS_INLINE vi spread_byte(vi x, const int i)
{
    const vi each = _mm256_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0, 0x0c0c0c0c, 0x08080808,
                                     0x04040404, 0);
    return _mm256_shuffle_epi8(x, _mm256_add_epi8(each, _mm256_set1_epi8((char)i)));
}

ALWAYS_INLINE vi broadcast_word(const uint8_t *at)
{
    int32_t word;
    __builtin_memcpy(&word, at, 4);
    return _mm256_set1_epi32(word);
}

#endif
