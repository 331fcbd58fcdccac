/*
 * Decoding tiles of the types that are packed anew (pack_iq.c): codes of 2, 3 or 4 bits for the
 * values of a grid's points, with their signs. A part of unpack_tmpl.h, whose words it uses.
 */

/* Of n vectors of 4-bit numbers s, the low ones first: scale = unit * (2 s + 1). */
ALWAYS_INLINE void odd_scales(const uint8_t *tile, int part, const int n, tile_scales *s)
{
    vf unit = load_floats(tile, part);
    UNROLL
    for (int i = 0; i < 2 * n; i++) {
        vb nibble = byte_bits(load_bytes(tile + 64 + 16 * (i % n), part), i / n * 4, 15);
        s->scale[i] = v_mul(unit, v_fma(floats_from_bytes(nibble), v_set(2.0f), v_set(1.0f)));
    }
}

/* Levels of each type, negative ones in the second half; twice and more fill a table of 64. */
#define IQ2_LEVELS(X)   X(8) X(25) X(43) X(0) X(-8) X(-25) X(-43) X(0)
#define IQ3_LEVELS(X)   X(4) X(12) X(20) X(28) X(36) X(44) X(52) X(62)
#define IQ3_MINUS(X)    X(-4) X(-12) X(-20) X(-28) X(-36) X(-44) X(-52) X(-62)
#define IQ3_S_LEVELS(X) X(1) X(3) X(5) X(7) X(9) X(11) X(13) X(15)
#define IQ3_S_MINUS(X)  X(-1) X(-3) X(-5) X(-7) X(-9) X(-11) X(-13) X(-15)
#define IQ_LEVEL(x)     x,
#define IQ2_BYTE(x)     (uint8_t)((x) + 43),
#define IQ2_BYTE_8(x)                                                                              \
    IQ2_BYTE(x) IQ2_BYTE(x) IQ2_BYTE(x) IQ2_BYTE(x) IQ2_BYTE(x) IQ2_BYTE(x) IQ2_BYTE(x) IQ2_BYTE(x)
#define R4(x) x x x x
#define R8(x) x x x x x x x x

TYPE(iq3_xxs, TILE_IQ3_BYTES, 8, 1, 1, 0, 62, 124)
TYPE(iq3_s, TILE_IQ3_BYTES, 8, 1, 1, 0, 15, 30)
TYPE(iq2, TILE_IQ2_BYTES, 8, 1, 2, 0, 43, 86)

#if defined(LOOK_UP_IGNORES_HIGH_BITS)
/* Nibbles in any place of a byte, without masks; and codes of 3 bits as in lace_s3. */
#define IQ3_BYTE(x)   (uint8_t)((x) + 62),
#define IQ3_S_BYTE(x) (uint8_t)((x) + 15),
static const uint8_t iq3_xxs_table[64] = {R4(IQ3_LEVELS(IQ3_BYTE) IQ3_MINUS(IQ3_BYTE))};
static const uint8_t iq3_s_table[64] = {R4(IQ3_S_LEVELS(IQ3_S_BYTE) IQ3_S_MINUS(IQ3_S_BYTE))};
static const uint8_t iq2_low[64] = {R8(IQ2_LEVELS(IQ2_BYTE))};
static const uint8_t iq2_high[64] = {IQ2_LEVELS(IQ2_BYTE_8)};
static const uint8_t iq2_split[64] = {IQ2_BYTE_8(8) IQ2_BYTE_8(-8) IQ2_BYTE_8(25) IQ2_BYTE_8(
    -25) IQ2_BYTE_8(43) IQ2_BYTE_8(-43) IQ2_BYTE_8(0) IQ2_BYTE_8(0)};

ALWAYS_INLINE void iq3_words(const uint8_t *at, int part, const uint8_t table[64], vi w[8])
{
    UNROLL
    for (int i = 0; i < 4; i++) {
        vi x = load_words(at + 64 * i, part);
        w[i] = look_up_64(table, x);
        w[4 + i] = look_up_64(table, shifted(x, 4));
    }
}
#define IQ3_WORDS(at, part, name, w) iq3_words(at, part, name##_table, w)

WORDS(iq2)
{
    threes_32(tile + 192 + 192 * j, part, iq2_low, iq2_high, iq2_split, w);
}
#else
static const int8_t iq3_xxs_levels[16] = {IQ3_LEVELS(IQ_LEVEL) IQ3_MINUS(IQ_LEVEL)};
static const int8_t iq3_s_levels[16] = {IQ3_S_LEVELS(IQ_LEVEL) IQ3_S_MINUS(IQ_LEVEL)};
static const int8_t iq2_levels[16] = {IQ2_LEVELS(IQ_LEVEL) IQ2_LEVELS(IQ_LEVEL)};
#define IQ3_WORDS(at, part, name, w) table_32(at, part, name##_levels, OFFSET_##name, w)

WORDS(iq2)
{
    threes_32(tile + 192 + 192 * j, part, iq2_levels, OFFSET_iq2, w);
}
#endif
SCALES_APART(iq2)
{
    odd_scales(tile, part, 8, s);
}

WORDS(iq3_xxs)
{
    IQ3_WORDS(tile + 128 + 256 * j, part, iq3_xxs, w);
}
SCALES_APART(iq3_xxs)
{
    odd_scales(tile, part, 4, s);
}

WORDS(iq3_s)
{
    IQ3_WORDS(tile + 128 + 256 * j, part, iq3_s, w);
}
SCALES_APART(iq3_s)
{
    odd_scales(tile, part, 4, s);
}

/* -1, 0 or 1 and an eighth more or less, in eighths: 8 * code, and 2 where it is more, less 9. */
TYPE(iq1, TILE_IQ1_BYTES, 8, 1, 2, 0, 9, 18)
WORDS(iq1)
{
    vi more = load_words(tile + 192, part);
    UNROLL
    for (int k = 0; k < 8; k++) {
        vi x = load_words(tile + 256 + 128 * j + 64 * (k / 4), part);
        w[k] = OR_IF_BIT(bits(x, 2 * (k % 4) - 3, 0x18), spread_byte(more, k / 2), j, 2);
    }
}
SCALES_APART(iq1)
{
    odd_scales(tile, part, 8, s);
}

/* The codes of 2 bits of 32 columns. */
ALWAYS_INLINE void pairs_32(const uint8_t *at, int part, vi w[8])
{
    UNROLL
    for (int k = 0; k < 8; k++)
        w[k] = bits(load_words(at + 64 * (k / 4), part), 2 * (k % 4), 3);
}

TYPE(tq2, TILE_TQ2_BYTES, 8, 1, 1, 0, 1, 3)
WORDS(tq2)
{
    pairs_32(tile + 64 + 128 * j, part, w);
}
SCALES(tq2)
{
    UNROLL
    for (int j = 0; j < 8; j++)
        s->scale[j] = load_floats(tile, part);
}

TYPE(q2_0, TILE_Q2_0_BYTES, 1, 1, 1, 0, 1, 3)
WORDS(q2_0)
{
    pairs_32(tile + 32, part, w);
}
SCALES(q2_0)
{
    s->scale[0] = load_halves(tile, part);
}

TYPE(nvfp4, TILE_NVFP4_BYTES, 1, 1, 2, 0, 12, 24)
WORDS(nvfp4)
{
    table_32(tile + 64, part, fp4_values, OFFSET_nvfp4, w);
}
SCALES(nvfp4)
{
    s->scale[0] = load_halves(tile, part);
    s->scale[1] = load_halves(tile + 32, part);
}
