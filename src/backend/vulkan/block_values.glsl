/*
 * Single values out of a file's blocks, of the type that a pipeline is made for. Memory is read as
 * words of 4 bytes and halves are decoded by integers, so no device needs small types for it.
 */
layout(constant_id = 0) const uint TYPE = 0;

#define X(id, number) const uint DTYPE_##id = number;
#include "vulkan_types.def"
#undef X

uint byte_at(words_at base, uint i)
{
    return (base.v[i / 4] >> (8 * (i & 3))) & 255;
}

int signed_byte_at(words_at base, uint i)
{
    return bitfieldExtract(int(base.v[i / 4]), int(8 * (i & 3)), 8);
}

/* i is even. */
uint u16_at(words_at base, uint i)
{
    return (base.v[i / 4] >> (8 * (i & 2))) & 0xffff;
}

float float_of_half(uint h)
{
    uint exponent = (h >> 10) & 31, m = h & 1023;
    float y = exponent == 0   ? float(m) * 5.9604644775390625e-8
              : exponent < 31 ? uintBitsToFloat((exponent + 112) << 23 | m << 13)
                              : uintBitsToFloat(0x7f800000u | m << 13);
    return (h & 0x8000) != 0 ? -y : y;
}

/* To the nearest, halves to even. */
uint half_of_float(float x)
{
    uint bits = floatBitsToUint(x), sign = (bits >> 16) & 0x8000, f = bits & 0x7fffffffu;
    if (f > 0x7f800000u)
        return sign | 0x7e00;
    if (f >= 0x477ff000u)
        return sign | 0x7c00;
    if (f >= 0x38800000u)
        return sign | (f - 0x38000000u + 0xfff + ((f >> 13) & 1)) >> 13;
    uint exponent = f >> 23, m = (f & 0x7fffffu) | 0x800000u, shift = 126 - exponent;
    if (exponent < 102)
        return sign;
    return sign | (m + (1u << (shift - 1)) - 1 + ((m >> shift) & 1)) >> shift;
}

float half_at(words_at base, uint i)
{
    return float_of_half(u16_at(base, i));
}

float e8m0_half(uint e) /* 2^(e - 128) */
{
    return e < 2 ? uintBitsToFloat(0x00200000u << e) : uintBitsToFloat((e - 1) << 23);
}

/* A nibble of the types that halve 32 values. */
uint halved_nibble(words_at base, uint quants, uint i)
{
    uint q = byte_at(base, quants + (i & 15));
    return i < 16 ? q & 15 : q >> 4;
}

