/*
 * Decoding tiles (tiles.h) with AVX-512: 32 columns of 16 rows at a time, to unsigned bytes.
 *
 * Each type has
 *
 *     head_TYPE                  what all groups of a tile share, decoded once
 *     head_TYPE open_TYPE(tile)
 *     void group_TYPE(tile, head, j, out)     columns 32j ... 32j + 31
 *
 * and constants: GROUPS_TYPE, groups in a tile; SCALES_TYPE, 1 or 2 scales for a group;
 * HAS_MIN_TYPE; OFFSET_TYPE, what the bytes are larger by. A value is
 *
 *     scale * (byte - offset)     or     scale * byte - min
 */
#ifndef LACE_KERNELS_CPU_UNPACK_AVX512_H
#define LACE_KERNELS_CPU_UNPACK_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#include "kernels/cpu/tiles.h"
#include "tensor/blocks.h"
#include "tensor/iq_grids.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* 32 columns of 16 rows. */
typedef struct tile_group {
    __m512i w[8];    /* columns 4i ... 4i + 3 */
    __m512 scale[2]; /* of the 16 rows; [1] is of the last 16 columns if the type has 2 scales */
    __m512 min[2];
} tile_group;

ALWAYS_INLINE __m512i load_words(const uint8_t *at)
{
    return _mm512_loadu_si512(at);
}

ALWAYS_INLINE __m512 load_halves(const uint8_t *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at));
}

/* 16 unsigned bytes as floats. */
ALWAYS_INLINE __m512 floats_from_bytes(__m128i bytes)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}

ALWAYS_INLINE __m512i low_nibbles(__m512i x)
{
    return _mm512_and_si512(x, _mm512_set1_epi8(15));
}

ALWAYS_INLINE __m512i high_nibbles(__m512i x)
{
    return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15));
}

/* 16 of 64 bytes, the j-th; j is known when this is compiled. */
ALWAYS_INLINE __m128i quarter(__m512i x, int j)
{
    switch (j & 3) {
    case 0:
        return _mm512_castsi512_si128(x);
    case 1:
        return _mm512_extracti32x4_epi32(x, 1);
    case 2:
        return _mm512_extracti32x4_epi32(x, 2);
    default:
        return _mm512_extracti32x4_epi32(x, 3);
    }
}

/* 16 bytes, in each quarter. */
ALWAYS_INLINE __m512i repeat_16(const uint8_t *at)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)at));
}

/* Bytes shifted right (left if n < 0); the bits that come from a neighbour are for the caller to
 * mask. */
ALWAYS_INLINE __m512i shift_right(__m512i x, int n)
{
    return n >= 0 ? _mm512_srli_epi16(x, (unsigned)n) : _mm512_slli_epi16(x, (unsigned)-n);
}

/* Bits [at, at + 7] of x under the mask. */
ALWAYS_INLINE __m512i bits(__m512i x, int at, int mask)
{
    return _mm512_and_si512(shift_right(x, at), _mm512_set1_epi8((char)mask));
}

ALWAYS_INLINE __m512 negate(__m512 x)
{
    return _mm512_sub_ps(_mm512_setzero_ps(), x);
}

#define TYPE(type, bytes, groups, scales, has_min, offset)                                         \
    enum {                                                                                         \
        BYTES_##type = bytes,                                                                      \
        GROUPS_##type = groups,                                                                    \
        SCALES_##type = scales,                                                                    \
        HAS_MIN_##type = has_min,                                                                  \
        OFFSET_##type = offset                                                                     \
    };

typedef struct head_none {
    char unused;
} head_none;

/* ---- Tiles of 32 columns --------------------------------------------------------------------- */

/* The nibbles of 32 columns, as in Q4_0. */
ALWAYS_INLINE void nibbles_32(const uint8_t *at, __m512i w[8])
{
    for (int i = 0; i < 4; i++) {
        __m512i x = load_words(at + 64 * i);
        w[i] = low_nibbles(x);
        w[4 + i] = high_nibbles(x);
    }
}

