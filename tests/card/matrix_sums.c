/* Tiles of sums, and the values of packed numbers. */
#include "matrix_sums.h"

#include <string.h>

/* Compiled once more for processors with wider registers. Those of clang 14 do not link. */
#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__) &&                            \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE
#endif

/* What a word of sums is worth, and back. */
#define BITS_OF(x) bits_of((float)(x))
#define SAME(bits) (bits)

/* The columns of a row in a register of the processor, or in a few. */
typedef double floats_of_row __attribute__((vector_size(64)));
typedef uint32_t wholes_of_row __attribute__((vector_size(32)));

/* Sums lie in the order of rows, which is that of lanes: column 2 c + i of row r is number
 * 2 (4 r + c) + i. Eight rows at once: as many sums as stay in registers. */
#define ADD_PRODUCTS(type, of_row, value, bits)                                                    \
    type sums[MATRIX_ROWS * MATRIX_COLS];                                                          \
    for (int half = 0; half < 2; half++)                                                           \
        for (int lane = 0; lane < WARP_LANES; lane++)                                              \
            for (int i = 0; i < 2; i++)                                                            \
                sums[64 * half + 2 * lane + i] = c ? value(c[2 * half + i][lane]) : 0;             \
    for (int row = 0; row < MATRIX_ROWS; row += 8) {                                               \
        of_row s[8], y;                                                                            \
        memcpy(s, sums + row * MATRIX_COLS, sizeof s);                                             \
        for (int at = 0; at < k; at++) {                                                           \
            memcpy(&y, b + at * MATRIX_COLS, sizeof y);                                            \
            for (int r = 0; r < 8; r++)                                                            \
                s[r] += a[(row + r) * k + at] * y;                                                 \
        }                                                                                          \
        memcpy(sums + row * MATRIX_COLS, s, sizeof s);                                             \
    }                                                                                              \
    for (int half = 0; half < 2; half++)                                                           \
        for (int lane = 0; lane < WARP_LANES; lane++)                                              \
            for (int i = 0; i < 2; i++)                                                            \
                d[2 * half + i][lane] = bits(sums[64 * half + 2 * lane + i]);

#define TURN                                                                                       \
    for (int at = 0; at < k; at += 8)                                                              \
        for (int i = 0; i < 8; i++)                                                                \
            for (int j = 0; j < 8; j++)                                                            \
                to[(at + i) * MATRIX_COLS + j] = from[j * k + at + i];

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

WIDE void matrix_tile_floats(int k, const double *a, const double *b, uint32_t *const *c,
                             uint32_t *const *d){
    ADD_PRODUCTS(double, floats_of_row, float_of, BITS_OF)}

WIDE void matrix_tile_wholes(int k, const uint32_t *a, const uint32_t *b, uint32_t *const *c,
                             uint32_t *const *d){ADD_PRODUCTS(uint32_t, wholes_of_row, SAME, SAME)}

WIDE void matrix_turn_floats(int k, const double *restrict from, double *restrict to){TURN}

WIDE void matrix_turn_wholes(int k, const uint32_t *restrict from, uint32_t *restrict to)
{
    TURN
}

bool matrix_is_bytes(matrix_type t)
{
    return t == MATRIX_S8 || t == MATRIX_U8;
}

float float_of_bits(uint32_t bits)
{
    return float_of(bits);
}

uint32_t bits_of_float(float x)
{
    return bits_of(x);
}

/* Without branches, so that it is done for many at once. */
static inline float value_of_f16(uint16_t h)
{
    const uint32_t size = h & 0x7fffu, sign = (uint32_t)(h & 0x8000) << 16;
    const uint32_t normal = (size << 13) + (112u << 23); /* another bias of the exponent */
    /* Small ones have no leading 1: it is put there, and taken away again. */
    const uint32_t small = bits_of(float_of((size << 13) + (113u << 23)) - float_of(113u << 23));
    const uint32_t large = normal + (112u << 23); /* infinities and what is no number */
    const uint32_t bits = size < 0x400 ? small : size >= 0x7c00 ? large : normal;
    return float_of(bits | sign);
}

WIDE void matrix_floats(matrix_type t, int n, const uint16_t *restrict from, double *restrict out)
{
    if (t == MATRIX_F16)
        for (int i = 0; i < n; i++)
            out[i] = value_of_f16(from[i]);
    else
        for (int i = 0; i < n; i++)
            out[i] = float_of((uint32_t)from[i] << 16);
}

WIDE void matrix_wholes(matrix_type t, int n, const uint8_t *restrict from, uint32_t *restrict out)
{
    if (t == MATRIX_S8)
        for (int i = 0; i < n; i++)
            out[i] = (uint32_t)(int8_t)from[i];
    else
        for (int i = 0; i < n; i++)
            out[i] = from[i];
}
