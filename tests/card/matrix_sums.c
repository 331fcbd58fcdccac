/* Sums of products of 16 rows, and the values of packed numbers. */
#include "matrix_sums.h"

#include <assert.h>
#include <string.h>

/* Compiled once more for processors with wider registers. Those of clang 14 do not link. */
#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__) &&                            \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

/* Four rows and eight columns at once: as many sums as stay in registers. */
#define ADD_PRODUCTS(type)                                                                         \
    for (int j = 0; j < n; j += 8)                                                                 \
        for (int i = 0; i < MATRIX_ROWS; i += 4) {                                                 \
            type s[4][8];                                                                          \
            for (int r = 0; r < 4; r++)                                                            \
                memcpy(s[r], sums + (i + r) * n + j, sizeof s[r]);                                 \
            for (int d = 0; d < k; d++)                                                            \
                for (int r = 0; r < 4; r++) {                                                      \
                    const type x = a[(i + r) * k + d];                                             \
                    for (int c = 0; c < 8; c++)                                                    \
                        s[r][c] += x * b[d * n + j + c];                                           \
                }                                                                                  \
            for (int r = 0; r < 4; r++)                                                            \
                memcpy(sums + (i + r) * n + j, s[r], sizeof s[r]);                                 \
        }

WIDE void matrix_add_floats(int n, int k, const double *restrict a, const double *restrict b,
                            double *restrict sums)
{
    assert(n % 8 == 0);
    ADD_PRODUCTS(double)
}

WIDE void matrix_add_wholes(int n, int k, const uint32_t *restrict a, const uint32_t *restrict b,
                            uint32_t *restrict sums)
{
    assert(n % 8 == 0);
    ADD_PRODUCTS(uint32_t)
}

bool matrix_is_bytes(matrix_type t)
{
    return t == MATRIX_S8 || t == MATRIX_U8;
}

float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

uint32_t bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Without branches, so that it is done for many at once. */
static inline float value_of_f16(uint16_t h)
{
    const uint32_t size = h & 0x7fffu, sign = (uint32_t)(h & 0x8000) << 16;
    const uint32_t normal = (size << 13) + (112u << 23); /* another bias of the exponent */
    /* Small ones have no leading 1: it is put there, and taken away again. */
    const uint32_t small =
        bits_of_float(float_of_bits((size << 13) + (113u << 23)) - float_of_bits(113u << 23));
    const uint32_t large = normal + (112u << 23); /* infinities and what is no number */
    const uint32_t bits = size < 0x400 ? small : size >= 0x7c00 ? large : normal;
    return float_of_bits(bits | sign);
}

WIDE void matrix_floats(matrix_type t, int n, const uint16_t *restrict from, double *restrict out)
{
    if (t == MATRIX_F16)
        for (int i = 0; i < n; i++)
            out[i] = value_of_f16(from[i]);
    else
        for (int i = 0; i < n; i++)
            out[i] = float_of_bits((uint32_t)from[i] << 16);
}

void matrix_wholes(matrix_type t, int n, const uint8_t *from, uint32_t *out)
{
    if (t == MATRIX_S8)
        for (int i = 0; i < n; i++)
            out[i] = (uint32_t)(int8_t)from[i];
    else
        for (int i = 0; i < n; i++)
            out[i] = from[i];
}
