/*
 * Decoding tiles (tiles.h): 32 columns of TILE_PART rows at a time, to unsigned bytes. Compiled
 * once per CPU level: the including file includes tile_<level>.h before.
 *
 * Each type has
 *
 *     void words_TYPE(tile, part, j, w)       columns 32j ... 32j + 31: w[i] has 32j + 4i ... + 3
 *     void scales_TYPE(tile, part, s)         of all groups of the tile
 *
 * and constants: BYTES_TYPE, of a tile; GROUPS_TYPE, groups in a tile; IS_STREAM_TYPE, whether a
 * tile is read once from its start to its end; SCALES_TYPE, 1 or 2 scales for a group;
 * HAS_MIN_TYPE; OFFSET_TYPE, what the bytes are larger by; MOST_TYPE, the largest byte. A value is
 *
 *     scale * (byte - offset)     or     scale * byte - min
 *
 * Tiles of 256 columns are for loops over j that are not unrolled, and their scales are decoded by
 * a function of its own: with everything inline, compilers take minutes and make half a megabyte.
 */
#ifndef LACE_BACKEND_CPU_UNPACK_TMPL_H
#define LACE_BACKEND_CPU_UNPACK_TMPL_H

#include "backend/cpu/tiles.h"
#include "tensor/blocks.h"
#include "tensor/iq_grids.h"
#include "tensor/levels.h"

/* Levels may have better ways to do these, see tile_avx512.h. */
#if !defined(OR_IF_BIT)
#define OR_IF_BIT(w, x, j, value) vi_or(w, if_bit(x, j, value))
#endif
#if !defined(LOW_FIELD)
#define LOW_FIELD(x, at, mask) field(x, at, mask, 0)
ALWAYS_INLINE vf low_field_scale(vf scale, int at)
{
    return scale;
}
#endif

/* Of all groups of a tile, in the order of columns. */
typedef struct tile_scales {
    vf scale[16], min[16];
} tile_scales;

#define TYPE(type, bytes, groups, is_stream, scales, has_min, offset, most)                        \
    enum {                                                                                         \
        BYTES_##type = bytes,                                                                      \
        GROUPS_##type = groups,                                                                    \
        IS_STREAM_##type = is_stream,                                                              \
        SCALES_##type = scales,                                                                    \
        HAS_MIN_##type = has_min,                                                                  \
        OFFSET_##type = offset,                                                                    \
        MOST_##type = most                                                                         \
    };

#define WORDS(type)  ALWAYS_INLINE void words_##type(const uint8_t *tile, int part, int j, vi w[8])
#define SCALES(type) ALWAYS_INLINE void scales_##type(const uint8_t *tile, int part, tile_scales *s)
#define SCALES_APART(type)                                                                         \
    static __attribute__((noinline, unused)) void scales_##type(const uint8_t *tile, int part,     \
                                                                tile_scales *s)

/* ---- Tiles of 32 columns --------------------------------------------------------------------- */

/* The nibbles of 32 columns, as in Q4_0. */
ALWAYS_INLINE void nibbles_32(const uint8_t *at, int part, vi w[8])
{
    UNROLL
    for (int i = 0; i < 4; i++) {
        vi x = load_words(at + 64 * i, part);
        w[i] = bits(x, 0, 15);
        w[4 + i] = bits(x, 4, 15);
    }
}

/* Nibbles, and the fifth bits of all 8 vectors in the bits of one. */
ALWAYS_INLINE void fives_32(const uint8_t *at, int part, vi w[8])
{
    vi high = load_words(at, part);
    nibbles_32(at + 64, part, w);
    UNROLL
    for (int i = 0; i < 8; i++)
        w[i] = vi_or(w[i], bits(high, i - 4, 16));
}

/* Nibbles as numbers of a table, whose values become unsigned with the offset. */
ALWAYS_INLINE void table_32(const uint8_t *at, int part, const int8_t table[16], int offset,
                            vi w[8])
{
    nibbles_32(at, part, w);
    UNROLL
    for (int i = 0; i < 8; i++)
        w[i] = look_up(table, offset, w[i]);
}

