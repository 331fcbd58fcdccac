/*
 * Weights for few tokens, AVX-512 VNNI: how few_tmpl.h gets at the words and scales of a tile.
 *
 * A word of 4 columns goes from memory to the product with as few operations as possible, since
 * here nothing is decoded for later. Fields that lie high in their bytes stay there where that
 * saves a shift: they count 2^shift times, and the scale of the activations is made smaller by that
 * beforehand. The scales of the 256-column types stay whole numbers until their products are summed
 * up; the tile's own scale is applied once.
 *
 * Each type has
 *
 *     vi few_TYPE(at, g, i)      columns 4i ... 4i + 3 of group g: 16 rows of words
 *
 * The groups of a tile of 256 columns come in spans: FEW_SPAN_TYPE groups share bytes, `at` is the
 * tile's address for the first span, and FEW_STEP_TYPE further for each that follows; g counts from
 * the start of the span. Such a type also has
 *
 *     uint8_t *few_scales_TYPE(tile, buf)   16 bytes for each scale; with HAS_MIN, those of the
 *                                           mins FEW_MINS further on
 *
 * and constants: FEW_SHIFTS_TYPE, the shifts of 4 groups in turn; FEW_SIGNED_TYPE, whether bytes of
 * scales are; FEW_D_TYPE, where in the tile its scale is (its min is behind it).
 */
#ifndef LACE_BACKEND_CPU_FEW_AVX512VNNI_H
#define LACE_BACKEND_CPU_FEW_AVX512VNNI_H

#include "backend/cpu/unpack_tmpl.h"

enum { FEW_MINS = 256, FEW_BUF = 512 };

ALWAYS_INLINE vi few_load(const uint8_t *at)
{
    return _mm512_loadu_si512(at);
}

ALWAYS_INLINE vi few_mask(vi x, int mask)
{
    return _mm512_and_si512(x, _mm512_set1_epi8((char)mask));
}

/* low | (high & mask), in one operation. */
ALWAYS_INLINE vi few_join(vi low, vi high, int mask)
{
    return _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi8((char)mask), 0xf8);
}

/* Right, or left if n < 0; across bytes, so a mask must follow. */
ALWAYS_INLINE vi few_shift(vi x, const int n)
{
    return n < 0 ? _mm512_slli_epi16(x, (unsigned)-n) : n ? _mm512_srli_epi16(x, (unsigned)n) : x;
}

/* table[nibble] + offset: the low nibble of each byte, whatever the high one is. */
ALWAYS_INLINE vi few_look_up(const int8_t table[16], int offset, vi x)
{
    __m128i values = _mm_loadu_si128((const __m128i *)table);
    values = _mm_add_epi8(values, _mm_set1_epi8((char)offset));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), few_mask(x, 15));
}

#define FEW(type) ALWAYS_INLINE vi few_##type(const uint8_t *tile, const int g, const int i)

/* ---- Tiles of 32 columns --------------------------------------------------------------------- */

ALWAYS_INLINE vi few_nibble(const uint8_t *at, const int i)
{
    return few_mask(few_shift(few_load(at + 64 * (i % 4)), i / 4 * 4), 15);
}

ALWAYS_INLINE vi few_five(const uint8_t *at, const int i)
{
    return few_join(few_nibble(at + 64, i), few_shift(few_load(at), i - 4), 16);
}

FEW(q4_0)
{
    return few_nibble(tile + 32, i);
}
FEW(q4_1)
{
    return few_nibble(tile + 64, i);
}
FEW(q5_0)
{
    return few_five(tile + 32, i);
}
FEW(q5_1)
{
    return few_five(tile + 64, i);
}
FEW(q8_0)
{
    return few_load(tile + 32 + 64 * i);
}
FEW(iq4_nl)
{
    return few_look_up(iq4_values, OFFSET_iq4_nl,
                       few_shift(few_load(tile + 32 + 64 * (i % 4)), i / 4 * 4));
}
FEW(mxfp4)
{
    return few_look_up(fp4_values, OFFSET_mxfp4,
                       few_shift(few_load(tile + 16 + 64 * (i % 4)), i / 4 * 4));
}

/* ---- Tiles of 256 columns -------------------------------------------------------------------- */

#define FEW_SCALES(type)                                                                           \
    ALWAYS_INLINE const uint8_t *few_scales_##type(const uint8_t *tile, uint8_t buf[FEW_BUF])

/* The 6-bit scales and mins of Q4_K and Q5_K. */
ALWAYS_INLINE const uint8_t *few_six_bits(const uint8_t *tile, uint8_t buf[FEW_BUF])
{
    vi a = few_load(tile), b = few_load(tile + 64), c = few_load(tile + 128);
    _mm512_store_si512(buf, few_mask(a, 63));
    _mm512_store_si512(buf + 64, few_join(few_mask(c, 15), few_shift(a, 2), 48));
    _mm512_store_si512(buf + FEW_MINS, few_mask(b, 63));
    _mm512_store_si512(buf + FEW_MINS + 64,
                       few_join(few_mask(few_shift(c, 4), 15), few_shift(b, 2), 48));
    return buf;
}

enum { FEW_SPAN_q4_k = 2, FEW_STEP_q4_k = 512, FEW_SIGNED_q4_k = 0, FEW_D_q4_k = 192 };
#define FEW_SHIFTS_q4_k                                                                            \
    {                                                                                              \
        0, 4, 0, 4                                                                                 \
    }
