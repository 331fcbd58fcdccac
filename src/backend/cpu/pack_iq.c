/*
 * Packing of the types whose blocks name points of a grid, or hold digits in base 3: to codes of
 * 2, 3 or 4 bits for each value (tiles.h). Nothing is rounded.
 *
 * Looking up points would take longer than reading a few bits more: on Zen 4 a gather brings 3
 * values a cycle, a table in a register 64. Every value of these types is a whole number times a
 * step that 16 neighbours share, and each has few different numbers. The plain decoder gives the
 * values; here are the steps, and the division that gives the numbers back.
 */
#include "backend/cpu/tiles.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "tensor/codec/unpack.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Of each 16 values of a block: unit * (2 odd[i] + 1). */
typedef struct block_steps {
    float unit;
    uint8_t odd[16];
    float own[4]; /* NVFP4: the steps themselves */
} block_steps;

typedef void (*steps_fn)(const uint8_t *block, block_steps *out);

#define STEPS(type) static void steps_##type(const uint8_t *block, block_steps *out)
#define BLOCK(type)                                                                                \
    block_##type b;                                                                                \
    memcpy(&b, block, sizeof b)

/* One step for the whole block. */
#define STEPS_ALIKE(type)                                                                          \
    STEPS(type)                                                                                    \
    {                                                                                              \
        BLOCK(type);                                                                               \
        out->unit = f16_to_f32(b.scale);                                                           \
    }
STEPS_ALIKE(q1_0)
STEPS_ALIKE(q2_0)
STEPS_ALIKE(tq1_0)
STEPS_ALIKE(tq2_0)

STEPS(nvfp4)
{
    BLOCK(nvfp4);
    for (int i = 0; i < 4; i++)
        out->own[i] = ue4m3_to_f32_half(b.scales[i]);
}

STEPS(iq2_xxs)
{
    BLOCK(iq2_xxs);
    out->unit = f16_to_f32(b.scale) * 0.125f;
    for (int i = 0; i < 16; i++)
        out->odd[i] = (uint8_t)(load_u32(b.groups[i / 2] + 4) >> 28);
}

STEPS(iq2_xs)
{
    BLOCK(iq2_xs);
    out->unit = f16_to_f32(b.scale) * 0.125f;
    for (int i = 0; i < 16; i++)
        out->odd[i] = b.scales[i / 2] >> 4 * (i % 2) & 15;
}

STEPS(iq2_s)
{
    BLOCK(iq2_s);
    out->unit = f16_to_f32(b.scale) * 0.125f;
    for (int i = 0; i < 16; i++)
        out->odd[i] = b.scales[i / 2] >> 4 * (i % 2) & 15;
}

STEPS(iq3_xxs)
{
    BLOCK(iq3_xxs);
    out->unit = f16_to_f32(b.scale) * 0.25f;
    for (int i = 0; i < 16; i++)
        out->odd[i] = (uint8_t)(load_u32(b.signs[i / 2]) >> 28);
}

STEPS(iq3_s)
{
    BLOCK(iq3_s);
    out->unit = f16_to_f32(b.scale);
    for (int i = 0; i < 16; i++)
        out->odd[i] = b.scales[i / 4] >> 4 * (i / 2 % 2) & 15;
}

/* Points are shifted by an eighth: values are eighths. */
STEPS(iq1_s)
{
    BLOCK(iq1_s);
    out->unit = f16_to_f32(b.scale) * 0.125f;
    for (int i = 0; i < 16; i++)
        out->odd[i] = b.high[i / 2] >> 12 & 7;
}

STEPS(iq1_m)
{
    BLOCK(iq1_m);
    int bits = 0;
    for (int i = 0; i < 4; i++)
        bits |= b.scales[i] >> 12 << 4 * i;
    out->unit = f16_to_f32((uint16_t)bits) * 0.125f;
    for (int i = 0; i < 16; i++)
        out->odd[i] = b.scales[i / 4] >> 3 * (i % 4) & 7;
}