int iq4_value(uint q)
{
    const uint table[4] = uint[4](0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
    return bitfieldExtract(int(table[q / 4]), int(8 * (q & 3)), 8);
}

int fp4_value(uint q) /* doubled */
{
    const uint table[2] = uint[2](0x03020100u, 0x0c080604u);
    int v = int((table[(q & 7) / 4] >> (8 * (q & 3))) & 255);
    return (q & 8) != 0 ? -v : v;
}

/* The 6-bit scale and min of a group of Q4_K and Q5_K, whose scales begin at s. */
uvec2 k_scale_min(words_at base, uint s, uint g)
{
    if (g < 4)
        return uvec2(byte_at(base, s + g) & 63, byte_at(base, s + g + 4) & 63);
    uint low = byte_at(base, s + g + 4);
    return uvec2((low & 15) | (byte_at(base, s + g - 4) >> 6) << 4,
                 (low >> 4) | (byte_at(base, s + g) >> 6) << 4);
}

float k45_value(words_at base, uint b, uint i)
{
    uint group = i / 32;
    uvec2 s = k_scale_min(base, b + 4, group);
    uint quants = TYPE == DTYPE_Q5_K ? b + 48 : b + 16;
    uint q = (byte_at(base, quants + 32 * (i / 64) + i % 32) >> ((i & 32) != 0 ? 4 : 0)) & 15;
    if (TYPE == DTYPE_Q5_K)
        q |= ((byte_at(base, b + 16 + i % 32) >> group) & 1) << 4;
    return half_at(base, b) * float(s.x) * float(q) - half_at(base, b + 2) * float(s.y);
}

float q2_k_value(words_at base, uint b, uint i)
{
    uint s = byte_at(base, b + i / 16);
    uint q = (byte_at(base, b + 16 + 32 * (i / 128) + i % 32) >> (2 * (i % 128 / 32))) & 3;
    return half_at(base, b + 80) * float(s & 15) * float(q) -
           half_at(base, b + 82) * float(s >> 4);
}

float q3_k_value(words_at base, uint b, uint i)
{
    uint g = i / 16, s = b + 96;
    uint low = g < 8 ? byte_at(base, s + g) & 15 : byte_at(base, s + g - 8) >> 4;
    uint scale = low | ((byte_at(base, s + 8 + g % 4) >> (2 * (g / 4))) & 3) << 4;
    uint q = (byte_at(base, b + 32 + 32 * (i / 128) + i % 32) >> (2 * (i % 128 / 32))) & 3;
    q |= ((byte_at(base, b + i % 32) >> (i / 32)) & 1) << 2;
    return half_at(base, b + 108) * float(int(scale) - 32) * float(int(q) - 4);
}

float q6_k_value(words_at base, uint b, uint i)
{
    uint h = i / 128, m = i % 128;
    uint q = (byte_at(base, b + 64 * h + m % 64) >> ((m & 64) != 0 ? 4 : 0)) & 15;
    q |= ((byte_at(base, b + 128 + 32 * h + m % 32) >> (2 * (m / 32))) & 3) << 4;
    return half_at(base, b + 208) * float(signed_byte_at(base, b + 192 + i / 16)) *
           float(int(q) - 32);
}

float iq4_xs_value(words_at base, uint b, uint i)
{
    uint g = i / 32, low = (byte_at(base, b + 4 + g / 2) >> (4 * (g & 1))) & 15;
    uint scale = low | ((u16_at(base, b + 2) >> (2 * g)) & 3) << 4;
    uint q = halved_nibble(base, b + 8 + 16 * g, i % 32);
    return half_at(base, b) * float(int(scale) - 32) * float(iq4_value(q));
}

/* Value i of the row that begins at byte `at`. */
float block_value(words_at base, uint at, uint i)
{
    uint b = i % 32;
    switch (TYPE) {
    case DTYPE_F32:
        return uintBitsToFloat(base.v[at / 4 + i]);
    case DTYPE_F16:
        return half_at(base, at + 2 * i);
    case DTYPE_BF16:
        return uintBitsToFloat(u16_at(base, at + 2 * i) << 16);
    case DTYPE_Q8_0:
        at += i / 32 * 34;
        return half_at(base, at) * float(signed_byte_at(base, at + 2 + b));
    case DTYPE_Q4_0:
        at += i / 32 * 18;
        return half_at(base, at) * float(int(halved_nibble(base, at + 2, b)) - 8);
    case DTYPE_Q4_1:
        at += i / 32 * 20;
        return half_at(base, at) * float(halved_nibble(base, at + 4, b)) + half_at(base, at + 2);
    case DTYPE_Q5_0: {
        at += i / 32 * 22;
        uint q = halved_nibble(base, at + 6, b) |
                 ((byte_at(base, at + 2 + b / 8) >> (b & 7)) & 1) << 4;
        return half_at(base, at) * float(int(q) - 16);
    }
    case DTYPE_Q5_1: {
        at += i / 32 * 24;
        uint q = halved_nibble(base, at + 8, b) |
                 ((byte_at(base, at + 4 + b / 8) >> (b & 7)) & 1) << 4;
        return half_at(base, at) * float(q) + half_at(base, at + 2);
    }
    case DTYPE_IQ4_NL:
        at += i / 32 * 18;
        return half_at(base, at) * float(iq4_value(halved_nibble(base, at + 2, b)));
    case DTYPE_MXFP4:
        at += i / 32 * 17;
        return e8m0_half(byte_at(base, at)) * float(fp4_value(halved_nibble(base, at + 1, b)));
    case DTYPE_Q2_K:
        return q2_k_value(base, at + i / 256 * 84, i % 256);
    case DTYPE_Q3_K:
        return q3_k_value(base, at + i / 256 * 110, i % 256);
    case DTYPE_Q4_K:
        return k45_value(base, at + i / 256 * 144, i % 256);
    case DTYPE_Q5_K:
        return k45_value(base, at + i / 256 * 176, i % 256);
    case DTYPE_Q6_K:
        return q6_k_value(base, at + i / 256 * 210, i % 256);
    case DTYPE_IQ4_XS:
        return iq4_xs_value(base, at + i / 256 * 136, i % 256);
    default:
        return 0.0;
    }
}
