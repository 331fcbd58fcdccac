/*
 * Matrices in tiles (weight_tiles.h): the pieces of a row of one, by type.
 *
 *   0 to 7   4 bits of columns 32 p to 32 p + 31: byte b of word i has column 8 i + b in its low
 *            nibble, 8 i + 4 + b in its high one. Q8_0: pieces 0 to 15, 16 columns each, bytes
 *   8, 9     Q5_0, Q5_1, Q5_K: bit 4; word p of the two: byte b has column 4 n + b in bit n
 *   8 to 11  Q6_K: bits 4 and 5; two words for 32 columns, each for 16: byte b has column 4 n + b in
 *            bits 2 n
 *   behind   scales of 32 columns each as halves, then mins in a piece of their own; Q4_K, Q5_K: d,
 *            dmin and 12 bytes as in a file; Q6_K: 16 bytes, and behind all rows their d
 *
 * F16, BF16 and F32 are values in their order.
 */
layout(constant_id = 0) const uint TYPE = 0;
#define X(id, number) const uint DTYPE_##id = number;
#include "vulkan_types.def"
#undef X

const bool IS_FLOAT = TYPE <= 2;
const bool IS_BYTES = TYPE == 3;
const bool HAS_MIN = TYPE == 5 || TYPE == 7;
const bool HAS_FIFTH = TYPE == 6 || TYPE == 7 || TYPE == 13;
const bool IS_K = TYPE == 12 || TYPE == 13;
const bool IS_Q6 = TYPE == 14;

const uint SCALES = IS_BYTES ? 16 : IS_Q6 ? 12 : HAS_FIFTH ? 10 : 8;
const uint TILE_PIECES = TYPE == 0  ? 1024
                         : IS_FLOAT ? 512
                         : IS_Q6    ? 210
                                    : 16 * (SCALES + (HAS_MIN ? 2 : 1));
const uint NIBBLES = 0x0f0f0f0fu;

/* By integers: what devices make of the smallest halves differs. */
float half_value(uint h)
{
    uint e = (h >> 10) & 31, m = h & 1023;
    float size = e == 0 ? float(m) * 5.9604644775390625e-8 : uintBitsToFloat((e + 112) << 23 | m << 13);
    return (h & 0x8000) != 0 ? -size : size;
}

uint half_of(uvec4 v, uint i)
{
    return (v[i / 2] >> (16 * (i & 1))) & 0xffff;
}

/* What of a tile's row belongs to 32 columns. */
struct block_pieces {
    uvec4 q, more; /* more: the other half of bytes */
    uvec4 high;
    uvec4 scales, mins; /* mins: of Q6_K, the d of eight rows */
};

/* 32 numbers, four in a word, in their order; a weight is scale * number - low, for each 16. */
struct block_numbers {
    uvec4 a, b;
    vec2 scale, low;
};

/* The bits above the nibbles of columns 16 h to 16 h + 15, where they are added to them. */
uvec4 bits_above(uvec4 high, uint p, uint h)
{
    if (IS_Q6) {
        uint w = high[2 * (p & 1) + h];
        return (uvec4(w, w >> 2, w >> 4, w >> 6) & 0x03030303u) << 4;
    }
    uint w = high[p & 3] >> (4 * h);
    return (uvec4(w, w >> 1, w >> 2, w >> 3) & 0x01010101u) << 4;
}

/* The 6-bit scale and min of block p of Q4_K and Q5_K. */
uvec2 k_scale_and_min(uvec4 h, uint p)
{
    uint shift = 8 * (p & 3);
    if (p < 4)
        return uvec2(h.y >> shift, h.z >> shift) & 63;
    uint low = h.w >> shift;
    return uvec2((low & 15) | ((h.y >> (shift + 6)) & 3) << 4,
                 ((low >> 4) & 15) | ((h.z >> (shift + 6)) & 3) << 4);
}

/* p: which block of the tile, r: which row. */
block_numbers numbers_of(block_pieces s, uint p, uint r)
{
    block_numbers n;
    n.low = vec2(0.0);
    if (IS_BYTES) {
        n.a = s.q;
        n.b = s.more;
    } else {
        n.a = uvec4(s.q.x, s.q.x >> 4, s.q.y, s.q.y >> 4) & NIBBLES;
        n.b = uvec4(s.q.z, s.q.z >> 4, s.q.w, s.q.w >> 4) & NIBBLES;
    }
    if (IS_Q6 || HAS_FIFTH) {
        n.a |= bits_above(s.high, p, 0);
        n.b |= bits_above(s.high, p, 1);
    }
    if (IS_K) {
        uvec2 of = k_scale_and_min(s.scales, p);
        n.scale = vec2(half_value(s.scales.x & 0xffff) * float(of.x));
        n.low = vec2(half_value(s.scales.x >> 16) * float(of.y));
    } else if (IS_Q6) {
        int w = int(s.scales[p / 2] >> (16 * (p & 1)));
        n.scale = half_value(half_of(s.mins, r & 7)) *
                  vec2(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8));
        n.low = 32.0 * n.scale;
    } else {
        n.scale = vec2(half_value(half_of(s.scales, p)));
        if (HAS_MIN)
            n.low = vec2(-half_value(half_of(s.mins, p)));
        else if (!IS_BYTES)
            n.low = (HAS_FIFTH ? 16.0 : 8.0) * n.scale;
    }
    return n;
}

/* Those of 32 columns; at: the row's first piece in the tile. */
block_pieces block_at(pieces_at m, uint at, uint p, uint r)
{
    block_pieces s;
    s.q = m.v[at + 16 * (IS_BYTES ? 2 * p : p)];
    if (IS_BYTES)
        s.more = m.v[at + 32 * p + 16];
    if (IS_Q6 || HAS_FIFTH)
        s.high = m.v[at + 16 * (8 + (IS_Q6 ? p / 2 : p / 4))];
    s.scales = m.v[at + 16 * SCALES];
    if (HAS_MIN)
        s.mins = m.v[at + 16 * (SCALES + 1)];
    if (IS_Q6)
        s.mins = m.v[at - r + 208 + r / 8];
    return s;
}

/* Four numbers of a word as floats. */
vec4 floats_of(uint w)
{
    if (IS_BYTES)
        return vec4(bitfieldExtract(int(w), 0, 8), bitfieldExtract(int(w), 8, 8),
                    bitfieldExtract(int(w), 16, 8), int(w) >> 24);
    return vec4(w & 255, (w >> 8) & 255, (w >> 16) & 255, w >> 24);
}

/* Four values of a piece of F32, F16 or BF16, of which the latter have two fours. */
vec4 four_values(uvec4 piece, uint which)
{
    if (TYPE == 0)
        return uintBitsToFloat(piece);
    uvec2 w = which == 0 ? piece.xy : piece.zw;
    if (TYPE == 2)
        return uintBitsToFloat(uvec4(w.x << 16, w.x & 0xffff0000u, w.y << 16, w.y & 0xffff0000u));
    return vec4(half_value(w.x & 0xffff), half_value(w.x >> 16), half_value(w.y & 0xffff),
                half_value(w.y >> 16));
}

/* Columns 4 i to 4 i + 3 of a row of a tile of these. */
vec4 values_at(pieces_at m, uint at, uint i)
{
    return four_values(m.v[at + 16 * (TYPE == 0 ? i : i / 2)], i & 1);
}
