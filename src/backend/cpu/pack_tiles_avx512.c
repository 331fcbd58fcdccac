/* Packing with vectors of 64 bytes: four stores where there were 16. */
#include "backend/cpu/tiles.h"

#include <assert.h>
#include <string.h>

#include "backend/cpu/unroll.h"
#include "tensor/blocks.h"

#include <immintrin.h>

/* Rows i, i + 4, i + 8 and i + 12 of 16, a lane each. */
INLINE __m512i load_lanes(const uint8_t *const rows[TILE_ROWS], int i, int offset)
{
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(rows[i] + offset)));
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(rows[i + 4] + offset)), 1);
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(rows[i + 8] + offset)), 2);
    return _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(rows[i + 12] + offset)), 3);
}

INLINE void weave_words(const uint8_t *const rows[TILE_ROWS], int offset, uint32_t flips,
                        uint8_t *out, int64_t apart)
{
    const __m512i flip = _mm512_set1_epi32((int)flips);
    __m512i a = load_lanes(rows, 0, offset), b = load_lanes(rows, 1, offset);
    __m512i c = load_lanes(rows, 2, offset), d = load_lanes(rows, 3, offset);
    __m512i ac = _mm512_unpacklo_epi32(a, c), bd = _mm512_unpacklo_epi32(b, d);
    __m512i AC = _mm512_unpackhi_epi32(a, c), BD = _mm512_unpackhi_epi32(b, d);
    const __m512i x[4] = {_mm512_unpacklo_epi32(ac, bd), _mm512_unpackhi_epi32(ac, bd),
                          _mm512_unpacklo_epi32(AC, BD), _mm512_unpackhi_epi32(AC, BD)};
    UNROLL
    for (int k = 0; k < 4; k++)
        _mm512_storeu_si512(out + k * apart, _mm512_xor_si512(x[k], flip));
}

#define TILES_PACK tiles_pack_avx512
#include "backend/cpu/pack_tiles_tmpl.c"
