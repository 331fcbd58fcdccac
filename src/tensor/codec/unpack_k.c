/* Decoding rows of the K types: blocks of 256 values whose groups have quantized scales. */
#include "tensor/codec/unpack.h"

#include "tensor/half.h"

/* The 2 bits of value i where they lie in four planes of 32 values, twice. */
static int plane_bits(const uint8_t quants[64], int i)
{
    return quants[i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
}

static void unpack_block_q2_k(const block_q2_k *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    float min = f16_to_f32(b->min);
    for (int group = 0; group < 16; group++) {
        float group_scale = scale * (float)(b->scales[group] & 15);
        float group_min = min * (float)(b->scales[group] >> 4);
        for (int i = 16 * group; i < 16 * group + 16; i++)
            out[i] = group_scale * (float)plane_bits(b->quants, i) - group_min;
    }
}
UNPACK_ROWS(q2_k, Q2_K)

static void unpack_block_q3_k(const block_q3_k *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    for (int group = 0; group < 16; group++) {
        int low = b->scales[group % 8] >> 4 * (group / 8) & 15;
        int high = b->scales[8 + group % 4] >> 2 * (group / 4) & 3;
        float group_scale = scale * (float)((low | high << 4) - 32);
        for (int i = 16 * group; i < 16 * group + 16; i++) {
            int third = b->high[i % 32] >> i / 32 & 1;
            out[i] = group_scale * (float)((plane_bits(b->low, i) | third << 2) - 4);
        }
    }
}
UNPACK_ROWS(q3_k, Q3_K)

/* The 6-bit scale and min of a group of Q4_K and Q5_K. */
static void group_scale_min(const uint8_t scales[12], int group, int *scale, int *min)
{
    if (group < 4) {
        *scale = scales[group] & 63;
        *min = scales[group + 4] & 63;
    } else {
        *scale = (scales[group + 4] & 15) | scales[group - 4] >> 6 << 4;
        *min = scales[group + 4] >> 4 | scales[group] >> 6 << 4;
    }
}

/* The values of Q4_K, and with a fifth bit in `high` those of Q5_K. */
static inline void unpack_groups(uint16_t block_scale, uint16_t block_min, const uint8_t scales[12],
                                 const uint8_t *low, const uint8_t *high, float *out)
{
    float scale = f16_to_f32(block_scale);
    float min = f16_to_f32(block_min);
    for (int group = 0; group < 8; group++) {
        int s, m;
        group_scale_min(scales, group, &s, &m);
        float group_scale = scale * (float)s;
        float group_min = min * (float)m;
        const uint8_t *quants = low + group / 2 * 32;
        for (int i = 0; i < 32; i++) {
            int quant = quants[i] >> 4 * (group % 2) & 15;
            if (high)
                quant |= (high[i] >> group & 1) << 4;
            out[32 * group + i] = group_scale * (float)quant - group_min;
        }
    }
}

static void unpack_block_q4_k(const block_q4_k *b, float *out)
{
    unpack_groups(b->scale, b->min, b->scales, b->quants, NULL, out);
}
UNPACK_ROWS(q4_k, Q4_K)

static void unpack_block_q5_k(const block_q5_k *b, float *out)
{
    unpack_groups(b->scale, b->min, b->scales, b->low, b->high, out);
}
UNPACK_ROWS(q5_k, Q5_K)

static void unpack_block_q6_k(const block_q6_k *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    for (int group = 0; group < 16; group++) {
        float group_scale = scale * (float)b->scales[group];
        int half = group / 8;
        for (int i = 16 * group; i < 16 * group + 16; i++) {
            int low = b->low[64 * half + i % 64] >> 4 * (i / 64 % 2) & 15;
            int high = b->high[32 * half + i % 32] >> 2 * (i / 32 % 4) & 3;
            out[i] = group_scale * (float)((low | high << 4) - 32);
        }
    }
}
UNPACK_ROWS(q6_k, Q6_K)