FEW(q4_k)
{
    return few_mask(few_load(tile + 256 + 64 * i), g ? 0xf0 : 15);
}
FEW_SCALES(q4_k)
{
    return few_six_bits(tile, buf);
}

enum { FEW_SPAN_q5_k = 8, FEW_STEP_q5_k = 0, FEW_SIGNED_q5_k = 0, FEW_D_q5_k = 192 };
#define FEW_SHIFTS_q5_k                                                                            \
    {                                                                                              \
        0, 1, 0, 1                                                                                 \
    }
FEW(q5_k)
{
    /* The fifth bits of two groups side by side, at bits 4 and 5. */
    vi high = few_shift(few_load(tile + 256 + 320 * i), g / 2 * 2 - 4);
    vi low = few_load(tile + 256 + 320 * i + 64 * (1 + g / 2));
    return g % 2 ? few_join(few_mask(few_shift(low, 3), 0x1e), high, 0x20)
                 : few_join(few_mask(low, 15), high, 0x10);
}
FEW_SCALES(q5_k)
{
    return few_six_bits(tile, buf);
}

enum { FEW_SPAN_q6_k = 4, FEW_STEP_q6_k = 1536, FEW_SIGNED_q6_k = 1, FEW_D_q6_k = 256 };
#define FEW_SHIFTS_q6_k                                                                            \
    {                                                                                              \
        0, 2, 0, 2                                                                                 \
    }
FEW(q6_k)
{
    vi high = few_shift(few_load(tile + 288 + 192 * i), g < 2 ? -4 : 0);
    vi low = few_load(tile + 288 + 192 * i + 64 * (1 + g % 2));
    return g % 2 ? few_join(few_mask(few_shift(low, g < 2 ? -2 : 2), 0x3c), high, 0xc0)
                 : few_join(few_mask(few_shift(low, g < 2 ? 0 : 4), 15), high, 0x30);
}
FEW_SCALES(q6_k)
{
    return tile;
}

enum { FEW_SPAN_q2_k = 4, FEW_STEP_q2_k = 512, FEW_SIGNED_q2_k = 0, FEW_D_q2_k = 256 };
#define FEW_SHIFTS_q2_k                                                                            \
    {                                                                                              \
        0, 2, 4, 6                                                                                 \
    }
FEW(q2_k)
{
    return few_mask(few_load(tile + 320 + 64 * i), 3 << 2 * g);
}
FEW_SCALES(q2_k)
{
    UNROLL
    for (int i = 0; i < 4; i++) {
        vi both = few_load(tile + 64 * i);
        _mm512_store_si512(buf + 64 * i, few_mask(both, 15));
        _mm512_store_si512(buf + FEW_MINS + 64 * i, few_mask(few_shift(both, 4), 15));
    }
    return buf;
}

enum { FEW_SPAN_q3_k = 8, FEW_STEP_q3_k = 0, FEW_SIGNED_q3_k = 1, FEW_D_q3_k = 192 };
#define FEW_SHIFTS_q3_k                                                                            \
    {                                                                                              \
        0, 1, 2, 3                                                                                 \
    }
FEW(q3_k)
{
    /* The third bit of group g at bit 2 + g % 4, and its low bits moved below it. */
    vi high = few_shift(few_load(tile + 224 + 192 * i), g < 4 ? -2 : 2);
    vi low = few_shift(few_load(tile + 224 + 192 * i + 64 * (1 + g / 4)), g % 4);
    return few_join(few_mask(low, 3 << g % 4), high, 4 << g % 4);
}
FEW_SCALES(q3_k)
{
    vi high = few_load(tile + 128);
    UNROLL
    for (int i = 0; i < 4; i++) {
        vi low = few_mask(few_shift(few_load(tile + 64 * (i % 2)), i / 2 * 4), 15);
        vi six = few_join(low, few_shift(high, 2 * i - 4), 48);
        _mm512_store_si512(buf + 64 * i, _mm512_sub_epi8(six, _mm512_set1_epi8(32)));
    }
    return buf;
}

enum { FEW_SPAN_iq4_xs = 1, FEW_STEP_iq4_xs = 256, FEW_SIGNED_iq4_xs = 1, FEW_D_iq4_xs = 96 };
#define FEW_SHIFTS_iq4_xs                                                                          \
    {                                                                                              \
        0, 0, 0, 0                                                                                 \
    }
FEW(iq4_xs)
{
    return few_look_up(iq4_values, OFFSET_iq4_xs,
                       few_shift(few_load(tile + 128 + 64 * (i % 4)), i / 4 * 4));
}
FEW_SCALES(iq4_xs)
{
    UNROLL
    for (int j = 0; j < 8; j++) {
        vb low = byte_bits(load_bytes(tile + 16 * (j / 2), 0), j % 2 * 4, 15);
        vb high = byte_bits(load_shifted(tile + 64, 0, 2 * j), -4, 48);
        _mm_store_si128((__m128i *)(buf + 16 * j),
                        _mm_sub_epi8(vb_or(low, high), _mm_set1_epi8(32)));
    }
    return buf;
}

#undef FEW
#undef FEW_SCALES

#endif
