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
static const uint64_t rotate_signs[2] = {0x9e3779b97f4a7c15, 0xd1b54a32d192ed03};

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

static inline void rotate_flip(const float *x, float scale, float *out)
{
    for (int i = 0; i < ROTATE_VALUES; i++)
        out[i] = rotate_signs[i / 64] >> i % 64 & 1 ? -x[i] * scale : x[i] * scale;
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

#endif