/* Codes of 3 bits of 32 columns, in three words as S3 has them (blocks.h), looked up. */
#if defined(LOOK_UP_IGNORES_HIGH_BITS)
/*
 * A table of 64 takes 6 bits of an index. With each level as often as the other 3 bits have values,
 * both codes in those bits are looked up without a shift or a mask: 14 operations for 8 vectors.
 * The table `split` has the bits of a code at 4, 5 and 3.
 */
ALWAYS_INLINE void threes_32(const uint8_t *at, int part, const uint8_t low[64],
                             const uint8_t high[64], const uint8_t split[64], vi w[8])
{
    vi x[3];
    UNROLL
    for (int k = 0; k < 3; k++) {
        x[k] = load_words(at + 64 * k, part);
        w[2 * k] = look_up_64(low, x[k]);
        w[2 * k + 1] = look_up_64(high, x[k]);
    }
    w[6] = look_up_64(split, merge(shifted(x[0], 2), shifted(x[2], 3), 0x30));
    w[7] = look_up_64(split, merge(shifted(x[1], 2), shifted(x[2], 4), 0x30));
}
#else
ALWAYS_INLINE void threes_32(const uint8_t *at, int part, const int8_t table[16], int offset,
                             vi w[8])
{
    vi x[3];
    UNROLL
    for (int k = 0; k < 3; k++) {
        x[k] = load_words(at + 64 * k, part);
        w[2 * k] = bits(x[k], 0, 7);
        w[2 * k + 1] = bits(x[k], 3, 7);
    }
    w[6] = vi_or(bits(x[0], 6, 3), bits(x[2], 4, 4));
    w[7] = vi_or(bits(x[1], 6, 3), bits(x[2], 5, 4));
    UNROLL
    for (int k = 0; k < 8; k++)
        w[k] = look_up(table, offset, w[k]);
}
#endif

ALWAYS_INLINE void bytes_32(const uint8_t *at, int part, vi w[8])
{
    UNROLL
    for (int i = 0; i < 8; i++)
        w[i] = load_words(at + 64 * i, part);
}

ALWAYS_INLINE vf negate(vf x)
{
    return v_sub(v_set(0), x);
}

TYPE(q4_0, 16 * BLOCK_BYTES_Q4_0, 1, 1, 1, 0, 8, 15)
WORDS(q4_0)
{
    nibbles_32(tile + 32, part, w);
}
SCALES(q4_0)
{
    s->scale[0] = load_halves(tile, part);
}

TYPE(q4_1, 16 * BLOCK_BYTES_Q4_1, 1, 1, 1, 1, 0, 15)
WORDS(q4_1)
{
    nibbles_32(tile + 64, part, w);
}
SCALES(q4_1)
{
    s->scale[0] = load_halves(tile, part);
    s->min[0] = negate(load_halves(tile + 32, part));
}

TYPE(q5_0, 16 * BLOCK_BYTES_Q5_0, 1, 1, 1, 0, 16, 31)
WORDS(q5_0)
{
    fives_32(tile + 32, part, w);
}
SCALES(q5_0)
{
    s->scale[0] = load_halves(tile, part);
}

TYPE(q5_1, 16 * BLOCK_BYTES_Q5_1, 1, 1, 1, 1, 0, 31)
WORDS(q5_1)
{
    fives_32(tile + 64, part, w);
}
SCALES(q5_1)
{
    s->scale[0] = load_halves(tile, part);
    s->min[0] = negate(load_halves(tile + 32, part));
}

TYPE(q8_0, 16 * BLOCK_BYTES_Q8_0, 1, 1, 1, 0, 128, 255)
WORDS(q8_0)
{
    bytes_32(tile + 32, part, w);
}
SCALES(q8_0)
{
    s->scale[0] = load_halves(tile, part);
}

TYPE(iq4_nl, 16 * BLOCK_BYTES_IQ4_NL, 1, 1, 1, 0, 128, 255)
WORDS(iq4_nl)
{
    table_32(tile + 32, part, iq4_values, OFFSET_iq4_nl, w);
}
SCALES(iq4_nl)
{
    s->scale[0] = load_halves(tile, part);
}

