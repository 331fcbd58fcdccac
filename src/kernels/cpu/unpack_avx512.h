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

#include "tensor/blocks.h"

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

typedef head_none head_q4_0;
enum { GROUPS_q4_0 = 1, SCALES_q4_0 = 1, HAS_MIN_q4_0 = 0, OFFSET_q4_0 = 8 };

ALWAYS_INLINE head_q4_0 open_q4_0(const uint8_t *tile)
{
    return (head_q4_0){0};
}

ALWAYS_INLINE void group_q4_0(const uint8_t *tile, const head_q4_0 *head, int j, tile_group *out)
{
    nibbles_32(tile, out->w);
    out->scale[0] = load_halves(tile + 256);
}

typedef head_none head_q8_0;
enum { GROUPS_q8_0 = 1, SCALES_q8_0 = 1, HAS_MIN_q8_0 = 0, OFFSET_q8_0 = 128 };

ALWAYS_INLINE head_q8_0 open_q8_0(const uint8_t *tile)
{
    return (head_q8_0){0};
}

ALWAYS_INLINE void group_q8_0(const uint8_t *tile, const head_q8_0 *head, int j, tile_group *out)
{
    for (int i = 0; i < 8; i++)
        out->w[i] = load_words(tile + 64 * i);
    out->scale[0] = load_halves(tile + 512);
}

#endif