/* ---- Codes ----------------------------------------------------------------------------------- */

static uint8_t code_of_pair(int q)
{
    return (uint8_t)(q + 1);
}

static uint8_t code_of_iq1(int q)
{
    return (uint8_t)((q + 9) / 8);
}

static uint8_t code_of_iq2(int q)
{
    int size = abs(q);
    return (uint8_t)((q < 0) << 2 | (size > 25 ? 2 : size > 8));
}

static uint8_t code_of_iq3_xxs(int q)
{
    return (uint8_t)((q < 0) << 3 | abs(q) / 8);
}

static uint8_t code_of_iq3_s(int q)
{
    return (uint8_t)((q < 0) << 3 | abs(q) / 2);
}

static uint8_t code_of_fp4(int q)
{
    for (int i = 0; i < 16; i++)
        if (fp4_values[i] == q)
            return (uint8_t)i;
    return 0;
}

/* ---- Tiles ----------------------------------------------------------------------------------- */

/* How a type becomes tiles of 32 or 256 columns; the codes are behind the head. */
typedef struct packing {
    steps_fn steps;
    uint8_t (*code)(int q);
    int tile_values, tile_bytes, head_bytes;
    int code_bits;
    int n_odd; /* vectors of two odd numbers; 0: none */
} packing;

#define PAIRS_256 code_of_pair, 256, TILE_TQ2_BYTES, 64, 2, 0
#define PAIRS_32  code_of_pair, 32, TILE_Q2_0_BYTES, 32, 2, 0
#define CODES_IQ1 code_of_iq1, 256, TILE_IQ1_BYTES, 256, 2, 8
#define CODES_IQ2 code_of_iq2, 256, TILE_IQ2_BYTES, 192, 3, 8

static const packing packings[DTYPE_COUNT] = {
    [DTYPE_Q1_0] = {steps_q1_0, PAIRS_32},
    [DTYPE_Q2_0] = {steps_q2_0, PAIRS_32},
    [DTYPE_TQ1_0] = {steps_tq1_0, PAIRS_256},
    [DTYPE_TQ2_0] = {steps_tq2_0, PAIRS_256},
    [DTYPE_NVFP4] = {steps_nvfp4, code_of_fp4, 32, TILE_NVFP4_BYTES, 64, 4, 0},
    [DTYPE_IQ2_XXS] = {steps_iq2_xxs, CODES_IQ2},
    [DTYPE_IQ2_XS] = {steps_iq2_xs, CODES_IQ2},
    [DTYPE_IQ2_S] = {steps_iq2_s, CODES_IQ2},
    [DTYPE_IQ3_XXS] = {steps_iq3_xxs, code_of_iq3_xxs, 256, TILE_IQ3_BYTES, 128, 4, 4},
    [DTYPE_IQ3_S] = {steps_iq3_s, code_of_iq3_s, 256, TILE_IQ3_BYTES, 128, 4, 4},
    [DTYPE_IQ1_S] = {steps_iq1_s, CODES_IQ1},
    [DTYPE_IQ1_M] = {steps_iq1_m, CODES_IQ1},
};

uint64_t tiles_iq_packed_bytes(dtype type, int64_t n_rows, int64_t n_cols)
{
    const packing *p = &packings[type];
    uint64_t n_panels = ((uint64_t)n_rows + TILE_ROWS - 1) / TILE_ROWS;
    return n_panels * (uint64_t)(n_cols / p->tile_values) * (uint64_t)p->tile_bytes;
}

/* value / step, a whole number; 0 if the block's scale is not a number that one can divide by. */
static int to_whole(float value, float one_step)
{
    float q = one_step != 0 ? value / one_step : 0;
    return fabsf(q) <= 127 ? (int)lrintf(q) : 0;
}

