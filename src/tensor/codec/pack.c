/* Encoding rows of floats as blocks, one block at a time. */
#include "tensor/codec/pack.h"

#include "tensor/blocks.h"
#include "tensor/half.h"

#include <float.h>
#include <math.h>

/* The loop over a row around pack_block_TYPE(const float *x, block_TYPE *b). */
#define PACK_ROWS(type, id)                                                                        \
    static void pack_##type##_ref(const float *x, int64_t n_values, void *blocks)                  \
    {                                                                                              \
        assert(n_values % BLOCK_VALUES_##id == 0);                                                 \
        uint8_t *at = (uint8_t *)blocks;                                                           \
        for (int64_t i = 0; i < n_values; i += BLOCK_VALUES_##id, at += BLOCK_BYTES_##id) {        \
            block_##type b;                                                                        \
            pack_block_##type(x + i, &b);                                                          \
            memcpy(at, &b, sizeof b);                                                              \
        }                                                                                          \
    }

/* Towards zero, within low ... high; a NaN becomes low. A plain cast has
 * no defined result there. */
static int truncate_to(float x, int low, int high)
{
    if (!(x > (float)low))
        return low;
    return x >= (float)high ? high : (int)x;
}

static float inverse(float x)
{
    return x != 0 ? 1.0f / x : 0.0f;
}

/* The value that is farthest from 0, the first of them. */
static float farthest(const float *x, int n)
{
    float result = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(result))
            result = x[i];
    return result;
}

static void range(const float *x, int n, float *min, float *max)
{
    *min = FLT_MAX;
    *max = -FLT_MAX;
    for (int i = 0; i < n; i++) {
        if (x[i] < *min)
            *min = x[i];
        if (x[i] > *max)
            *max = x[i];
    }
}

/* ---- Plain numbers --------------------------------------------------------------------------- */

static void pack_f32_ref(const float *x, int64_t n_values, void *blocks)
{
    memcpy(blocks, x, (size_t)n_values * sizeof(float));
}

static void pack_f16_ref(const float *x, int64_t n_values, void *blocks)
{
    uint8_t *at = blocks;
    for (int64_t i = 0; i < n_values; i++) {
        uint16_t h = f16_from_f32(x[i]);
        memcpy(at + 2 * i, &h, sizeof h);
    }
}

static void pack_bf16_ref(const float *x, int64_t n_values, void *blocks)
{
    uint8_t *at = blocks;
    for (int64_t i = 0; i < n_values; i++) {
        uint16_t h = bf16_from_f32(x[i]);
        memcpy(at + 2 * i, &h, sizeof h);
    }
}

/* ---- One scale for a small block ------------------------------------------------------------- */

static void pack_block_q8_0(const float *x, block_q8_0 *b)
{
    float scale = fabsf(farthest(x, 32)) / 127;
    float per_value = inverse(scale);
    b->scale = f16_from_f32(scale);
    for (int i = 0; i < 32; i++)
        b->quants[i] = (int8_t)truncate_to(roundf(x[i] * per_value), -128, 127);
}
PACK_ROWS(q8_0, Q8_0)

/*
 * Signed quants have one more value below 0 than above. The scale takes the sign that puts the
 * value farthest from 0 there. Adding the middle and a half, then truncating, rounds.
 */
static void pack_block_q4_0(const float *x, block_q4_0 *b)
{
    float scale = farthest(x, 32) / -8;
    float per_value = inverse(scale);
    b->scale = f16_from_f32(scale);
    for (int i = 0; i < 16; i++) {
        int first = truncate_to(x[i] * per_value + 8.5f, 0, 15);
        int second = truncate_to(x[i + 16] * per_value + 8.5f, 0, 15);
        b->quants[i] = (uint8_t)(first | second << 4);
    }
}
PACK_ROWS(q4_0, Q4_0)

static void pack_block_q4_1(const float *x, block_q4_1 *b)
{
    float min, max;
    range(x, 32, &min, &max);
    float scale = (max - min) / 15;
    float per_value = inverse(scale);
    b->scale = f16_from_f32(scale);
    b->min = f16_from_f32(min);
    for (int i = 0; i < 16; i++) {
        int first = truncate_to((x[i] - min) * per_value + 0.5f, 0, 15);
        int second = truncate_to((x[i + 16] - min) * per_value + 0.5f, 0, 15);
        b->quants[i] = (uint8_t)(first | second << 4);
    }
}
PACK_ROWS(q4_1, Q4_1)

/* Value i of 32 has the quant q of 5 bits; high and low are zero before. */
static void put_q5(int i, int q, uint8_t high[4], uint8_t low[16])
{
    low[i % 16] |= (uint8_t)((q & 15) << 4 * (i / 16));
    high[i / 8] |= (uint8_t)((q >> 4) << i % 8);
}

