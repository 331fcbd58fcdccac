/* Decoding rows of the plain types, the small blocks, FP4 and the ternary types; and the table. */
#include "tensor/codec/unpack.h"

#include "base/bytes.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"

/* ---- Plain numbers --------------------------------------------------------------------------- */

void unpack_f32_ref(const void *blocks, int64_t n_values, float *out)
{
    memcpy(out, blocks, (size_t)n_values * sizeof(float));
}

void unpack_f16_ref(const void *blocks, int64_t n_values, float *out)
{
    const uint8_t *at = blocks;
    for (int64_t i = 0; i < n_values; i++)
        out[i] = f16_to_f32(load_u16(at + 2 * i));
}

void unpack_bf16_ref(const void *blocks, int64_t n_values, float *out)
{
    const uint8_t *at = blocks;
    for (int64_t i = 0; i < n_values; i++)
        out[i] = bf16_to_f32(load_u16(at + 2 * i));
}

void unpack_f8_e4m3_ref(const void *blocks, int64_t n_values, float *out)
{
    const uint8_t *at = blocks;
    for (int64_t i = 0; i < n_values; i++)
        out[i] = e4m3_to_f32(at[i]);
}

void unpack_f8_e5m2_ref(const void *blocks, int64_t n_values, float *out)
{
    const uint8_t *at = blocks;
    for (int64_t i = 0; i < n_values; i++)
        out[i] = e5m2_to_f32(at[i]);
}

/* ---- One scale for a small block ------------------------------------------------------------- */

static void unpack_block_q4_0(const block_q4_0 *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    for (int i = 0; i < 16; i++) {
        out[i] = (float)((b->quants[i] & 15) - 8) * scale;
        out[i + 16] = (float)((b->quants[i] >> 4) - 8) * scale;
    }
}
UNPACK_ROWS(q4_0, Q4_0)

static void unpack_block_q4_1(const block_q4_1 *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    float min = f16_to_f32(b->min);
    for (int i = 0; i < 16; i++) {
        out[i] = (float)(b->quants[i] & 15) * scale + min;
        out[i + 16] = (float)(b->quants[i] >> 4) * scale + min;
    }
}
UNPACK_ROWS(q4_1, Q4_1)

/* The 5-bit quants of Q5_0 and Q5_1, in the order of the values. */
static void join_q5(const uint8_t low[16], const uint8_t high[4], int quants[32])
{
    uint32_t fifth = load_u32(high);
    for (int i = 0; i < 16; i++) {
        quants[i] = (int)((low[i] & 15) | (fifth >> i & 1) << 4);
        quants[i + 16] = (int)((low[i] >> 4) | (fifth >> (i + 16) & 1) << 4);
    }
}

static void unpack_block_q5_0(const block_q5_0 *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    int quants[32];
    join_q5(b->low, b->high, quants);
    for (int i = 0; i < 32; i++)
        out[i] = (float)(quants[i] - 16) * scale;
}
UNPACK_ROWS(q5_0, Q5_0)

static void unpack_block_q5_1(const block_q5_1 *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    float min = f16_to_f32(b->min);
    int quants[32];
    join_q5(b->low, b->high, quants);
    for (int i = 0; i < 32; i++)
        out[i] = (float)quants[i] * scale + min;
}
UNPACK_ROWS(q5_1, Q5_1)

static void unpack_block_q8_0(const block_q8_0 *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    for (int i = 0; i < 32; i++)
        out[i] = (float)b->quants[i] * scale;
}
UNPACK_ROWS(q8_0, Q8_0)

static void unpack_block_q1_0(const block_q1_0 *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    for (int i = 0; i < 128; i++)
        out[i] = b->bits[i / 8] >> i % 8 & 1 ? scale : -scale;
}
UNPACK_ROWS(q1_0, Q1_0)

static void unpack_block_q2_0(const block_q2_0 *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    for (int i = 0; i < 64; i++)
        out[i] = (float)((b->quants[i / 4] >> 2 * (i % 4) & 3) - 1) * scale;
}
UNPACK_ROWS(q2_0, Q2_0)

/* ---- Four-bit floating point ----------------------------------------------------------------- */

static void unpack_block_mxfp4(const block_mxfp4 *b, float *out)
{
    float scale = e8m0_to_f32_half(b->exponent);
    for (int i = 0; i < 16; i++) {
        out[i] = (float)fp4_values[b->quants[i] & 15] * scale;
        out[i + 16] = (float)fp4_values[b->quants[i] >> 4] * scale;
    }
}
UNPACK_ROWS(mxfp4, MXFP4)

