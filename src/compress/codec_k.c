/* Codecs of the K types: 256 values in groups whose scales are integers under a common one. */
#include <string.h>

#include "compress/codec.h"
#include "tensor/blocks.h"

static const codec_levels signed3 = {.n = 8, .first = -4};
static const codec_levels signed6 = {.n = 64, .first = -32};
static const codec_levels unsigned2 = {.n = 4};
static const codec_levels unsigned4 = {.n = 16};
static const codec_levels unsigned5 = {.n = 32};

/* ---- With mins: Q2_K, Q4_K, Q5_K ------------------------------------------------------------- */

static void fit_mins(const codec_levels *l, int group, int high, const float *x, const float *w,
                     codec_grid *out, int *integers, int *mins, uint16_t *scale, uint16_t *min)
{
    float wanted[CODEC_MAX_GROUPS], wanted_mins[CODEC_MAX_GROUPS];
    int n = 256 / group;
    *out = (codec_grid){.levels = l, .group = group};
    for (int i = 0; i < n; i++)
        wanted[i] =
            codec_search_scale_min(l, x + i * group, w + i * group, group, 0, &wanted_mins[i]);
    codec_join_scales_mins(x, w, n, high, wanted, wanted_mins, out, integers, mins, scale, min);
}

static void fit_q2_k(const float *x, const float *w, void *block, codec_grid *out)
{
    int integers[16], mins[16];
    block_q2_k b = {0};
    fit_mins(&unsigned2, 16, 15, x, w, out, integers, mins, &b.scale, &b.min);
    for (int i = 0; i < 16; i++)
        b.scales[i] = (uint8_t)(integers[i] | mins[i] << 4);
    memcpy(block, &b, sizeof b);
}

/* Two bits of 256 values, in planes as TQ2_0 draws them. */
static void put_planes(const uint8_t *q, uint8_t quants[64])
{
    for (int i = 0; i < 256; i++)
        quants[i / 128 * 32 + i % 32] |= (uint8_t)((q[i] & 3) << 2 * (i / 32 % 4));
}

static void put_q2_k(const uint8_t *q, void *block)
{
    put_planes(q, ((block_q2_k *)block)->quants);
}

static void put_six_bits(uint8_t scales[12], const int *integers, const int *mins)
{
    memset(scales, 0, 12);
    for (int i = 0; i < 8; i++) {
        if (i < 4) {
            scales[i] |= (uint8_t)integers[i];
            scales[i + 4] |= (uint8_t)mins[i];
        } else {
            scales[i + 4] = (uint8_t)((integers[i] & 15) | (mins[i] & 15) << 4);
            scales[i - 4] |= (uint8_t)(integers[i] >> 4 << 6);
            scales[i] |= (uint8_t)(mins[i] >> 4 << 6);
        }
    }
}

static void fit_q4_k(const float *x, const float *w, void *block, codec_grid *out)
{
    int integers[8], mins[8];
    block_q4_k b = {0};
    fit_mins(&unsigned4, 32, 63, x, w, out, integers, mins, &b.scale, &b.min);
    put_six_bits(b.scales, integers, mins);
    memcpy(block, &b, sizeof b);
}

/* Nibbles of 256 values, each 64 of them in 32 bytes. */
static void put_pairs(const uint8_t *q, uint8_t quants[128])
{
    for (int i = 0; i < 256; i++)
        quants[i / 64 * 32 + i % 32] |= (uint8_t)((q[i] & 15) << 4 * (i / 32 % 2));
}

static void put_q4_k(const uint8_t *q, void *block)
{
    put_pairs(q, ((block_q4_k *)block)->quants);
}

static void fit_q5_k(const float *x, const float *w, void *block, codec_grid *out)
{
    int integers[8], mins[8];
    block_q5_k b = {0};
    fit_mins(&unsigned5, 32, 63, x, w, out, integers, mins, &b.scale, &b.min);
    put_six_bits(b.scales, integers, mins);
    memcpy(block, &b, sizeof b);
}

static void put_q5_k(const uint8_t *q, void *block)
{
    block_q5_k *b = block;
    put_pairs(q, b->low);
    for (int i = 0; i < 256; i++)
        b->high[i % 32] |= (uint8_t)(q[i] >> 4 << i / 32);
}

/* ---- Without: Q3_K, Q6_K --------------------------------------------------------------------- */

static uint16_t fit_signed(const codec_levels *l, int low, int high, const float *x, const float *w,
                           codec_grid *out, int *integers)
{
    float wanted[16];
    *out = (codec_grid){.levels = l, .group = 16};
    for (int i = 0; i < 16; i++)
        wanted[i] = codec_search_scale(l, x + 16 * i, w + 16 * i, 16);
    return codec_join_scales(x, w, 16, low, high, wanted, out, integers);
}

static void fit_q3_k(const float *x, const float *w, void *block, codec_grid *out)
{
    int integers[16];
    block_q3_k b = {.scale = fit_signed(&signed3, -32, 31, x, w, out, integers)};
    for (int i = 0; i < 16; i++) {
        int s = integers[i] + 32;
        b.scales[i % 8] |= (uint8_t)((s & 15) << 4 * (i / 8));
        b.scales[8 + i % 4] |= (uint8_t)(s >> 4 << 2 * (i / 4));
    }
    memcpy(block, &b, sizeof b);
}

static void put_q3_k(const uint8_t *q, void *block)
{
    block_q3_k *b = block;
    put_planes(q, b->low);
    for (int i = 0; i < 256; i++)
        b->high[i % 32] |= (uint8_t)(q[i] >> 2 << i / 32);
}

static void fit_q6_k(const float *x, const float *w, void *block, codec_grid *out)
{
    int integers[16];
    block_q6_k b = {.scale = fit_signed(&signed6, -128, 127, x, w, out, integers)};
    for (int i = 0; i < 16; i++)
        b.scales[i] = (int8_t)integers[i];
    memcpy(block, &b, sizeof b);
}

static void put_q6_k(const uint8_t *q, void *block)
{
    block_q6_k *b = block;
    for (int i = 0; i < 256; i++) {
        int half = i / 128;
        b->low[64 * half + i % 64] |= (uint8_t)((q[i] & 15) << 4 * (i / 64 % 2));
        b->high[32 * half + i % 32] |= (uint8_t)(q[i] >> 4 << 2 * (i / 32 % 4));
    }
}

const codec codecs_k[] = {
    {DTYPE_Q2_K, 256, fit_q2_k, put_q2_k, false}, {DTYPE_Q3_K, 256, fit_q3_k, put_q3_k, false},
    {DTYPE_Q4_K, 256, fit_q4_k, put_q4_k, false}, {DTYPE_Q5_K, 256, fit_q5_k, put_q5_k, false},
    {DTYPE_Q6_K, 256, fit_q6_k, put_q6_k, false},
};
const int n_codecs_k = sizeof codecs_k / sizeof *codecs_k;
