/*
 * int8 products as the GPU computes those of prompts (lace_model_options.fast_prompts): weights and
 * activations become bytes, each 256 columns of a row with a unit of their own; sums of 256 products
 * are whole numbers, and are added up in f32. The rules are those of backend/cuda/bytes_unpack.cuh and
 * bytes_common.cuh, operation by operation.
 */
#include "backend/ref/bytes_ref.h"

#include <math.h>
#include <string.h>

#include "base/numbers.h"
#include "tensor/half.h"
#include "tensor/levels.h"
#include "tensor/rotate.h"

enum { UNIT = 256, SIXTEENTHS = 16, BYTE_MOST = 127, BYTE_ZERO = 128 };

/* ---- Scales of a row ------------------------------------------------------------------------- */

/* A weight of group g of 16 columns is s[g] u + b[g] with u from 0 on. */
typedef struct levels {
    float s[SIXTEENTHS], b[SIXTEENTHS];
} levels;

static void fill(levels *l, int first, int n, float s, float b)
{
    for (int g = first; g < first + n; g++) {
        l->s[g] = s;
        l->b[g] = b;
    }
}

/* Where levels lie around zero: which one stands for it, and how far they go; 0: they do not. */
static void centre_of(dtype type, float *zero, float *far)
{
    *zero = type == DTYPE_Q4_0                                 ? 8
            : type == DTYPE_Q5_0                               ? 16
            : type == DTYPE_Q3_K                               ? 4
            : type == DTYPE_Q6_K                               ? 32
            : type == DTYPE_MXFP4                              ? 12
            : type == DTYPE_IQ4_NL || type == DTYPE_IQ4_XS     ? 127
            : type == DTYPE_Q8_0 || bytes_ref_is_rotated(type) ? 128
                                                               : 0;
    *far = bytes_ref_is_rotated(type) ? BYTE_MOST : *zero;
}

/* The largest level of the others. */
static float last_level(dtype type)
{
    return type == DTYPE_Q2_K ? 3 : type == DTYPE_Q5_1 || type == DTYPE_Q5_K ? 31 : 15;
}

static void read_k(const uint8_t scales[12], uint16_t d, uint16_t dmin, levels *l)
{
    for (int g = 0; g < 8; g++) {
        int s = g < 4 ? scales[g] & 63 : (scales[g + 4] & 15) | scales[g - 4] >> 6 << 4;
        int m = g < 4 ? scales[g + 4] & 63 : scales[g + 4] >> 4 | scales[g] >> 6 << 4;
        fill(l, 2 * g, 2, f16_to_f32(d) * (float)s, -(f16_to_f32(dmin) * (float)m));
    }
}

/* Of a block of 256 values. */
static void read_large(dtype type, const uint8_t *at, levels *l)
{
    const block_q2_k *q2 = (const void *)at;
    const block_q3_k *q3 = (const void *)at;
    const block_q4_k *q4 = (const void *)at;
    const block_q5_k *q5 = (const void *)at;
    const block_q6_k *q6 = (const void *)at;
    const block_iq4_xs *iq4 = (const void *)at;
    if (type == DTYPE_Q4_K)
        read_k(q4->scales, q4->scale, q4->min, l);
    else if (type == DTYPE_Q5_K)
        read_k(q5->scales, q5->scale, q5->min, l);
    for (int g = 0; g < SIXTEENTHS; g++) {
        if (type == DTYPE_Q2_K) {
            fill(l, g, 1, f16_to_f32(q2->scale) * (float)(q2->scales[g] & 15),
                 -(f16_to_f32(q2->min) * (float)(q2->scales[g] >> 4)));
        } else if (type == DTYPE_Q3_K) {
            int low = q3->scales[g % 8] >> 4 * (g / 8) & 15;
            int high = q3->scales[8 + g % 4] >> 2 * (g / 4) & 3;
            l->s[g] = f16_to_f32(q3->scale) * (float)((low | high << 4) - 32);
        } else if (type == DTYPE_Q6_K) {
            l->s[g] = f16_to_f32(q6->scale) * (float)q6->scales[g];
        } else if (type == DTYPE_IQ4_XS) {
            int low = iq4->scales_low[g / 4] >> 4 * (g / 2 % 2) & 15;
            int high = iq4->scales_high >> 2 * (g / 2) & 3;
            l->s[g] = f16_to_f32(iq4->scale) * (float)((low | high << 4) - 32);
        }
    }
}

