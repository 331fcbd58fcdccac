/*
 * The short floating-point formats, to and from float, in portable C.
 *
 *     f16    1 sign, 5 exponent, 10 mantissa bits     stored as uint16_t
 *     bf16   1 sign, 8 exponent,  7 mantissa bits     stored as uint16_t: the upper half of a float
 *     e8m0   8 exponent bits, a power of two          the scale of a block of MXFP4
 *     ue4m3  4 exponent, 3 mantissa bits, no sign     the scale of 16 values of NVFP4
 *     e4m3   1 sign, 4 exponent, 3 mantissa bits      stored as uint8_t; no infinity, up to 448
 *     e5m2   1 sign, 5 exponent, 2 mantissa bits      stored as uint8_t: the upper half of an f16
 *
 * To float every conversion is exact; from float it rounds to the nearest, ties to even. A NaN
 * stays a NaN of the same sign and becomes quiet, as the conversion instructions of processors do
 * it.
 */
#ifndef LACE_TENSOR_HALF_H
#define LACE_TENSOR_HALF_H

#include <stdint.h>
#include <string.h>

static inline float f32_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t f32_to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 31;
    uint32_t mantissa = h & 0x3ff;
    if (exponent == 0) /* zero, or subnormal: mantissa * 2^-24 is a normal float */
        return f32_from_bits(sign | f32_to_bits((float)mantissa * 0x1p-24f));
    if (exponent == 31)
        return f32_from_bits(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
    return f32_from_bits(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
}

static inline uint16_t f16_from_f32(float x)
{
    uint32_t bits = f32_to_bits(x);
    uint32_t sign = (bits >> 16) & 0x8000;
    uint32_t size = bits & 0x7fffffff;
    if (size > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | ((size >> 13) & 0x3ff));
    if (size >= 0x477ff000) /* 65520, halfway between the largest f16 and the next power of two */
        return (uint16_t)(sign | 0x7c00);
    if (size < 0x38800000) {
        /* Below 2^-14 the result is subnormal, a multiple of 2^-24. That is the last bit of a float
         * in [0.5, 1), so that the addition rounds as we need it. */
        return (uint16_t)(sign | (f32_to_bits(f32_from_bits(size) + 0.5f) - f32_to_bits(0.5f)));
    }
    size -= (127 - 15) << 23;
    return (uint16_t)(sign | (size + 0xfff + ((size >> 13) & 1)) >> 13);
}

static inline float bf16_to_f32(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    if ((bits & 0x7fffffff) > 0x7f800000)
        bits |= 0x400000;
    return f32_from_bits(bits);
}

static inline uint16_t bf16_from_f32(float x)
{
    uint32_t bits = f32_to_bits(x);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/*
 * Half the value of an e8m0 scale: 2^(e - 128). Half, because blocks of FP4 are decoded with a
 * table of doubled, whole values. The number 255, a NaN in the standard, counts as 2^127 as in
 * ggml.
 */
static inline float e8m0_to_f32_half(uint8_t e)
{
    return f32_from_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* Half the value of a ue4m3 scale, for the same reason. The NaN 0x7f counts as 0, as in ggml. */
static inline float ue4m3_to_f32_half(uint8_t s)
{
    uint32_t exponent = (s >> 3) & 15;
    uint32_t mantissa = s & 7;
    if (s == 0x7f)
        return 0;
    if (exponent == 0)
        return (float)mantissa * 0x1p-10f;
    return f32_from_bits((exponent + 127 - 7 - 1) << 23 | mantissa << 20);
}

/* Infinities gave way to more numbers: only 0x7f and 0xff are NaN. */
static inline float e4m3_to_f32(uint8_t h)
{
    uint32_t sign = (uint32_t)(h & 0x80) << 24;
    uint32_t size = h & 0x7f;
    if (size == 0x7f)
        return f32_from_bits(sign | 0x7fc00000);
    if (size < 8) /* zero, or subnormal */
        return f32_from_bits(sign | f32_to_bits((float)size * 0x1p-9f));
    return f32_from_bits(sign | ((size << 20) + ((127u - 7) << 23)));
}

static inline float e5m2_to_f32(uint8_t h)
{
    return f16_to_f32((uint16_t)(h << 8));
}

#endif