/* A code for column k < 32 of a group whose words of row 0 are at `words`: OR into zeros. */
static void put_code(uint8_t *words, int n_bits, int k, uint8_t code)
{
    int i = k / 4;
    uint8_t *at = words + k % 4;
    if (n_bits == 4) {
        at[64 * (i % 4)] |= (uint8_t)(code << i / 4 * 4);
    } else if (n_bits == 2) {
        at[64 * (i / 4)] |= (uint8_t)(code << 2 * (i % 4));
    } else if (i < 6) {
        at[64 * (i / 2)] |= (uint8_t)(code << 3 * (i % 2));
    } else { /* two bits above those of word i - 6, the third in the last word */
        at[64 * (i - 6)] |= (uint8_t)((code & 3) << 6);
        at[128] |= (uint8_t)((code & 4) << (i - 2));
    }
}

/* Row r of a tile's scales. sixteen: which of the block's steps the tile begins with. */
static void put_scales(const packing *p, const block_steps *s, int sixteen, int r, uint8_t *tile)
{
    if (p->code == code_of_fp4) {
        for (int i = 0; i < 2; i++) {
            uint16_t half = f16_from_f32(s->own[sixteen + i]);
            memcpy(tile + 32 * i + 2 * r, &half, 2);
        }
    } else if (p->tile_values == 32) {
        uint16_t half = f16_from_f32(s->unit);
        memcpy(tile + 2 * r, &half, 2);
    } else {
        memcpy(tile + 4 * r, &s->unit, 4);
        for (int i = 0; i < 2 * p->n_odd; i++)
            tile[64 + 16 * (i % p->n_odd) + r] |=
                (uint8_t)(s->odd[16 * i / (2 * p->n_odd)] << i / p->n_odd * 4);
    }
}

/* One block of row r, into tiles of zeros from `tile` on. */
static void pack_block(dtype type, const uint8_t *block, int r, uint8_t *tile)
{
    const packing *p = &packings[type];
    int n = dtype_describe(type)->block_values;
    float values[256];
    block_steps s = {0};
    unpack_row(type, block, n, values);
    p->steps(block, &s);
    for (int i = 0; i < n; i += p->tile_values, tile += p->tile_bytes) {
        put_scales(p, &s, i / 16, r, tile);
        for (int k = 0; k < p->tile_values; k++) {
            float one_step = p->code == code_of_fp4 ? s.own[(i + k) / 16]
                                                    : s.unit * (float)(2 * s.odd[(i + k) / 16] + 1);
            int q = to_whole(values[i + k], one_step);
            put_code(tile + p->head_bytes + k / 32 * 64 * p->code_bits + 4 * r, p->code_bits,
                     k % 32, p->code(q));
            if (p->code == code_of_iq1 && k % 8 == 0 && (q == -7 || q == 1 || q == 9))
                tile[192 + 4 * r + k % 32 / 8] |= (uint8_t)(1 << k / 32);
        }
    }
}

void tiles_iq_pack(dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols,
                   int64_t row_begin, int64_t row_end, uint8_t *out)
{
    const dtype_info *info = dtype_describe(type);
    const packing *p = &packings[type];
    int64_t stride = (int64_t)row_bytes(type, n_cols);
    int64_t panel_bytes = n_cols / p->tile_values * p->tile_bytes;
    assert(row_begin % TILE_ROWS == 0 && row_end <= n_rows && info->block_values <= 256);
    for (int64_t row = row_begin; row < row_end; row++) {
        uint8_t *panel = out + row / TILE_ROWS * panel_bytes;
        if (row % TILE_ROWS == 0)
            memset(panel, 0, (size_t)panel_bytes); /* rows below the matrix stay zeros */
        for (int64_t b = 0; b < n_cols / info->block_values; b++)
            pack_block(type, blocks + row * stride + b * info->block_bytes, (int)(row % TILE_ROWS),
                       panel + b * info->block_values / p->tile_values * p->tile_bytes);
    }
}