static void unpack_block_nvfp4(const block_nvfp4 *b, float *out)
{
    for (int group = 0; group < 4; group++, out += 16) {
        float scale = ue4m3_to_f32_half(b->scales[group]);
        const uint8_t *quants = b->quants + 8 * group;
        for (int i = 0; i < 8; i++) {
            out[i] = (float)fp4_values[quants[i] & 15] * scale;
            out[i + 8] = (float)fp4_values[quants[i] >> 4] * scale;
        }
    }
}
UNPACK_ROWS(nvfp4, NVFP4)

/* ---- Ternary --------------------------------------------------------------------------------- */

/* Digit n of each of n_bytes bytes, then digit n + 1: n_bytes * n_digits values. */
static void unpack_digits(const uint8_t *bytes, int n_bytes, int n_digits, float scale, float *out)
{
    unsigned power = 1;
    for (int n = 0; n < n_digits; n++, power *= 3)
        for (int i = 0; i < n_bytes; i++) {
            int digit = (uint8_t)(bytes[i] * power) * 3 >> 8;
            *out++ = (float)(digit - 1) * scale;
        }
}

static void unpack_block_tq1_0(const block_tq1_0 *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    unpack_digits(b->five, 32, 5, scale, out);
    unpack_digits(b->five + 32, 16, 5, scale, out + 160);
    unpack_digits(b->four, 4, 4, scale, out + 240);
}
UNPACK_ROWS(tq1_0, TQ1_0)

static void unpack_block_tq2_0(const block_tq2_0 *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    for (int i = 0; i < 256; i++) {
        int quant = b->quants[i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
        out[i] = (float)(quant - 1) * scale;
    }
}
UNPACK_ROWS(tq2_0, TQ2_0)

/* ---- The table ------------------------------------------------------------------------------- */

const unpack_fn unpack_ref[DTYPE_COUNT] = {
    [DTYPE_F32] = unpack_f32_ref,         [DTYPE_F16] = unpack_f16_ref,
    [DTYPE_BF16] = unpack_bf16_ref,       [DTYPE_Q4_0] = unpack_q4_0_ref,
    [DTYPE_Q4_1] = unpack_q4_1_ref,       [DTYPE_Q5_0] = unpack_q5_0_ref,
    [DTYPE_Q5_1] = unpack_q5_1_ref,       [DTYPE_Q8_0] = unpack_q8_0_ref,
    [DTYPE_Q1_0] = unpack_q1_0_ref,       [DTYPE_Q2_0] = unpack_q2_0_ref,
    [DTYPE_MXFP4] = unpack_mxfp4_ref,     [DTYPE_NVFP4] = unpack_nvfp4_ref,
    [DTYPE_TQ1_0] = unpack_tq1_0_ref,     [DTYPE_TQ2_0] = unpack_tq2_0_ref,
    [DTYPE_Q2_K] = unpack_q2_k_ref,       [DTYPE_Q3_K] = unpack_q3_k_ref,
    [DTYPE_Q4_K] = unpack_q4_k_ref,       [DTYPE_Q5_K] = unpack_q5_k_ref,
    [DTYPE_Q6_K] = unpack_q6_k_ref,       [DTYPE_IQ2_XXS] = unpack_iq2_xxs_ref,
    [DTYPE_IQ2_XS] = unpack_iq2_xs_ref,   [DTYPE_IQ2_S] = unpack_iq2_s_ref,
    [DTYPE_IQ3_XXS] = unpack_iq3_xxs_ref, [DTYPE_IQ3_S] = unpack_iq3_s_ref,
    [DTYPE_IQ1_S] = unpack_iq1_s_ref,     [DTYPE_IQ1_M] = unpack_iq1_m_ref,
    [DTYPE_IQ4_NL] = unpack_iq4_nl_ref,   [DTYPE_IQ4_XS] = unpack_iq4_xs_ref,
    [DTYPE_S2] = unpack_s2_ref,           [DTYPE_S3] = unpack_s3_ref,
    [DTYPE_S4] = unpack_s4_ref,           [DTYPE_S5] = unpack_s5_ref,
    [DTYPE_S6] = unpack_s6_ref,           [DTYPE_S8] = unpack_s8_ref,
    [DTYPE_T2] = unpack_t2_ref,           [DTYPE_T3] = unpack_t3_ref,
    [DTYPE_T4] = unpack_t4_ref,           [DTYPE_T5] = unpack_t5_ref,
    [DTYPE_F8_E4M3] = unpack_f8_e4m3_ref, [DTYPE_F8_E5M2] = unpack_f8_e5m2_ref,
};

void unpack_row(dtype type, const void *blocks, int64_t n_values, float *out)
{
    assert((unsigned)type < DTYPE_COUNT && unpack_ref[type]);
    unpack_ref[type](blocks, n_values, out);
}