TYPE(mxfp4, 16 * BLOCK_BYTES_MXFP4, 1, 1, 1, 0, 12, 24)
WORDS(mxfp4)
{
    table_32(tile + 16, part, fp4_values, OFFSET_mxfp4, w);
}
SCALES(mxfp4)
{
    s->scale[0] = floats_from_e8m0(load_bytes(tile, part));
}

/* ---- Tiles of 256 columns -------------------------------------------------------------------- */

/* 6 bits: the number j of 8 scales (first = 0) or mins (first = 4) of Q4_K and Q5_K. */
ALWAYS_INLINE vf six_bits(const uint8_t *scales, int part, int first, int j)
{
    if (j < 4)
        return floats_from_bytes(byte_bits(load_bytes(scales + 16 * (first + j), part), 0, 63));
    vb low = byte_bits(load_bytes(scales + 16 * (4 + j), part), first, 15);
    vb high = byte_bits(load_bytes(scales + 16 * (first + j - 4), part), 2, 48);
    return floats_from_bytes(vb_or(low, high));
}

/* The scales and mins of Q4_K and Q5_K: 12 vectors of bytes, then the tile's scale and min. */
ALWAYS_INLINE void six_bit_scales(const uint8_t *at, int part, tile_scales *s)
{
    vf scale = load_halves(at + 192, part), min = load_halves(at + 224, part);
    UNROLL
    for (int j = 0; j < 8; j++) {
        s->scale[j] = v_mul(scale, six_bits(at, part, 0, j));
        s->min[j] = v_mul(min, six_bits(at, part, 4, j));
    }
}

TYPE(q4_k, 16 * BLOCK_BYTES_Q4_K, 8, 0, 1, 1, 0, 15)
WORDS(q4_k)
{
    UNROLL
    for (int i = 0; i < 8; i++)
        w[i] = LOW_FIELD(load_words(tile + 256 + 512 * (j / 2) + 64 * i, part), 4 * (j % 2), 15);
}
SCALES_APART(q4_k)
{
    six_bit_scales(tile, part, s);
    UNROLL
    for (int j = 0; j < 8; j++)
        s->scale[j] = low_field_scale(s->scale[j], 4 * (j % 2));
}

TYPE(q5_k, 16 * BLOCK_BYTES_Q5_K, 8, 0, 1, 1, 0, 31)
WORDS(q5_k)
{
    UNROLL
    for (int i = 0; i < 8; i++) {
        const uint8_t *at = tile + 256 + 320 * i;
        vi low = load_words(at + 64 * (1 + j / 2), part);
        w[i] = OR_IF_BIT(field(low, 4 * (j % 2), 15, 0), load_words(at, part), j, 16);
    }
}
SCALES_APART(q5_k)
{
    six_bit_scales(tile, part, s);
}

TYPE(q6_k, 16 * BLOCK_BYTES_Q6_K, 8, 0, 2, 0, 32, 63)
WORDS(q6_k)
{
    const uint8_t *half = tile + 288 + 1536 * (j / 4);
    UNROLL
    for (int i = 0; i < 8; i++) {
        vi high = load_words(half + 192 * i, part);
        vi low = load_words(half + 192 * i + 64 * (1 + j % 2), part);
        w[i] = vi_or(field(low, j % 4 / 2 * 4, 15, 0), field(high, 2 * (j % 4), 3, 4));
    }
}
SCALES_APART(q6_k)
{
    vf scale = load_halves(tile + 256, part);
    UNROLL
    for (int i = 0; i < 16; i++)
        s->scale[i] = v_mul(scale, floats_from_signed(load_bytes(tile + 16 * i, part)));
}

TYPE(q2_k, 16 * BLOCK_BYTES_Q2_K, 8, 0, 2, 1, 0, 3)
WORDS(q2_k)
{
    UNROLL
    for (int i = 0; i < 8; i++)
        w[i] = LOW_FIELD(load_words(tile + 320 + 512 * (j / 4) + 64 * i, part), 2 * (j % 4), 3);
}
SCALES_APART(q2_k)
{
    vf scale = load_halves(tile + 256, part), min = load_halves(tile + 288, part);
    UNROLL
    for (int i = 0; i < 16; i++) {
        vb both = load_bytes(tile + 16 * i, part);
        s->scale[i] =
            low_field_scale(v_mul(scale, floats_from_bytes(byte_bits(both, 0, 15))), i / 2 % 4 * 2);
        s->min[i] = v_mul(min, floats_from_bytes(byte_bits(both, 4, 15)));
    }
}

