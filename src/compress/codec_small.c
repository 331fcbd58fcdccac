/* Codecs of the types with one scale for a small block. */
#include <string.h>

#include "compress/codec.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

static const codec_levels signed4 = {.n = 16, .first = -8};
static const codec_levels signed5 = {.n = 32, .first = -16};
static const codec_levels signed8 = {.n = 255, .first = -127};
static const codec_levels unsigned4 = {.n = 16};
static const codec_levels unsigned5 = {.n = 32};

/* clang-format off */
static const float iq4_table[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1, 13, 25, 38, 53, 69, 89, 113};
/* Of the two zeros of FP4 only one is needed. */
static const float fp4_table[15] = {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};
static const uint8_t fp4_codes[15] = {15, 14, 13, 12, 11, 10, 9, 0, 1, 2, 3, 4, 5, 6, 7};
/* clang-format on */

static const codec_levels iq4_levels = {.n = 16, .table = iq4_table};
static const codec_levels fp4_levels = {.n = 15, .table = fp4_table};

static void one_group(const codec_levels *l, float scale, float min, codec_grid *out)
{
    *out = (codec_grid){.levels = l, .group = 32, .scale = {scale}, .min = {min}};
}

/* A scale as an f16, and the grid of it. */
static uint16_t fit_scale(const codec_levels *l, const float *x, const float *w, codec_grid *out)
{
    uint16_t scale = f16_from_f32(codec_search_scale(l, x, w, 32));
    one_group(l, f16_to_f32(scale), 0, out);
    return scale;
}

/* Nibbles of 32 values, as in Q4_0. */
static void put_nibbles(const uint8_t *q, uint8_t quants[16])
{
    for (int i = 0; i < 16; i++)
        quants[i] = (uint8_t)(q[i] | q[i + 16] << 4);
}