/* What most types of 32 columns have: nothing to share, one scale. */
#define TYPE_32(type, id, has_min, offset)                                                         \
    typedef head_none head_##type;                                                                 \
    TYPE(type, 16 * BLOCK_BYTES_##id, 1, 1, has_min, offset)                                       \
    ALWAYS_INLINE head_none open_##type(const uint8_t *tile)                                       \
    {                                                                                              \
        return (head_none){0};                                                                     \
    }

TYPE_32(q4_0, Q4_0, 0, 8)

ALWAYS_INLINE void group_q4_0(const uint8_t *tile, const head_none *head, int j, tile_group *out)
{
    nibbles_32(tile, out->w);
    out->scale[0] = load_halves(tile + 256);
}

TYPE_32(q4_1, Q4_1, 1, 0)

ALWAYS_INLINE void group_q4_1(const uint8_t *tile, const head_none *head, int j, tile_group *out)
{
    nibbles_32(tile, out->w);
    out->scale[0] = load_halves(tile + 256);
    out->min[0] = negate(load_halves(tile + 288));
}

/* Nibbles, and the fifth bits of all 8 vectors in the bits of one. */
ALWAYS_INLINE void fives_32(const uint8_t *at, __m512i w[8])
{
    __m512i high = load_words(at + 256);
    nibbles_32(at, w);
    for (int i = 0; i < 8; i++)
        w[i] = _mm512_or_si512(w[i], bits(high, i - 4, 16));
}

TYPE_32(q5_0, Q5_0, 0, 16)

ALWAYS_INLINE void group_q5_0(const uint8_t *tile, const head_none *head, int j, tile_group *out)
{
    fives_32(tile, out->w);
    out->scale[0] = load_halves(tile + 320);
}

TYPE_32(q5_1, Q5_1, 1, 0)

ALWAYS_INLINE void group_q5_1(const uint8_t *tile, const head_none *head, int j, tile_group *out)
{
    fives_32(tile, out->w);
    out->scale[0] = load_halves(tile + 320);
    out->min[0] = negate(load_halves(tile + 352));
}

TYPE_32(q8_0, Q8_0, 0, 128)

ALWAYS_INLINE void group_q8_0(const uint8_t *tile, const head_none *head, int j, tile_group *out)
{
    for (int i = 0; i < 8; i++)
        out->w[i] = load_words(tile + 64 * i);
    out->scale[0] = load_halves(tile + 512);
}

/* Nibbles as numbers of a table, whose values become unsigned with the offset. */
ALWAYS_INLINE void table_32(const uint8_t *at, const int8_t table[16], int offset, __m512i w[8])
{
    __m512i values =
        _mm512_add_epi8(repeat_16((const uint8_t *)table), _mm512_set1_epi8((char)offset));
    nibbles_32(at, w);
    for (int i = 0; i < 8; i++)
        w[i] = _mm512_shuffle_epi8(values, w[i]);
}

TYPE_32(iq4_nl, IQ4_NL, 0, 128)

ALWAYS_INLINE void group_iq4_nl(const uint8_t *tile, const head_none *head, int j, tile_group *out)
{
    table_32(tile, iq4_values, OFFSET_iq4_nl, out->w);
    out->scale[0] = load_halves(tile + 256);
}

TYPE_32(mxfp4, MXFP4, 0, 12)

/* The scale is e8m0_to_f32_half() of the exponent. */
ALWAYS_INLINE void group_mxfp4(const uint8_t *tile, const head_none *head, int j, tile_group *out)
{
    __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(tile + 256)));
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    __m512i tiny = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    __mmask16 is_tiny = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    table_32(tile, fp4_values, OFFSET_mxfp4, out->w);
    out->scale[0] = _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_tiny, tiny));
}

/* ---- Tiles of 256 columns -------------------------------------------------------------------- */

/* The scales and mins of Q4_K and Q5_K: 6 bits each, 16 rows in a quarter. */
typedef struct head_q4_k {
    __m512 scale, min;
    __m512i scales[2], mins[2]; /* of groups 0-3 and 4-7 */
} head_q4_k;