static void pack_block_q5_0(const float *x, block_q5_0 *b)
{
    float scale = farthest(x, 32) / -16;
    float per_value = inverse(scale);
    *b = (block_q5_0){.scale = f16_from_f32(scale)};
    for (int i = 0; i < 32; i++)
        put_q5(i, truncate_to(x[i] * per_value + 16.5f, 0, 31), b->high, b->low);
}
PACK_ROWS(q5_0, Q5_0)

static void pack_block_q5_1(const float *x, block_q5_1 *b)
{
    float min, max;
    range(x, 32, &min, &max);
    float scale = (max - min) / 31;
    float per_value = inverse(scale);
    *b = (block_q5_1){.scale = f16_from_f32(scale), .min = f16_from_f32(min)};
    for (int i = 0; i < 32; i++)
        put_q5(i, truncate_to((x[i] - min) * per_value + 0.5f, 0, 31), b->high, b->low);
}
PACK_ROWS(q5_1, Q5_1)

/* ---- 256 values with quantized scales -------------------------------------------------------- */

/* The 6-bit scale and min of a group of Q4_K; scales is zero before. */
static void put_scale_min(uint8_t scales[12], int group, int scale, int min)
{
    if (group < 4) {
        scales[group] |= (uint8_t)scale;
        scales[group + 4] |= (uint8_t)min;
    } else {
        scales[group + 4] = (uint8_t)((scale & 15) | (min & 15) << 4);
        scales[group - 4] |= (uint8_t)(scale >> 4 << 6);
        scales[group] |= (uint8_t)(min >> 4 << 6);
    }
}

/* Each group of 32 goes from its min (at most 0, as mins are subtracted) to its max in 15 steps. */
static void pack_block_q4_k(const float *x, block_q4_k *b)
{
    float steps[8], mins[8];
    for (int group = 0; group < 8; group++) {
        float min, max;
        range(x + 32 * group, 32, &min, &max);
        mins[group] = min < 0 ? -min : 0;
        steps[group] = max > -mins[group] ? (max + mins[group]) / 15 : 0;
    }
    *b = (block_q4_k){.scale = f16_from_f32(farthest(steps, 8) / 63),
                      .min = f16_from_f32(farthest(mins, 8) / 63)};
    float scale = f16_to_f32(b->scale);
    float min = f16_to_f32(b->min);
    float per_step = inverse(scale);
    float per_min = inverse(min);
    for (int group = 0; group < 8; group++) {
        int s = truncate_to(steps[group] * per_step + 0.5f, 0, 63);
        int m = truncate_to(mins[group] * per_min + 0.5f, 0, 63);
        put_scale_min(b->scales, group, s, m);
        float per_value = inverse(scale * (float)s);
        float group_min = min * (float)m;
        for (int i = 0; i < 32; i++) {
            int q = truncate_to((x[32 * group + i] + group_min) * per_value + 0.5f, 0, 15);
            b->quants[group / 2 * 32 + i] |= (uint8_t)(q << 4 * (group % 2));
        }
    }
}
PACK_ROWS(q4_k, Q4_K)

/* Each group of 16 has its value farthest from 0 at the quant -32. */
static void pack_block_q6_k(const float *x, block_q6_k *b)
{
    float steps[16];
    for (int group = 0; group < 16; group++)
        steps[group] = farthest(x + 16 * group, 16) / -32;
    *b = (block_q6_k){.scale = f16_from_f32(fabsf(farthest(steps, 16)) / 127)};
    float scale = f16_to_f32(b->scale);
    float per_step = inverse(scale);
    for (int i = 0; i < 256; i++) {
        int group = i / 16;
        int half = i / 128;
        int s = truncate_to(roundf(steps[group] * per_step), -127, 127);
        int q = truncate_to(x[i] * inverse(scale * (float)s) + 32.5f, 0, 63);
        b->scales[group] = (int8_t)s;
        b->low[64 * half + i % 64] |= (uint8_t)((q & 15) << 4 * (i / 64 % 2));
        b->high[32 * half + i % 32] |= (uint8_t)((q >> 4) << 2 * (i / 32 % 4));
    }
}
PACK_ROWS(q6_k, Q6_K)

/* ---- The table ------------------------------------------------------------------------------- */

const pack_fn pack_ref[DTYPE_COUNT] = {
    [DTYPE_F32] = pack_f32_ref,   [DTYPE_F16] = pack_f16_ref,   [DTYPE_BF16] = pack_bf16_ref,
    [DTYPE_Q8_0] = pack_q8_0_ref, [DTYPE_Q4_0] = pack_q4_0_ref, [DTYPE_Q4_1] = pack_q4_1_ref,
    [DTYPE_Q5_0] = pack_q5_0_ref, [DTYPE_Q5_1] = pack_q5_1_ref, [DTYPE_Q4_K] = pack_q4_k_ref,
    [DTYPE_Q6_K] = pack_q6_k_ref,
};

void pack_row(dtype type, const float *x, int64_t n_values, void *blocks)
{
    assert((unsigned)type < DTYPE_COUNT && pack_ref[type]);
    pack_ref[type](x, n_values, blocks);
}