static void put_fives(const uint8_t *q, uint8_t high[4], uint8_t low[16])
{
    memset(high, 0, 4);
    for (int i = 0; i < 16; i++)
        low[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
    for (int i = 0; i < 32; i++)
        high[i / 8] |= (uint8_t)(q[i] >> 4 << i % 8);
}

static void fit_q4_0(const float *x, const float *w, void *block, codec_grid *out)
{
    *(block_q4_0 *)block = (block_q4_0){.scale = fit_scale(&signed4, x, w, out)};
}

static void put_q4_0(const uint8_t *q, void *block)
{
    put_nibbles(q, ((block_q4_0 *)block)->quants);
}

static void fit_q5_0(const float *x, const float *w, void *block, codec_grid *out)
{
    *(block_q5_0 *)block = (block_q5_0){.scale = fit_scale(&signed5, x, w, out)};
}

static void put_q5_0(const uint8_t *q, void *block)
{
    block_q5_0 *b = block;
    put_fives(q, b->high, b->low);
}

/* The steps are so fine that the largest value decides; a search finds nothing. */
static void fit_q8_0(const float *x, const float *w, void *block, codec_grid *out)
{
    float most = 0;
    for (int i = 0; i < 32; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    uint16_t scale = f16_from_f32(most / 127);
    *(block_q8_0 *)block = (block_q8_0){.scale = scale};
    one_group(&signed8, f16_to_f32(scale), 0, out);
}

static void put_q8_0(const uint8_t *q, void *block)
{
    for (int i = 0; i < 32; i++)
        ((block_q8_0 *)block)->quants[i] = (int8_t)(q[i] - 127);
}

/* A scale and a min as f16; the file adds the min, the grid takes it off. */
static void fit_pair(const codec_levels *l, const float *x, const float *w, uint16_t *scale,
                     uint16_t *min, codec_grid *out)
{
    float m, s = codec_search_scale_min(l, x, w, 32, -INFINITY, &m);
    *scale = f16_from_f32(s);
    *min = f16_from_f32(-m);
    one_group(l, f16_to_f32(*scale), -f16_to_f32(*min), out);
}

static void fit_q4_1(const float *x, const float *w, void *block, codec_grid *out)
{
    block_q4_1 b = {0};
    fit_pair(&unsigned4, x, w, &b.scale, &b.min, out);
    memcpy(block, &b, sizeof b);
}

static void put_q4_1(const uint8_t *q, void *block)
{
    put_nibbles(q, ((block_q4_1 *)block)->quants);
}

static void fit_q5_1(const float *x, const float *w, void *block, codec_grid *out)
{
    block_q5_1 b = {0};
    fit_pair(&unsigned5, x, w, &b.scale, &b.min, out);
    memcpy(block, &b, sizeof b);
}

static void put_q5_1(const uint8_t *q, void *block)
{
    block_q5_1 *b = block;
    put_fives(q, b->high, b->low);
}

static void fit_iq4_nl(const float *x, const float *w, void *block, codec_grid *out)
{
    *(block_iq4_nl *)block = (block_iq4_nl){.scale = fit_scale(&iq4_levels, x, w, out)};
}

static void put_iq4_nl(const uint8_t *q, void *block)
{
    put_nibbles(q, ((block_iq4_nl *)block)->quants);
}

/* The scale is a power of two: those around the best free one are tried. */
static void fit_mxfp4(const float *x, const float *w, void *block, codec_grid *out)
{
    float wanted = fabsf(codec_search_scale(&fp4_levels, x, w, 32)), best = INFINITY;
    int middle = wanted > 0 ? ilogbf(wanted) : -127, best_power = middle;
    for (int power = middle - 1; power <= middle + 2; power++) {
        float error = codec_error(&fp4_levels, x, w, 32, ldexpf(1, power), 0);
        if (error < best) {
            best = error;
            best_power = power;
        }
    }
    /* e8m0_to_f32_half(e) is 2^(e - 128). */
    int e = best_power + 128;
    e = e < 0 ? 0 : e > 254 ? 254 : e;
    *(block_mxfp4 *)block = (block_mxfp4){.exponent = (uint8_t)e};
    one_group(&fp4_levels, e8m0_to_f32_half((uint8_t)e), 0, out);
}

static void put_mxfp4(const uint8_t *q, void *block)
{
    uint8_t codes[32];
    for (int i = 0; i < 32; i++)
        codes[i] = fp4_codes[q[i]];
    put_nibbles(codes, ((block_mxfp4 *)block)->quants);
}

/* ---- IQ4_XS: eight such groups under one scale ----------------------------------------------- */

static void fit_iq4_xs(const float *x, const float *w, void *block, codec_grid *out)
{
    float wanted[8];
    int integers[8];
    *out = (codec_grid){.levels = &iq4_levels, .group = 32};
    for (int i = 0; i < 8; i++)
        wanted[i] = codec_search_scale(&iq4_levels, x + 32 * i, w + 32 * i, 32);
    block_iq4_xs b = {.scale = codec_join_scales(x, w, 8, -32, 31, wanted, out, integers)};
    for (int i = 0; i < 8; i++) {
        int s = integers[i] + 32;
        b.scales_low[i / 2] |= (uint8_t)((s & 15) << 4 * (i % 2));
        b.scales_high |= (uint16_t)(s >> 4 << 2 * i);
    }
    memcpy(block, &b, sizeof b);
}

static void put_iq4_xs(const uint8_t *q, void *block)
{
    for (int i = 0; i < 8; i++)
        put_nibbles(q + 32 * i, ((block_iq4_xs *)block)->quants + 16 * i);
}

const codec codecs_small[] = {
    {DTYPE_Q4_0, 32, fit_q4_0, put_q4_0, false},
    {DTYPE_Q4_1, 32, fit_q4_1, put_q4_1, false},
    {DTYPE_Q5_0, 32, fit_q5_0, put_q5_0, false},
    {DTYPE_Q5_1, 32, fit_q5_1, put_q5_1, false},
    {DTYPE_Q8_0, 32, fit_q8_0, put_q8_0, false},
    {DTYPE_IQ4_NL, 32, fit_iq4_nl, put_iq4_nl, false},
    {DTYPE_MXFP4, 32, fit_mxfp4, put_mxfp4, false},
    {DTYPE_IQ4_XS, 256, fit_iq4_xs, put_iq4_xs, false},
};
const int n_codecs_small = sizeof codecs_small / sizeof *codecs_small;
