/* Decoding rows of the IQ types: numbers of points in a grid, with signs and scales. */
#include "tensor/codec/unpack.h"

#include "base/bytes.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"

/* n unsigned bytes of a point, lowest first, with their signs: a set bit is a minus. */
static void unpack_point(uint64_t point, uint32_t signs, int n, float scale, float *out)
{
    for (int i = 0; i < n; i++) {
        float value = scale * (float)(point >> 8 * i & 255);
        out[i] = signs >> i & 1 ? -value : value;
    }
}

/* ---- IQ2 ------------------------------------------------------------------------------------- */

static void unpack_block_iq2_xxs(const block_iq2_xxs *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    for (int group = 0; group < 8; group++) {
        const uint8_t *points = b->groups[group];
        uint32_t signs = load_u32(points + 4);
        float group_scale = scale * (0.5f + (float)(signs >> 28)) * 0.25f;
        for (int i = 0; i < 4; i++, out += 8)
            unpack_point(iq2_xxs_grid[points[i]], iq_signs(signs >> 7 * i & 127), 8, group_scale,
                         out);
    }
}
UNPACK_ROWS(iq2_xxs, IQ2_XXS)

/* The scale of eight values, number `eight` of a block of IQ2_XS or IQ2_S. */
static float iq2_scale(float scale, const uint8_t scales[8], int eight)
{
    int s = scales[eight / 4] >> 4 * (eight / 2 % 2) & 15;
    return scale * (0.5f + (float)s) * 0.25f;
}

static void unpack_block_iq2_xs(const block_iq2_xs *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    for (int i = 0; i < 32; i++)
        unpack_point(iq2_xs_grid[b->codes[i] & 511], iq_signs(b->codes[i] >> 9), 8,
                     iq2_scale(scale, b->scales, i), out + 8 * i);
}
UNPACK_ROWS(iq2_xs, IQ2_XS)

static void unpack_block_iq2_s(const block_iq2_s *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    for (int i = 0; i < 32; i++) {
        int high = b->high[i / 4] >> 2 * (i % 4) & 3;
        unpack_point(iq2_s_grid[b->points[i] | high << 8], b->signs[i], 8,
                     iq2_scale(scale, b->scales, i), out + 8 * i);
    }
}
UNPACK_ROWS(iq2_s, IQ2_S)

/* ---- IQ3 ------------------------------------------------------------------------------------- */

static void unpack_block_iq3_xxs(const block_iq3_xxs *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    for (int group = 0; group < 8; group++) {
        uint32_t stored = load_u32(b->signs[group]);
        float group_scale = scale * (0.5f + (float)(stored >> 28)) * 0.5f;
        for (int i = 0; i < 8; i++, out += 4) {
            uint32_t signs = iq_signs(stored >> 7 * (i / 2) & 127);
            unpack_point(iq3_xxs_grid[b->points[8 * group + i]], signs >> 4 * (i % 2), 4,
                         group_scale, out);
        }
    }
}
UNPACK_ROWS(iq3_xxs, IQ3_XXS)

static void unpack_block_iq3_s(const block_iq3_s *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    for (int i = 0; i < 64; i++) {
        int group = i / 8;
        int s = b->scales[group / 2] >> 4 * (group % 2) & 15;
        int high = b->high[group] >> i % 8 & 1;
        uint32_t signs = b->signs[i / 2] >> 4 * (i % 2);
        unpack_point(iq3_s_grid[b->points[i] | high << 8], signs, 4, scale * (float)(1 + 2 * s),
                     out + 4 * i);
    }
}
UNPACK_ROWS(iq3_s, IQ3_S)

/* ---- IQ1 ------------------------------------------------------------------------------------- */

/* Eight of -1, 0, 1, shifted by an eighth up or down. */
static void unpack_ternary_point(uint64_t point, bool is_minus, float scale, float *out)
{
    float shift = is_minus ? -0.125f : 0.125f;
    for (int i = 0; i < 8; i++)
        out[i] = scale * ((float)(int8_t)(point >> 8 * i & 255) + shift);
}

static void unpack_block_iq1_s(const block_iq1_s *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    for (int i = 0; i < 32; i++) {
        int word = b->high[i / 4];
        int high = word >> 3 * (i % 4) & 7;
        float group_scale = scale * (float)(2 * (word >> 12 & 7) + 1);
        unpack_ternary_point(iq1_grid[b->points[i] | high << 8], word & 0x8000, group_scale,
                             out + 8 * i);
    }
}
UNPACK_ROWS(iq1_s, IQ1_S)

static void unpack_block_iq1_m(const block_iq1_m *b, float *out)
{
    int bits = 0;
    for (int i = 0; i < 4; i++)
        bits |= b->scales[i] >> 12 << 4 * i;
    float scale = f16_to_f32((uint16_t)bits);
    for (int i = 0; i < 32; i++) {
        int group = i / 2;
        int s = b->scales[group / 4] >> 3 * (group % 4) & 7;
        int nibble = b->high[i / 2] >> 4 * (i % 2);
        unpack_ternary_point(iq1_grid[b->points[i] | (nibble & 7) << 8], nibble & 8,
                             scale * (float)(2 * s + 1), out + 8 * i);
    }
}
UNPACK_ROWS(iq1_m, IQ1_M)

/* ---- IQ4 ------------------------------------------------------------------------------------- */

static void unpack_iq4_values(const uint8_t quants[16], float scale, float *out)
{
    for (int i = 0; i < 16; i++) {
        out[i] = scale * (float)iq4_values[quants[i] & 15];
        out[i + 16] = scale * (float)iq4_values[quants[i] >> 4];
    }
}

static void unpack_block_iq4_nl(const block_iq4_nl *b, float *out)
{
    unpack_iq4_values(b->quants, f16_to_f32(b->scale), out);
}
UNPACK_ROWS(iq4_nl, IQ4_NL)

static void unpack_block_iq4_xs(const block_iq4_xs *b, float *out)
{
    float scale = f16_to_f32(b->scale);
    for (int group = 0; group < 8; group++) {
        int low = b->scales_low[group / 2] >> 4 * (group % 2) & 15;
        int high = b->scales_high >> 2 * group & 3;
        unpack_iq4_values(b->quants + 16 * group, scale * (float)((low | high << 4) - 32),
                          out + 32 * group);
    }
}
UNPACK_ROWS(iq4_xs, IQ4_XS)
