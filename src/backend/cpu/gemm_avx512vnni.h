/*
 * Products of decoded panels: 32 rows by 6 tokens of int8 activations, kept in registers.
 *
 * A decoded panel is a sequence of groups of 32 columns, each
 *
 *     512 bytes     unsigned quants, 8 vectors of 16 rows x 4 columns
 *     64 or 128     float[16] scales of the rows times 2^-60, one or two
 *     64 or 128     float[16] mins, of the types that have them
 *
 * `extra` has a number for each token and scale: the 32-bit start of the integer sum that takes off
 * the quants' offset, or, for types with mins, minus the float sum of the activations. `exponents`
 * has one for each token and group, 60 larger than that of the activations' scale, from bit 23 on:
 * so none is negative.
 *
 * Of int16 weights a group is 1024 bytes, 16 vectors of 16 rows x 2 columns, and 64 of scales; the
 * activations are int16, too, and `extra` is not read. No sum exceeds 31 bits if no number has more
 * than 13 besides its sign.
 *
 * Of bytes with one scale for 256 columns, 8 groups, or what the row ends with, are 512 bytes each
 * and then 64 of scales; `extra` takes off their offset. Products have no scale to be multiplied
 * with but once for all 8.
 */
#ifndef LACE_BACKEND_CPU_GEMM_AVX512VNNI_H
#define LACE_BACKEND_CPU_GEMM_AVX512VNNI_H

#include <stddef.h>
#include <stdint.h>

enum {
    GEMM_TOKENS = 6,
    GEMM_ROWS = 32,
    GEMM_FETCHED = 256,
    GEMM_EXPONENT_LEAST = (127 - 60) << 23
};

#define GEMM_SCALE_FACTOR (1.0f / (float)(1ull << 60))

typedef struct gemm_args {
    const uint8_t *w[2];      /* two decoded panels of 16 rows */
    const uint8_t *x;         /* the first of 6 rows of ACT_Q8 */
    uint64_t x_stride;        /* bytes */
    const uint8_t *exponents; /* of the first token: [n_groups] */
    const uint8_t *extra;     /* of the first token: [n_groups, scales in a group] */
    uint64_t stride;          /* of both, bytes */
    int64_t n_groups;
    float *out; /* [6, 32] */
    /* Fetched meanwhile: GEMM_FETCHED bytes with each group; of words `next_step` with every two
     * columns; nothing of bytes with one scale for 8 groups. If nothing is wanted, some memory that
     * is mapped: looking for what is not takes time. */
    const uint8_t *next;
    int64_t next_step;
} gemm_args;

/* By [has mins][scales in a group - 1]. */
typedef void (*gemm_fn)(const gemm_args *a);
extern const gemm_fn gemm_avx512vnni[2][2];
extern const gemm_fn gemm_words_avx512vnni, gemm_bytes_avx512vnni;

#endif