/* scale * (a number of 6 bits - 32), from its low 4 and its high 2 bits. */
ALWAYS_INLINE vf scale_by_signed(vf scale, vb low, vb high)
{
    return v_mul(scale, v_sub(floats_from_bytes(vb_or(low, high)), v_set(32.0f)));
}

TYPE(q3_k, 16 * BLOCK_BYTES_Q3_K, 8, 0, 2, 0, 4, 7)
WORDS(q3_k)
{
    UNROLL
    for (int i = 0; i < 8; i++) {
        const uint8_t *at = tile + 224 + 192 * i;
        vi low = load_words(at + 64 * (1 + j / 4), part);
        w[i] = OR_IF_BIT(field(low, 2 * (j % 4), 3, 0), load_words(at, part), j, 4);
    }
}
SCALES_APART(q3_k)
{
    vf scale = load_halves(tile + 192, part);
    UNROLL
    for (int i = 0; i < 16; i++) {
        vb low = load_bytes(tile + 16 * (i % 8), part);
        vb high = load_bytes(tile + 16 * (8 + i % 4), part);
        s->scale[i] = scale_by_signed(scale, byte_bits(low, i / 8 * 4, 15),
                                      byte_bits(high, i / 4 * 2 - 4, 48));
    }
}

TYPE(iq4_xs, 16 * BLOCK_BYTES_IQ4_XS, 8, 1, 1, 0, 128, 255)
WORDS(iq4_xs)
{
    table_32(tile + 128 + 256 * j, part, iq4_values, OFFSET_iq4_xs, w);
}
SCALES_APART(iq4_xs)
{
    vf scale = load_halves(tile + 96, part);
    UNROLL
    for (int j = 0; j < 8; j++) {
        vb low = load_bytes(tile + 16 * (j / 2), part);
        vb high = load_shifted(tile + 64, part, 2 * j);
        s->scale[j] =
            scale_by_signed(scale, byte_bits(low, j % 2 * 4, 15), byte_bits(high, -4, 48));
    }
}

/* ---- lace's own types: tiles of 128 columns, 16 scales and then the words of blocks.h -------- */

