/*
 * The kernels that are written once, in *_tmpl.h, and compiled for each CPU level: their names, and
 * the plain functions that they fall back to for odd shapes.
 */
#ifndef LACE_KERNELS_CPU_OPS_H
#define LACE_KERNELS_CPU_OPS_H

#include "kernels/ref/ref.h"

/* Attention works on this many queries and positions at once, in scratch of this size. */
enum { ATTEND_ROWS = 48, ATTEND_BLOCK = 64 };
static inline uint64_t attend_scratch_bytes(int32_t head_dim)
{
    return 4 * ATTEND_BLOCK * (ATTEND_ROWS + 2 * (uint64_t)head_dim);
}

#define OPS_DECLARE(level)                                                                         \
    void rms_norm_##level(const step *s, const batch *b, const worker *w);                         \
    void quantize_##level(const step *s, const batch *b, const worker *w);                         \
    void rotate_quantize_##level(const step *s, const batch *b, const worker *w);                  \
    void rms_norm_quantize_##level(const step *s, const batch *b, const worker *w);                \
    void add_##level(const step *s, const batch *b, const worker *w);                              \
    void glu_##level(const step *s, const batch *b, const worker *w);                              \
    void rope_##level(const step *s, const batch *b, const worker *w);                             \
    void kv_write_##level(const step *s, const batch *b, const worker *w);                         \
    void rope_kv_##level(const step *s, const batch *b, const worker *w);                          \
    void attend_##level(const step *s, const batch *b, const worker *w);                           \
    void glu_row_##level(glu_kind kind, const float *gate, const float *up, int64_t n, float *out)

OPS_DECLARE(avx2);
OPS_DECLARE(avx512);
OPS_DECLARE(neon);

#endif
