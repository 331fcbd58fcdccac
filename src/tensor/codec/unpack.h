/*
 * Decoding rows of blocks into floats: the reference that every faster decoder is compared with.
 *
 * The order of the float operations is ggml's, so that results are equal to the last bit.
 */
#ifndef LACE_TENSOR_CODEC_UNPACK_H
#define LACE_TENSOR_CODEC_UNPACK_H

#include "tensor/blocks.h"
#include "tensor/dtype.h"

#include <string.h>

/* blocks: n_values values in whole blocks, at any address. out: [n_values] */
typedef void (*unpack_fn)(const void *blocks, int64_t n_values, float *out);

/* By type; NULL for the types that kernels do not compute with (integers, F64 and others). */
extern const unpack_fn unpack_ref[DTYPE_COUNT];

/* The same for a type known to be in the table. */
void unpack_row(dtype type, const void *blocks, int64_t n_values, float *out);

/* The functions of the table. */
void unpack_f32_ref(const void *blocks, int64_t n_values, float *out);
void unpack_f16_ref(const void *blocks, int64_t n_values, float *out);
void unpack_bf16_ref(const void *blocks, int64_t n_values, float *out);
void unpack_f8_e4m3_ref(const void *blocks, int64_t n_values, float *out);
void unpack_f8_e5m2_ref(const void *blocks, int64_t n_values, float *out);
void unpack_q4_0_ref(const void *blocks, int64_t n_values, float *out);
void unpack_q4_1_ref(const void *blocks, int64_t n_values, float *out);
void unpack_q5_0_ref(const void *blocks, int64_t n_values, float *out);
void unpack_q5_1_ref(const void *blocks, int64_t n_values, float *out);
void unpack_q8_0_ref(const void *blocks, int64_t n_values, float *out);
void unpack_q1_0_ref(const void *blocks, int64_t n_values, float *out);
void unpack_q2_0_ref(const void *blocks, int64_t n_values, float *out);
void unpack_mxfp4_ref(const void *blocks, int64_t n_values, float *out);
void unpack_nvfp4_ref(const void *blocks, int64_t n_values, float *out);
void unpack_tq1_0_ref(const void *blocks, int64_t n_values, float *out);
void unpack_tq2_0_ref(const void *blocks, int64_t n_values, float *out);
void unpack_q2_k_ref(const void *blocks, int64_t n_values, float *out);
void unpack_q3_k_ref(const void *blocks, int64_t n_values, float *out);
void unpack_q4_k_ref(const void *blocks, int64_t n_values, float *out);
void unpack_q5_k_ref(const void *blocks, int64_t n_values, float *out);
void unpack_q6_k_ref(const void *blocks, int64_t n_values, float *out);
void unpack_iq2_xxs_ref(const void *blocks, int64_t n_values, float *out);
void unpack_iq2_xs_ref(const void *blocks, int64_t n_values, float *out);
void unpack_iq2_s_ref(const void *blocks, int64_t n_values, float *out);
void unpack_iq3_xxs_ref(const void *blocks, int64_t n_values, float *out);
void unpack_iq3_s_ref(const void *blocks, int64_t n_values, float *out);
void unpack_iq1_s_ref(const void *blocks, int64_t n_values, float *out);
void unpack_iq1_m_ref(const void *blocks, int64_t n_values, float *out);
void unpack_iq4_nl_ref(const void *blocks, int64_t n_values, float *out);
void unpack_iq4_xs_ref(const void *blocks, int64_t n_values, float *out);
void unpack_s2_ref(const void *blocks, int64_t n_values, float *out);
void unpack_s3_ref(const void *blocks, int64_t n_values, float *out);
void unpack_s4_ref(const void *blocks, int64_t n_values, float *out);
void unpack_s5_ref(const void *blocks, int64_t n_values, float *out);
void unpack_s6_ref(const void *blocks, int64_t n_values, float *out);
void unpack_s8_ref(const void *blocks, int64_t n_values, float *out);
void unpack_t2_ref(const void *blocks, int64_t n_values, float *out);
void unpack_t3_ref(const void *blocks, int64_t n_values, float *out);
void unpack_t4_ref(const void *blocks, int64_t n_values, float *out);
void unpack_t5_ref(const void *blocks, int64_t n_values, float *out);

/*
 * For the files that define these functions: the loop over a row around a static function
 * unpack_block_TYPE(const block_TYPE *b, float *out). It copies each block, because a file may have
 * put it at an odd address; compilers turn the copy into plain loads.
 */
#define UNPACK_ROWS(type, id)                                                                      \
    void unpack_##type##_ref(const void *blocks, int64_t n_values, float *out)                     \
    {                                                                                              \
        assert(n_values % BLOCK_VALUES_##id == 0);                                                 \
        const uint8_t *at = (const uint8_t *)blocks;                                               \
        for (int64_t i = 0; i < n_values; i += BLOCK_VALUES_##id, at += BLOCK_BYTES_##id) {        \
            block_##type b;                                                                        \
            memcpy(&b, at, sizeof b);                                                              \
            unpack_block_##type(&b, out + i);                                                      \
        }                                                                                          \
    }

#endif