/* Of a block of 32 or 128. */
static float read_small(dtype type, const uint8_t *at, float *b)
{
    uint16_t pair[2];
    memcpy(pair, at, type == DTYPE_Q4_1 || type == DTYPE_Q5_1 ? 4 : 1);
    if (bytes_ref_is_rotated(type))
        return s_scale_to_f32(at[0]);
    if (type == DTYPE_MXFP4)
        return e8m0_to_f32_half(at[0]);
    if (type == DTYPE_Q4_1 || type == DTYPE_Q5_1)
        *b = f16_to_f32(pair[1]);
    memcpy(pair, at, 2);
    return f16_to_f32(pair[0]);
}

/* Of up to 256 columns; groups that are missing are zeros. */
static void read_levels(dtype type, const uint8_t *blocks, int64_t n_cols, levels *l)
{
    const int each = (int)dtype_describe(type)->block_values;
    const uint64_t bytes = dtype_describe(type)->block_bytes;
    memset(l, 0, sizeof *l);
    if (each == UNIT) {
        read_large(type, blocks, l);
    } else {
        for (int i = 0; i < n_cols / each; i++) {
            float b = 0, s = read_small(type, blocks + bytes * (uint64_t)i, &b);
            fill(l, i * each / 16, each / 16, s, b);
        }
    }
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

bool bytes_ref_is_rotated(dtype type)
{
    return type == DTYPE_S2 || type == DTYPE_S3 || type == DTYPE_S4 || type == DTYPE_S5 ||
           type == DTYPE_S6 || type == DTYPE_S8;
}

bool bytes_ref_has(dtype type)
{
    static const dtype types[] = {DTYPE_Q4_0,  DTYPE_Q4_1,   DTYPE_Q5_0,  DTYPE_Q5_1, DTYPE_Q8_0,
                                  DTYPE_Q2_K,  DTYPE_Q3_K,   DTYPE_Q4_K,  DTYPE_Q5_K, DTYPE_Q6_K,
                                  DTYPE_MXFP4, DTYPE_IQ4_NL, DTYPE_IQ4_XS};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i] == type)
            return true;
    return bytes_ref_is_rotated(type);
}

static void rotate_row(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += ROTATE_VALUES)
        rotate_128(x + i, x + i);
}

/* Columns [0, n) of a row, n <= 256, to numbers of -128 to 127; their unit. */
static float weights_to_bytes(dtype type, const uint8_t *blocks, const float *values, int n,
                              int8_t *out)
{
    levels l;
    read_levels(type, blocks, n, &l);
    float zero, far, most = 0;
    centre_of(type, &zero, &far);
    for (int g = 0; g < SIXTEENTHS; g++) {
        if (zero > 0)
            l.b[g] = -(zero * l.s[g]);
        float end = zero > 0 ? far * l.s[g] : l.s[g] * last_level(type) + l.b[g];
        most = fmaxf(most, fabsf(end));
        if (zero == 0)
            most = fmaxf(most, fabsf(l.b[g]));
    }
    float inv = most > 1e-30f ? (float)BYTE_MOST / most : 0.0f;
    for (int i = 0; i < n; i++) {
        int g = i / 16;
        /* Which level it was: whole, but for the rounding of the product. */
        int u = l.s[g] != 0 ? (int)lrintf((values[i] - l.b[g]) / l.s[g]) : 0;
        int f = (int)lrintf(256 * (l.s[g] * inv));
        int c = (int)lrintf(256 * (l.b[g] * inv + 128.5f));
        out[i] = (int8_t)(((u * f + c) >> 8) - BYTE_ZERO);
    }
    return most > 1e-30f ? most * (1.0f / 127) : 0.0f;
}

