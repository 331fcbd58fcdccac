/*
 * Packing of the types without tiles of their own: to bytes, with a float for each 16 (S8 in
 * tiles.h).
 *
 * Every value of these types is a whole number times a step that 16 neighbours share. The plain
 * decoder gives the values; here are the steps, and the division that gives the numbers back.
 */
#include "kernels/cpu/tiles.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "kernels/ref/unpack.h"
#include "tensor/half.h"

/* The step of each 16 values of a block. */
typedef void (*steps_fn)(const uint8_t *block, float out[16]);

#define STEPS(type) static void steps_##type(const uint8_t *block, float out[16])
#define BLOCK(type)                                                                                \
    block_##type b;                                                                                \
    memcpy(&b, block, sizeof b)

static void fill(float out[16], int n, float step_of_all)
{
    for (int i = 0; i < n; i++)
        out[i] = step_of_all;
}

STEPS(q1_0)
{
    BLOCK(q1_0);
    fill(out, 8, f16_to_f32(b.scale));
}

STEPS(q2_0)
{
    BLOCK(q2_0);
    fill(out, 4, f16_to_f32(b.scale));
}

STEPS(tq1_0)
{
    BLOCK(tq1_0);
    fill(out, 16, f16_to_f32(b.scale));
}

STEPS(tq2_0)
{
    BLOCK(tq2_0);
    fill(out, 16, f16_to_f32(b.scale));
}

STEPS(nvfp4)
{
    BLOCK(nvfp4);
    for (int i = 0; i < 4; i++)
        out[i] = ue4m3_to_f32_half(b.scales[i]);
}

STEPS(iq2_xxs)
{
    BLOCK(iq2_xxs);
    for (int i = 0; i < 16; i++) {
        uint32_t s = load_u32(b.groups[i / 2] + 4) >> 28;
        out[i] = f16_to_f32(b.scale) * (0.5f + (float)s) * 0.25f;
    }
}

STEPS(iq2_xs)
{
    BLOCK(iq2_xs);
    for (int i = 0; i < 16; i++)
        out[i] =
            f16_to_f32(b.scale) * (0.5f + (float)(b.scales[i / 2] >> 4 * (i % 2) & 15)) * 0.25f;
}

STEPS(iq2_s)
{
    BLOCK(iq2_s);
    for (int i = 0; i < 16; i++)
        out[i] =
            f16_to_f32(b.scale) * (0.5f + (float)(b.scales[i / 2] >> 4 * (i % 2) & 15)) * 0.25f;
}

STEPS(iq3_xxs)
{
    BLOCK(iq3_xxs);
    for (int i = 0; i < 16; i++)
        out[i] = f16_to_f32(b.scale) * (0.5f + (float)(load_u32(b.signs[i / 2]) >> 28)) * 0.5f;
}

STEPS(iq3_s)
{
    BLOCK(iq3_s);
    for (int i = 0; i < 16; i++) {
        int s = b.scales[i / 4] >> 4 * (i / 2 % 2) & 15;
        out[i] = f16_to_f32(b.scale) * (float)(1 + 2 * s);
    }
}

/* Points are shifted by an eighth: values are eighths. */
STEPS(iq1_s)
{
    BLOCK(iq1_s);
    for (int i = 0; i < 16; i++)
        out[i] = f16_to_f32(b.scale) * (float)(2 * (b.high[i / 2] >> 12 & 7) + 1) * 0.125f;
}

STEPS(iq1_m)
{
    BLOCK(iq1_m);
    int bits = 0;
    for (int i = 0; i < 4; i++)
        bits |= b.scales[i] >> 12 << 4 * i;
    for (int i = 0; i < 16; i++) {
        int s = b.scales[i / 4] >> 3 * (i % 4) & 7;
        out[i] = f16_to_f32((uint16_t)bits) * (float)(2 * s + 1) * 0.125f;
    }
}

static const steps_fn steps[DTYPE_COUNT] = {
    [DTYPE_Q1_0] = steps_q1_0,     [DTYPE_Q2_0] = steps_q2_0,   [DTYPE_TQ1_0] = steps_tq1_0,
    [DTYPE_TQ2_0] = steps_tq2_0,   [DTYPE_NVFP4] = steps_nvfp4, [DTYPE_IQ2_XXS] = steps_iq2_xxs,
    [DTYPE_IQ2_XS] = steps_iq2_xs, [DTYPE_IQ2_S] = steps_iq2_s, [DTYPE_IQ3_XXS] = steps_iq3_xxs,
    [DTYPE_IQ3_S] = steps_iq3_s,   [DTYPE_IQ1_S] = steps_iq1_s, [DTYPE_IQ1_M] = steps_iq1_m,
};

bool tiles_is_s8(dtype type)
{
    return steps[type] != NULL;
}

uint64_t tiles_s8_packed_bytes(dtype type, int64_t n_rows, int64_t n_cols)
{
    uint64_t n_panels = ((uint64_t)n_rows + TILE_ROWS - 1) / TILE_ROWS;
    return n_panels * (uint64_t)(n_cols / 32) * TILE_S8_BYTES;
}

/* value / step, a whole number; 0 if the block's scale is not a number that one can divide by. */
static uint8_t to_byte(float value, float one_step)
{
    float q = one_step != 0 ? value / one_step : 0;
    return (uint8_t)(128 + (fabsf(q) <= 127 ? (int)lrintf(q) : 0));
}

/* One block of row r, into the tiles from `tile` on. */
static void pack_block(dtype type, const uint8_t *block, int r, uint8_t *tile)
{
    int n = dtype_describe(type)->block_values;
    float values[256], step_of[16];
    unpack_row(type, block, n, values);
    steps[type](block, step_of);
    for (int i = 0; i < n; i += 32, tile += TILE_S8_BYTES) {
        for (int k = 0; k < 32; k++)
            tile[128 + k / 4 * 64 + r * 4 + k % 4] = to_byte(values[i + k], step_of[(i + k) / 16]);
        memcpy(tile + 4 * r, &step_of[i / 16], 4);
        memcpy(tile + 64 + 4 * r, &step_of[i / 16 + 1], 4);
    }
}

void tiles_s8_pack(dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols,
                   int64_t row_begin, int64_t row_end, uint8_t *out)
{
    const dtype_info *info = dtype_describe(type);
    int64_t stride = (int64_t)row_bytes(type, n_cols);
    int64_t panel_bytes = n_cols / 32 * TILE_S8_BYTES;
    assert(row_begin % TILE_ROWS == 0 && row_end <= n_rows && info->block_values <= 256);
    for (int64_t row = row_begin; row < row_end; row++) {
        uint8_t *panel = out + row / TILE_ROWS * panel_bytes;
        if (row + TILE_ROWS > row_end && row % TILE_ROWS == 0)
            memset(panel, 0, (size_t)panel_bytes); /* rows below the matrix: all zeros */
        for (int64_t b = 0; b < n_cols / info->block_values; b++)
            pack_block(type, blocks + row * stride + b * info->block_bytes, (int)(row % TILE_ROWS),
                       panel + b * info->block_values / 32 * TILE_S8_BYTES);
    }
}
