/*
 * Decoding tiles of trellis types, as unpack_tmpl.h does others: tiles of 256 columns, 16 scales
 * and then the words of the streams. The including file includes trellis_<level>.h before.
 */
#ifndef LACE_BACKEND_CPU_UNPACK_TRELLIS_TMPL_H
#define LACE_BACKEND_CPU_UNPACK_TRELLIS_TMPL_H

#include "backend/cpu/unpack_tmpl.h"

/*
 * Columns 32j ... 32j + 31 of streams of n bits, which are n words. A window that begins in the
 * word before takes the end of that; what is before a stream's first word is given.
 */
ALWAYS_INLINE void trellis_32(const uint8_t *tile, int part, const int n_bits, int j, vi w[8])
{
    const uint8_t *at = tile + 16 + 64 * n_bits * j;
    uint32_t start = trellis_start(n_bits) << 16;
    vi x[TRELLIS_MAX_BITS + 1];
    x[0] = j ? load_words(at - 64, part) : broadcast_word((const uint8_t *)&start);
    UNROLL
    for (int k = 0; k < n_bits; k++)
        x[k + 1] = load_words(at + 64 * k, part);
    UNROLL
    for (int i = 0; i < 8; i++) {
        vi v[4];
        UNROLL
        for (int k = 0; k < 4; k++) {
            const int first = 32 - TRELLIS_WINDOW + n_bits * (4 * i + k + 1);
            const int word = first / 32, next = word < n_bits ? word + 1 : word;
            v[k] = trellis_window(x[word], x[next], first % 32);
        }
        w[i] = trellis_levels(v[0], v[1], v[2], v[3]);
    }
}

/* ---- Types ----------------------------------------------------------------------------------- */

#define TRELLIS_TYPE(n)                                                                            \
    enum {                                                                                         \
        BYTES_lace_t##n = 16 * BLOCK_BYTES_T##n,                                                   \
        GROUPS_lace_t##n = 8,                                                                      \
        IS_STREAM_lace_t##n = 1,                                                                   \
        SCALES_lace_t##n = 1,                                                                      \
        HAS_MIN_lace_t##n = 0,                                                                     \
        OFFSET_lace_t##n = 128,                                                                    \
        MOST_lace_t##n = 255                                                                       \
    };                                                                                             \
    ALWAYS_INLINE void scales_lace_t##n(const uint8_t *tile, int part, tile_scales *s)             \
    {                                                                                              \
        s->scale[0] = floats_from_s_scale(load_bytes(tile, part));                                 \
        UNROLL                                                                                     \
        for (int j = 1; j < 8; j++)                                                                \
            s->scale[j] = s->scale[0];                                                             \
    }                                                                                              \
    ALWAYS_INLINE void words_lace_t##n(const uint8_t *tile, int part, int j, vi w[8])              \
    {                                                                                              \
        trellis_32(tile, part, n, j, w);                                                           \
    }

TRELLIS_TYPE(2)
TRELLIS_TYPE(3)
TRELLIS_TYPE(4)
TRELLIS_TYPE(5)

#undef TRELLIS_TYPE

#endif