typedef struct byte_units {
    float unit, shift; /* shift: what bytes of weights that are 128 too large add */
} byte_units;

static byte_units values_to_bytes(const float *x, int n, int8_t *out)
{
    float most = 0;
    int sum = 0;
    for (int i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[i]));
    float inv = most > 1e-30f ? (float)BYTE_MOST / most : 0.0f;
    for (int i = 0; i < n; i++) {
        out[i] = (int8_t)lrintf(x[i] * inv);
        sum += out[i];
    }
    float unit = most > 1e-30f ? most * (1.0f / 127) : 0.0f;
    return (byte_units){unit, (-128.0f * unit) * (float)sum};
}

/* ---- The product ----------------------------------------------------------------------------- */

/* Scratch: a row of weights as floats, its bytes, its units; of tokens bytes and units. */
static int64_t n_units(int64_t n_cols)
{
    return divide_up(n_cols, UNIT);
}

static uint64_t scratch_bytes(int64_t n_cols, int64_t n_tokens)
{
    uint64_t cols = (uint64_t)n_units(n_cols) * UNIT;
    return cols * 5 + (uint64_t)n_units(n_cols) * 4 +
           (uint64_t)n_tokens * (cols + (uint64_t)n_units(n_cols) * sizeof(byte_units)) + 64;
}

static void rows(const weight *w, int64_t row_begin, int64_t row_end, const uint8_t *x,
                 uint64_t x_stride, int64_t n_tokens, float *out, int64_t out_stride,
                 uint8_t *scratch)
{
    if (n_tokens < BYTES_REF_TOKENS) {
        matmul_rows_ref.rows(w, row_begin, row_end, x, x_stride, n_tokens, out, out_stride,
                             scratch);
        return;
    }
    const int64_t n = n_units(w->n_cols), cols = n * UNIT;
    const bool rotates = bytes_ref_is_rotated(w->type);
    float *values = (float *)(void *)scratch, *units = values + cols;
    byte_units *of = (byte_units *)(void *)(units + n);
    int8_t *row_bytes_at = (int8_t *)(of + n * n_tokens), *tokens = row_bytes_at + cols;
    for (int64_t t = 0; t < n_tokens; t++) {
        memset(values, 0, 4 * (size_t)cols);
        memcpy(values, x + (uint64_t)t * x_stride, 4 * (size_t)w->n_cols);
        if (rotates)
            rotate_row(values, w->n_cols);
        for (int64_t k = 0; k < n; k++)
            of[t * n + k] = values_to_bytes(values + k * UNIT, UNIT, tokens + t * cols + k * UNIT);
    }
    memset(row_bytes_at, 0, (size_t)cols);
    for (int64_t row = row_begin; row < row_end; row++) {
        const uint8_t *blocks = w->data + (uint64_t)row * row_bytes(w->type, w->n_cols);
        unpack_row(w->type, blocks, w->n_cols, values);
        if (rotates)
            rotate_row(values, w->n_cols);
        for (int64_t k = 0; k < n; k++) {
            int64_t here = min_i64(UNIT, w->n_cols - k * UNIT);
            units[k] = weights_to_bytes(w->type, blocks + row_bytes(w->type, k * UNIT),
                                        values + k * UNIT, (int)here, row_bytes_at + k * UNIT);
        }
        for (int64_t t = 0; t < n_tokens; t++) {
            float sum = 0;
            for (int64_t k = 0; k < n; k++) {
                const int8_t *a = row_bytes_at + k * UNIT, *b = tokens + t * cols + k * UNIT;
                int products = 0, bytes = 0;
                for (int i = 0; i < UNIT; i++) {
                    products += a[i] * b[i];
                    bytes += b[i];
                }
                const byte_units u = of[t * n + k];
                float some = fmaf((float)(products + BYTE_ZERO * bytes), u.unit, u.shift);
                sum = fmaf(some, units[k], sum);
            }
            out[t * out_stride + row - row_begin] = sum;
        }
    }
}

const matmul_impl matmul_bytes_ref = {
    .name = "ref bytes", .act = ACT_F32, .scratch_bytes = scratch_bytes, .rows = rows};
