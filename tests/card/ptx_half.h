/* Numbers of 16 bits, without branches, so that loops over lanes become vector code. */
#ifndef TESTS_CARD_PTX_HALF_H
#define TESTS_CARD_PTX_HALF_H

#include <stdint.h>
#include <string.h>

static inline float half_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t half_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Of the lower 16 bits. */
static inline float half_to_f32(uint32_t h)
{
    uint32_t rest = (h & 0x7FFF) << 13, exponent = rest & 0x0F800000;
    uint32_t normal = rest + (112u << 23), infinite = rest + (224u << 23);
    uint32_t small = half_bits((float)(int32_t)(h & 0x3FF) * 0x1p-24F);
    uint32_t bits = exponent == 0x0F800000 ? infinite : exponent == 0 ? small : normal;
    return half_float(bits | (h & 0x8000) << 16);
}

/* Rounded to the nearest, of two equally near to the even one. */
static inline uint32_t half_of(float x)
{
    uint32_t bits = half_bits(x), sign = bits >> 16 & 0x8000, size = bits & 0x7FFFFFFF;
    uint32_t normal = (size + 0xFFF + (size >> 13 & 1) - (112u << 23)) >> 13;
    /* The unit of numbers from 1/2 to 1 is 2^-24, as that of small numbers of 16 bits. */
    uint32_t small = half_bits(half_float(size) + 0.5F) - 0x3F000000;
    uint32_t h = size < 0x38800000 ? small : normal;
    h = size >= 0x477FF000 ? 0x7C00 : h;
    return size > 0x7F800000 ? 0x7FFF : h | sign;
}

/* x * y + z rounded once: the sum is made in double, and what f32 loses of it stays as its last bit,
 * which f16 does not reach. */
static inline uint32_t half_fma(uint32_t x, uint32_t y, uint32_t z)
{
    double sum = (double)(half_to_f32(x) * half_to_f32(y)) + (double)half_to_f32(z);
    float near = (float)sum;
    double up = near < 0 ? -(double)near : (double)near, size = sum < 0 ? -sum : sum;
    uint32_t bits = half_bits(near), odd = (bits - (up > size)) | 1;
    return half_of(half_float(up == size || !(size <= 65504.0 * 2) ? bits : odd));
}

static inline uint32_t half_fma_2(uint32_t x, uint32_t y, uint32_t z)
{
    return half_fma(x, y, z) | half_fma(x >> 16, y >> 16, z >> 16) << 16;
}

static inline float bf16_to_f32(uint32_t h)
{
    return half_float(h << 16);
}

static inline uint32_t bf16_of(float x)
{
    uint32_t bits = half_bits(x);
    return (bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

/* The same for bf16. */
static inline uint32_t bf16_fma(uint32_t x, uint32_t y, uint32_t z)
{
    double sum = (double)bf16_to_f32(x) * (double)bf16_to_f32(y) + (double)bf16_to_f32(z);
    float near = (float)sum;
    double up = near < 0 ? -(double)near : (double)near, size = sum < 0 ? -sum : sum;
    uint32_t bits = half_bits(near), odd = (bits - (up > size)) | 1;
    return bf16_of(half_float(up == size || !(size <= 0x1p128) ? bits : odd)) & 0xFFFF;
}

static inline uint32_t bf16_fma_2(uint32_t x, uint32_t y, uint32_t z)
{
    return bf16_fma(x & 0xFFFF, y & 0xFFFF, z & 0xFFFF) | bf16_fma(x >> 16, y >> 16, z >> 16) << 16;
}

#endif