ALWAYS_INLINE head_q4_k open_sixes(const uint8_t *at)
{
    __m512i a = load_words(at), b = load_words(at + 64), c = load_words(at + 128);
    head_q4_k h;
    h.scales[0] = bits(a, 0, 63);
    h.mins[0] = bits(b, 0, 63);
    h.scales[1] = _mm512_or_si512(bits(c, 0, 15), bits(a, 2, 48));
    h.mins[1] = _mm512_or_si512(bits(c, 4, 15), bits(b, 2, 48));
    h.scale = load_halves(at + 192);
    h.min = load_halves(at + 224);
    return h;
}

ALWAYS_INLINE void scales_q4_k(const head_q4_k *h, int j, tile_group *out)
{
    out->scale[0] = _mm512_mul_ps(h->scale, floats_from_bytes(quarter(h->scales[j / 4], j)));
    out->min[0] = _mm512_mul_ps(h->min, floats_from_bytes(quarter(h->mins[j / 4], j)));
}

TYPE(q4_k, 16 * BLOCK_BYTES_Q4_K, 8, 1, 1, 0)

ALWAYS_INLINE head_q4_k open_q4_k(const uint8_t *tile)
{
    return open_sixes(tile + 2048);
}

ALWAYS_INLINE void group_q4_k(const uint8_t *tile, const head_q4_k *head, int j, tile_group *out)
{
    for (int i = 0; i < 8; i++)
        out->w[i] = bits(load_words(tile + 512 * (j / 2) + 64 * i), 4 * (j % 2), 15);
    scales_q4_k(head, j, out);
}

typedef head_q4_k head_q5_k;
TYPE(q5_k, 16 * BLOCK_BYTES_Q5_K, 8, 1, 1, 0)

ALWAYS_INLINE head_q5_k open_q5_k(const uint8_t *tile)
{
    return open_sixes(tile + 2560);
}

ALWAYS_INLINE void group_q5_k(const uint8_t *tile, const head_q5_k *head, int j, tile_group *out)
{
    for (int i = 0; i < 8; i++) {
        __m512i low = bits(load_words(tile + 512 + 512 * (j / 2) + 64 * i), 4 * (j % 2), 15);
        out->w[i] = _mm512_or_si512(low, bits(load_words(tile + 64 * i), j - 4, 16));
    }
    scales_q4_k(head, j, out);
}

typedef struct head_scale {
    __m512 scale;
} head_scale;

typedef head_scale head_q6_k;
TYPE(q6_k, 16 * BLOCK_BYTES_Q6_K, 8, 2, 0, 32)

ALWAYS_INLINE head_q6_k open_q6_k(const uint8_t *tile)
{
    return (head_q6_k){load_halves(tile + 3328)};
}

ALWAYS_INLINE void group_q6_k(const uint8_t *tile, const head_q6_k *head, int j, tile_group *out)
{
    const uint8_t *low = tile + 1024 * (j / 4) + 512 * (j % 2);
    const uint8_t *high = tile + 2048 + 512 * (j / 4);
    for (int i = 0; i < 8; i++)
        out->w[i] = _mm512_or_si512(bits(load_words(low + 64 * i), j % 4 / 2 * 4, 15),
                                    bits(load_words(high + 64 * i), 2 * (j % 4) - 4, 48));
    for (int i = 0; i < 2; i++) {
        const uint8_t *at = tile + 3072 + 16 * (2 * j + i);
        __m512i s = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)at));
        out->scale[i] = _mm512_mul_ps(head->scale, _mm512_cvtepi32_ps(s));
    }
}

typedef struct head_q2_k {
    __m512 scale, min;
} head_q2_k;
TYPE(q2_k, 16 * BLOCK_BYTES_Q2_K, 8, 2, 1, 0)

ALWAYS_INLINE head_q2_k open_q2_k(const uint8_t *tile)
{
    return (head_q2_k){load_halves(tile + 1280), load_halves(tile + 1312)};
}

