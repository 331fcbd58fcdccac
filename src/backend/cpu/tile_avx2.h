/*
 * The words that unpack_tmpl.h and matmul_quant_tmpl.h are written in, for AVX2: 8 rows, the first
 * or the second half of a tile. What each word means is said in tile_x86.h and tile_avx512.h.
 */
#ifndef LACE_BACKEND_CPU_TILE_AVX2_H
#define LACE_BACKEND_CPU_TILE_AVX2_H

#include "backend/cpu/unroll.h"
#include "backend/cpu/vec_avx2.h"

enum { TILE_PART = 8, TILE_PARTS = 2 };
typedef __m256i vi;

ALWAYS_INLINE vi repeat_16(__m128i x)
{
    return _mm256_broadcastsi128_si256(x);
}

#include "backend/cpu/tile_x86.h"

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

ALWAYS_INLINE vf floats_from_e8m0(vb bytes)
{
    vi e = _mm256_cvtepu8_epi32(bytes);
    vi normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    vi tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    vi is_normal = _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1));
    return _mm256_castsi256_ps(_mm256_blendv_epi8(tiny, normal, is_normal));
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

#endif
