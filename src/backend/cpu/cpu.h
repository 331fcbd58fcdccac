/* The CPU's kernels above the plain ones: who fills in which part of the table. */
#ifndef LACE_BACKEND_CPU_CPU_H
#define LACE_BACKEND_CPU_CPU_H

#include "backend/cpu/matmul_in_place.h"

/* Matrix products from tiles, one impl for each type; in matmul_*_tmpl.c. */
#define CPU_MATMULS_QUANT(X)                                                                       \
    X(Q4_0, q4_0)                                                                                  \
    X(Q4_1, q4_1)                                                                                  \
    X(Q5_0, q5_0)                                                                                  \
    X(Q5_1, q5_1)                                                                                  \
    X(Q8_0, q8_0)                                                                                  \
    X(IQ4_NL, iq4_nl)                                                                              \
    X(MXFP4, mxfp4)                                                                                \
    X(Q2_K, q2_k)                                                                                  \
    X(Q3_K, q3_k)                                                                                  \
    X(Q4_K, q4_k)                                                                                  \
    X(Q5_K, q5_k)                                                                                  \
    X(Q6_K, q6_k)                                                                                  \
    X(IQ4_XS, iq4_xs)

/* lace's own types, with rotated activations. */
#define CPU_MATMULS_LACE(X)                                                                        \
    X(S2, lace_s2)                                                                                 \
    X(S3, lace_s3) X(S4, lace_s4) X(S5, lace_s5) X(S6, lace_s6) X(S8, lace_s8)

/* Trellis types, with the same. */
#define CPU_MATMULS_TRELLIS(X) X(T2, lace_t2) X(T3, lace_t3) X(T4, lace_t4) X(T5, lace_t5)

/* Types that pack_iq.c packs anew; several share a form. */
#define CPU_MATMULS_IQ(X)                                                                          \
    X(IQ3_XXS, iq3_xxs)                                                                            \
    X(IQ3_S, iq3_s)                                                                                \
    X(IQ2_XXS, iq2)                                                                                \
    X(IQ2_XS, iq2)                                                                                 \
    X(IQ2_S, iq2)                                                                                  \
    X(IQ1_S, iq1)                                                                                  \
    X(IQ1_M, iq1) X(TQ1_0, tq2) X(TQ2_0, tq2) X(Q1_0, q2_0) X(Q2_0, q2_0) X(NVFP4, nvfp4)

#define CPU_MATMULS_FLOAT(X) X(F32, f32) X(F16, f16) X(BF16, bf16)

/* One that works in place and packs rows for matmul_TYPE_LEVEL; act_: the activations of both. */
#define CPU_IN_PLACE(id, type, level, act_)                                                        \
    static const matmul_impl in_place_##id##_##level = {                                           \
        .name = #type " " #level " in place",                                                      \
        .act = act_,                                                                               \
        .panels = &matmul_##type##_##level,                                                        \
        .rows = matmul_in_place_rows,                                                              \
    };

/* Both into the table. */
#define CPU_USE(table, id, type, level)                                                            \
    (table)->packed[DTYPE_##id] = &matmul_##type##_##level;                                        \
    (table)->in_place[DTYPE_##id] = &in_place_##id##_##level;

/* Sparse matrices; pack_sparse.c, matmul_sparse_tmpl.c, matmul_csr_tmpl.c. */
uint64_t matmul_sparse_packed_bytes(const uint8_t *blocks, int64_t n_rows);
void matmul_sparse_pack(dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols,
                        int64_t row_begin, int64_t row_end, uint8_t *out);
#if defined(__x86_64__)
extern const matmul_impl matmul_sparse_avx512vbmi2, matmul_sparse_avx2;
extern const matmul_impl matmul_sparse_rotated_avx512vbmi2, matmul_sparse_rotated_avx2;
extern const matmul_impl matmul_csr_avx512, matmul_csr_avx2;
#elif defined(__aarch64__)
extern const matmul_impl matmul_sparse_neon, matmul_sparse_rotated_neon;
#endif

#if defined(__x86_64__)
#define X(id, name)                                                                                \
    extern const matmul_impl matmul_##name##_avx512vnni, matmul_##name##_avx2vnni,                 \
        matmul_##name##_avx2;
CPU_MATMULS_QUANT(X)
CPU_MATMULS_LACE(X)
CPU_MATMULS_TRELLIS(X)
CPU_MATMULS_IQ(X)
#undef X
#define X(id, name) extern const matmul_impl matmul_##name##_avx512, matmul_##name##_avx2;
CPU_MATMULS_FLOAT(X)
#undef X
#define X(id, name) extern const matmul_impl matmul_##name##_avx512vbmi;
CPU_MATMULS_LACE(X)
CPU_MATMULS_IQ(X)
#undef X
extern const matmul_impl matmul_f16_avx512vnni, matmul_bf16_avx512vnni; /* in fixed point */
#elif defined(__aarch64__)
#define X(id, name)                                                                                \
    extern const matmul_impl matmul_##name##_i8mm, matmul_##name##_dotprod, matmul_##name##_neon;
CPU_MATMULS_QUANT(X)
CPU_MATMULS_LACE(X)
CPU_MATMULS_TRELLIS(X)
CPU_MATMULS_IQ(X)
#undef X
#define X(id, name) extern const matmul_impl matmul_##name##_neon;
CPU_MATMULS_FLOAT(X)
#undef X
#endif

#endif
