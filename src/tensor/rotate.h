/*
 * The rotation of lace's own types: signs, then the Walsh-Hadamard transform of 128 values, divided
 * by sqrt(128). It is orthogonal: products of rotated vectors are those of the vectors.
 *
 * Each stage adds and subtracts the halves and interleaves the results, so that it is the same
 * loop seven times, which compilers turn into vectors; after seven of them the order is the
 * natural one again.
 */
#ifndef LACE_TENSOR_ROTATE_H
#define LACE_TENSOR_ROTATE_H

#include <stdint.h>
#include <string.h>

enum { ROTATE_VALUES = 128 };

#define ROTATE_SCALE 0.08838834764831845f /* 1 / sqrt(128) */

/* Bit i % 64 of word i / 64: value i changes its sign. Any would do; these came from a die. */
#define ROTATE_WORD_0 0x9e3779b97f4a7c15u
#define ROTATE_WORD_1 0xd1b54a32d192ed03u

static inline void rotate_stage(const float *restrict x, float *restrict y)
{
    for (int i = 0; i < 64; i++) {
        y[2 * i] = x[i] + x[i + 64];
        y[2 * i + 1] = x[i] - x[i + 64];
    }
}

/* x -> y, neither signs nor scale. x is overwritten. */
static inline void rotate_transform(float *restrict x, float *restrict y)
{
    rotate_stage(x, y);
    rotate_stage(y, x);
    rotate_stage(x, y);
    rotate_stage(y, x);
    rotate_stage(x, y);
    rotate_stage(y, x);
    rotate_stage(x, y);
}

/* The same signs as bits of floats: testing bits one by one took most of the time. */
/* clang-format off */
#define ROTATE_SIGN(word, i) ((word) >> (i) & 1) << 31
#define ROTATE_SIGNS_8(word, i)                                                                    \
    ROTATE_SIGN(word, i), ROTATE_SIGN(word, i + 1), ROTATE_SIGN(word, i + 2),                      \
    ROTATE_SIGN(word, i + 3), ROTATE_SIGN(word, i + 4), ROTATE_SIGN(word, i + 5),                  \
    ROTATE_SIGN(word, i + 6), ROTATE_SIGN(word, i + 7)
#define ROTATE_SIGNS_64(word)                                                                      \
    ROTATE_SIGNS_8(word, 0), ROTATE_SIGNS_8(word, 8), ROTATE_SIGNS_8(word, 16),                    \
    ROTATE_SIGNS_8(word, 24), ROTATE_SIGNS_8(word, 32), ROTATE_SIGNS_8(word, 40),                  \
    ROTATE_SIGNS_8(word, 48), ROTATE_SIGNS_8(word, 56)
/* clang-format on */
static const uint32_t rotate_sign_bits[ROTATE_VALUES] = {ROTATE_SIGNS_64(ROTATE_WORD_0),
                                                         ROTATE_SIGNS_64(ROTATE_WORD_1)};
#undef ROTATE_SIGN
#undef ROTATE_SIGNS_8
#undef ROTATE_SIGNS_64

static inline void rotate_flip(const float *x, float scale, float *out)
{
    uint32_t bits[ROTATE_VALUES];
    for (int i = 0; i < ROTATE_VALUES; i++)
        out[i] = x[i] * scale;
    memcpy(bits, out, sizeof bits);
    for (int i = 0; i < ROTATE_VALUES; i++)
        bits[i] ^= rotate_sign_bits[i];
    memcpy(out, bits, sizeof bits);
}

/* out may be x. */
static inline void rotate_128(const float *x, float *out)
{
    float a[ROTATE_VALUES], b[ROTATE_VALUES];
    rotate_flip(x, ROTATE_SCALE, a);
    rotate_transform(a, b);
    memcpy(out, b, sizeof b);
}

static inline void unrotate_128(const float *x, float *out)
{
    float a[ROTATE_VALUES], b[ROTATE_VALUES];
    memcpy(a, x, sizeof a);
    rotate_transform(a, b);
    rotate_flip(b, ROTATE_SCALE, out);
}

/* One stage of a transform of n values, as rotate_stage. */
static inline void rotate_stage_of(const float *restrict x, int n, float *restrict y)
{
    for (int i = 0; i < n / 2; i++) {
        y[2 * i] = x[i] + x[i + n / 2];
        y[2 * i + 1] = x[i] - x[i + n / 2];
    }
}

/* The transform of 32, 64 or 128 values, divided by its length. */
static inline void rotate_transform_of(const float *x, int n, float *out)
{
    float a[ROTATE_VALUES], b[ROTATE_VALUES], *from = a, *to = b;
    memcpy(a, x, (size_t)n * sizeof *a);
    for (int i = 1; i < n; i *= 2) {
        rotate_stage_of(from, n, to);
        float *done = from;
        from = to;
        to = done;
    }
    const float scale = n == 32 ? 0.17677669529663687f : n == 64 ? 0.125f : ROTATE_SCALE;
    for (int i = 0; i < n; i++)
        out[i] = from[i] * scale;
}

static inline void rotate_flip_signs(float *x, int n)
{
    uint32_t bits[ROTATE_VALUES];
    memcpy(bits, x, (size_t)n * sizeof *x);
    for (int i = 0; i < n; i++)
        bits[i] ^= rotate_sign_bits[i];
    memcpy(x, bits, (size_t)n * sizeof *x);
}

/* 32, 64 or 128 values. out may be x. */
static inline void rotate_span(const float *x, int n, float *out)
{
    float signs[ROTATE_VALUES];
    memcpy(signs, x, (size_t)n * sizeof *x);
    rotate_flip_signs(signs, n);
    rotate_transform_of(signs, n, out);
}

static inline void unrotate_span(const float *x, int n, float *out)
{
    rotate_transform_of(x, n, out);
    rotate_flip_signs(out, n);
}

#endif