ALWAYS_INLINE void group_q2_k(const uint8_t *tile, const head_q2_k *head, int j, tile_group *out)
{
    for (int i = 0; i < 8; i++)
        out->w[i] = bits(load_words(tile + 512 * (j / 4) + 64 * i), 2 * (j % 4), 3);
    for (int i = 0; i < 2; i++) {
        __m128i s = _mm_loadu_si128((const __m128i *)(tile + 1024 + 16 * (2 * j + i)));
        __m128i low = _mm_and_si128(s, _mm_set1_epi8(15));
        __m128i high = _mm_and_si128(_mm_srli_epi16(s, 4), _mm_set1_epi8(15));
        out->scale[i] = _mm512_mul_ps(head->scale, floats_from_bytes(low));
        out->min[i] = _mm512_mul_ps(head->min, floats_from_bytes(high));
    }
}

typedef struct head_q3_k {
    __m512 scale;
    __m512i scales[4]; /* of 16 columns, 4 in each, with 32 added */
} head_q3_k;
TYPE(q3_k, 16 * BLOCK_BYTES_Q3_K, 8, 2, 0, 4)

ALWAYS_INLINE head_q3_k open_q3_k(const uint8_t *tile)
{
    __m512i high = load_words(tile + 1664);
    head_q3_k h;
    for (int i = 0; i < 4; i++)
        h.scales[i] = _mm512_or_si512(bits(load_words(tile + 1536 + 64 * (i % 2)), i / 2 * 4, 15),
                                      bits(high, 2 * i - 4, 48));
    h.scale = load_halves(tile + 1728);
    return h;
}

/* scale * (a byte - 32) */
ALWAYS_INLINE __m512 scale_by_signed(__m512 scale, __m128i bytes)
{
    return _mm512_mul_ps(scale, _mm512_sub_ps(floats_from_bytes(bytes), _mm512_set1_ps(32.0f)));
}

ALWAYS_INLINE void group_q3_k(const uint8_t *tile, const head_q3_k *head, int j, tile_group *out)
{
    for (int i = 0; i < 8; i++)
        out->w[i] =
            _mm512_or_si512(bits(load_words(tile + 512 + 512 * (j / 4) + 64 * i), 2 * (j % 4), 3),
                            bits(load_words(tile + 64 * i), j - 2, 4));
    for (int i = 0; i < 2; i++)
        out->scale[i] = scale_by_signed(head->scale, quarter(head->scales[j / 2], 2 * j + i));
}

typedef struct head_iq4_xs {
    __m512 scale;
    __m128i low[4];
    __m256i high;
} head_iq4_xs;
TYPE(iq4_xs, 16 * BLOCK_BYTES_IQ4_XS, 8, 1, 0, 128)

ALWAYS_INLINE head_iq4_xs open_iq4_xs(const uint8_t *tile)
{
    head_iq4_xs h = {.scale = load_halves(tile + 2144),
                     .high = _mm256_loadu_si256((const __m256i *)(tile + 2112))};
    for (int i = 0; i < 4; i++)
        h.low[i] = _mm_loadu_si128((const __m128i *)(tile + 2048 + 16 * i));
    return h;
}

ALWAYS_INLINE void group_iq4_xs(const uint8_t *tile, const head_iq4_xs *head, int j,
                                tile_group *out)
{
    table_32(tile + 256 * j, iq4_values, OFFSET_iq4_xs, out->w);
    __m128i high = _mm256_cvtepi16_epi8(_mm256_srli_epi16(head->high, (unsigned)(2 * j)));
    __m128i low = _mm_srli_epi16(head->low[j / 2], (unsigned)(4 * (j % 2)));
    low = _mm_and_si128(low, _mm_set1_epi8(15));
    high = _mm_and_si128(_mm_slli_epi16(high, 4), _mm_set1_epi8(48));
    out->scale[0] = scale_by_signed(head->scale, _mm_or_si128(low, high));
}

/* ---- All other types --------------------------------------------------------------------------
 */

typedef head_none head_s8;
TYPE(s8, TILE_S8_BYTES, 1, 2, 0, 128)

ALWAYS_INLINE head_none open_s8(const uint8_t *tile)
{
    return (head_none){0};
}

ALWAYS_INLINE void group_s8(const uint8_t *tile, const head_none *head, int j, tile_group *out)
{
    for (int i = 0; i < 8; i++)
        out->w[i] = load_words(tile + 64 * i);
    out->scale[0] = _mm512_loadu_ps(tile + 512);
    out->scale[1] = _mm512_loadu_ps(tile + 576);
}

#endif