#define LACE_TYPE(n)                                                                               \
    TYPE(lace_s##n, 16 * BLOCK_BYTES_S##n, 4, 1, 1, 0, 128, 255)                                   \
    SCALES(lace_s##n)                                                                              \
    {                                                                                              \
        s->scale[0] = floats_from_s_scale(load_bytes(tile, part));                                 \
        UNROLL                                                                                     \
        for (int j = 1; j < 4; j++)                                                                \
            s->scale[j] = s->scale[0];                                                             \
    }

/* Word k of part j of a tile with so many bits. */
ALWAYS_INLINE vi lace_word(const uint8_t *tile, int part, int n_bits, int j, int k)
{
    return load_words(tile + 16 + 64 * (n_bits * j + k), part);
}

/* Levels with 128 added, as often as fit; R8 repeats each eight times. */
#define VALUE(x)       (uint8_t)((x) + 128),
#define VALUE_PLAIN(x) x,
#define VALUE_R8(x)    VALUE(x) VALUE(x) VALUE(x) VALUE(x) VALUE(x) VALUE(x) VALUE(x) VALUE(x)
#define REPEAT_4(x)    x x x x
static const int8_t lace_s2_levels[16] = {REPEAT_4(S2_LEVELS(VALUE_PLAIN))};
static const uint8_t lace_s5_table[64] = {S5_LEVELS(VALUE) S5_LEVELS(VALUE)};
static const uint8_t lace_s6_table[64] = {S6_LEVELS(VALUE)};

LACE_TYPE(2)
WORDS(lace_s2)
{
    UNROLL
    for (int k = 0; k < 8; k++)
        w[k] = look_up(lace_s2_levels, OFFSET_lace_s2,
                       bits(lace_word(tile, part, 2, j, k / 4), 2 * (k % 4), 3));
}

LACE_TYPE(3)
LACE_TYPE(4)
#if defined(LOOK_UP_IGNORES_HIGH_BITS)
static const uint8_t lace_s3_low[64] = {REPEAT_4(S3_LEVELS(VALUE)) REPEAT_4(S3_LEVELS(VALUE))};
static const uint8_t lace_s3_high[64] = {S3_LEVELS(VALUE_R8)};
static const uint8_t lace_s3_split[64] = {VALUE_R8(-127) VALUE_R8(14) VALUE_R8(-79) VALUE_R8(
    45) VALUE_R8(-45) VALUE_R8(79) VALUE_R8(-14) VALUE_R8(127)};
static const uint8_t lace_s4_table[64] = {REPEAT_4(S4_LEVELS(VALUE))};

WORDS(lace_s3)
{
    threes_32(tile + 16 + 192 * j, part, lace_s3_low, lace_s3_high, lace_s3_split, w);
}

WORDS(lace_s4)
{
    UNROLL
    for (int k = 0; k < 4; k++) {
        vi x = lace_word(tile, part, 4, j, k);
        w[k] = look_up_64(lace_s4_table, x);
        w[4 + k] = look_up_64(lace_s4_table, shifted(x, 4));
    }
}
#else
static const int8_t lace_s3_levels[16] = {S3_LEVELS(VALUE_PLAIN) S3_LEVELS(VALUE_PLAIN)};
static const int8_t lace_s4_levels[16] = {S4_LEVELS(VALUE_PLAIN)};

WORDS(lace_s3)
{
    threes_32(tile + 16 + 192 * j, part, lace_s3_levels, OFFSET_lace_s3, w);
}

WORDS(lace_s4)
{
    UNROLL
    for (int k = 0; k < 4; k++) {
        vi x = lace_word(tile, part, 4, j, k);
        w[k] = look_up(lace_s4_levels, OFFSET_lace_s4, bits(x, 0, 15));
        w[4 + k] = look_up(lace_s4_levels, OFFSET_lace_s4, bits(x, 4, 15));
    }
}
#endif

LACE_TYPE(5)
WORDS(lace_s5)
{
    vi x[5];
    UNROLL
    for (int k = 0; k < 5; k++) {
        x[k] = lace_word(tile, part, 5, j, k);
        w[k] = look_up_64(lace_s5_table, x[k]);
    }
    w[5] = vi_or(bits(x[0], 5, 7), bits(x[3], 2, 0x18));
    w[6] = vi_or(bits(x[1], 5, 7), vi_or(bits(x[3], 4, 8), bits(x[4], 3, 0x10)));
    w[7] = vi_or(bits(x[2], 5, 7), bits(x[4], 2, 0x18));
    UNROLL
    for (int k = 5; k < 8; k++)
        w[k] = look_up_64(lace_s5_table, w[k]);
}

LACE_TYPE(6)
WORDS(lace_s6)
{
    vi x[6];
    UNROLL
    for (int k = 0; k < 6; k++) {
        x[k] = lace_word(tile, part, 6, j, k);
        w[k] = look_up_64(lace_s6_table, x[k]);
    }
    UNROLL
    for (int k = 0; k < 2; k++)
        w[6 + k] = look_up_64(
            lace_s6_table, vi_or(bits(x[3 * k], 6, 3),
                                 vi_or(bits(x[3 * k + 1], 4, 0x0c), bits(x[3 * k + 2], 2, 0x30))));
}

LACE_TYPE(8)
WORDS(lace_s8)
{
    bytes_32(tile + 16 + 512 * j, part, w);
}

#include "backend/cpu/unpack_iq_tmpl.h"

#undef LACE_TYPE
#undef VALUE
#undef VALUE_R8
#undef VALUE_PLAIN
#undef REPEAT_4
#undef TYPE
#undef WORDS
#undef SCALES
#undef SCALES_APART

#endif
