/* Packing: from the file's blocks to the tiles that tiles.h draws, in portable C. */
#include "kernels/cpu/tiles.h"

#include <assert.h>
#include <string.h>

#include "tensor/blocks.h"

/*
 * A field of a block: where it is, its length, and the unit in which 16 rows are interleaved. Words
 * may be woven: `weave` parts of the field, or of what is behind it, take turns, a word of each.
 */
typedef struct field {
    uint16_t offset, n_bytes;
    uint8_t unit; /* bytes; 0 ends the list */
    uint8_t how;  /* of words only */
    uint8_t weave;
    uint16_t parts[5]; /* where the woven parts are, each n_bytes / weave long */
} field;

enum { COPY, ADD_128, GATHER_BITS };

#define FIELD(type, name, unit_bytes)                                                              \
    {                                                                                              \
        .offset = offsetof(type, name), .n_bytes = sizeof((type *)0)->name, .unit = unit_bytes     \
    }
#define FIELD_AS(type, name, kind)                                                                 \
    {                                                                                              \
        .offset = offsetof(type, name), .n_bytes = sizeof((type *)0)->name, .unit = 4, .how = kind \
    }
#define WOVEN(n_bytes, n_parts, ...)                                                               \
    {                                                                                              \
        0, n_bytes, 4, COPY, n_parts,                                                              \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* The fields of each tile, in the order of tiles.h. */
static const field layouts[DTYPE_COUNT][7] = {
    [DTYPE_F32] = {{.n_bytes = 4, .unit = 4}},
    [DTYPE_F16] = {{.n_bytes = 2, .unit = 2}},
    [DTYPE_BF16] = {{.n_bytes = 2, .unit = 2}},
    [DTYPE_Q4_0] = {FIELD(block_q4_0, scale, 2), FIELD(block_q4_0, quants, 4)},
    [DTYPE_IQ4_NL] = {FIELD(block_iq4_nl, scale, 2), FIELD(block_iq4_nl, quants, 4)},
    [DTYPE_Q4_1] = {FIELD(block_q4_1, scale, 2), FIELD(block_q4_1, min, 2),
                    FIELD(block_q4_1, quants, 4)},
    [DTYPE_Q5_0] = {FIELD(block_q5_0, scale, 2), FIELD_AS(block_q5_0, high, GATHER_BITS),
                    FIELD(block_q5_0, low, 4)},
    [DTYPE_Q5_1] = {FIELD(block_q5_1, scale, 2), FIELD(block_q5_1, min, 2),
                    FIELD_AS(block_q5_1, high, GATHER_BITS), FIELD(block_q5_1, low, 4)},
    [DTYPE_Q8_0] = {FIELD(block_q8_0, scale, 2), FIELD_AS(block_q8_0, quants, ADD_128)},
    [DTYPE_MXFP4] = {FIELD(block_mxfp4, exponent, 1), FIELD(block_mxfp4, quants, 4)},
    [DTYPE_Q2_K] = {FIELD(block_q2_k, scales, 1), FIELD(block_q2_k, scale, 2),
                    FIELD(block_q2_k, min, 2), FIELD(block_q2_k, quants, 4)},
    [DTYPE_Q3_K] = {FIELD(block_q3_k, scales, 1), FIELD(block_q3_k, scale, 2),
                    WOVEN(96, 3, offsetof(block_q3_k, high), offsetof(block_q3_k, low),
                          offsetof(block_q3_k, low) + 32)},
    [DTYPE_Q4_K] = {FIELD(block_q4_k, scales, 1), FIELD(block_q4_k, scale, 2),
                    FIELD(block_q4_k, min, 2), FIELD(block_q4_k, quants, 4)},
    [DTYPE_Q5_K] = {FIELD(block_q5_k, scales, 1), FIELD(block_q5_k, scale, 2),
                    FIELD(block_q5_k, min, 2),
                    WOVEN(160, 5, offsetof(block_q5_k, high), offsetof(block_q5_k, low),
                          offsetof(block_q5_k, low) + 32, offsetof(block_q5_k, low) + 64,
                          offsetof(block_q5_k, low) + 96)},
    [DTYPE_Q6_K] = {FIELD(block_q6_k, scales, 1), FIELD(block_q6_k, scale, 2),
                    WOVEN(96, 3, offsetof(block_q6_k, high), offsetof(block_q6_k, low),
                          offsetof(block_q6_k, low) + 32),
                    WOVEN(96, 3, offsetof(block_q6_k, high) + 32, offsetof(block_q6_k, low) + 64,
                          offsetof(block_q6_k, low) + 96)},
    [DTYPE_IQ4_XS] = {FIELD(block_iq4_xs, scales_low, 1), FIELD(block_iq4_xs, scales_high, 2),
                      FIELD(block_iq4_xs, scale, 2), FIELD(block_iq4_xs, quants, 4)},
    [DTYPE_S2] = {FIELD(block_s2, scale, 1), FIELD(block_s2, codes, 4)},
    [DTYPE_S3] = {FIELD(block_s3, scale, 1), FIELD(block_s3, codes, 4)},
    [DTYPE_S4] = {FIELD(block_s4, scale, 1), FIELD(block_s4, codes, 4)},
    [DTYPE_S5] = {FIELD(block_s5, scale, 1), FIELD(block_s5, codes, 4)},
    [DTYPE_S6] = {FIELD(block_s6, scale, 1), FIELD(block_s6, codes, 4)},
    [DTYPE_T2] = {FIELD(block_t2, scale, 1), FIELD(block_t2, stream, 4)},
    [DTYPE_T3] = {FIELD(block_t3, scale, 1), FIELD(block_t3, stream, 4)},
    [DTYPE_T4] = {FIELD(block_t4, scale, 1), FIELD(block_t4, stream, 4)},
    [DTYPE_T5] = {FIELD(block_t5, scale, 1), FIELD(block_t5, stream, 4)},
    [DTYPE_S8] = {FIELD(block_s8, scale, 1), FIELD_AS(block_s8, values, ADD_128)},
};

static int64_t n_panels(int64_t n_rows)
{
    return (n_rows + TILE_ROWS - 1) / TILE_ROWS;
}

uint64_t tiles_packed_bytes(dtype type, int64_t n_rows, int64_t n_cols)
{
    return (uint64_t)n_panels(n_rows) * TILE_ROWS * row_bytes(type, n_cols);
}

/* The bits 4g + i of x, as bit g of byte i. */
static uint32_t gather_bits(uint32_t x)
{
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t y = x >> i & 0x11111111;
        y = (y | y >> 3) & 0x03030303;
        y = (y | y >> 6) & 0x000f000f;
        y = (y | y >> 12) & 0xff;
        out |= y << 8 * i;
    }
    return out;
}

static void pack_words(const field *f, const uint8_t *const rows[TILE_ROWS], uint8_t *out)
{
    for (int r = 0; r < TILE_ROWS; r++) {
        const uint8_t *from = rows[r] + f->offset;
        uint8_t *to = out + 4 * r;
        for (int u = 0; u < f->n_bytes; u += 4) {
            uint32_t word;
            memcpy(&word, from + u, 4);
            if (f->how == ADD_128)
                word ^= 0x80808080;
            else if (f->how == GATHER_BITS)
                word = gather_bits(word);
            memcpy(to + u * TILE_ROWS, &word, 4);
        }
    }
}

static void pack_woven(const field *f, const uint8_t *const rows[TILE_ROWS], uint8_t *out)
{
    for (int r = 0; r < TILE_ROWS; r++) {
        uint8_t *to = out + 4 * r;
        for (int u = 0; u < f->n_bytes / f->weave; u += 4)
            for (int i = 0; i < f->weave; i++, to += 4 * TILE_ROWS)
                memcpy(to, rows[r] + f->parts[i] + u, 4);
    }
}

static void pack_field(const field *f, const uint8_t *const rows[TILE_ROWS], uint8_t *out)
{
    switch (f->unit) {
    case 4:
        if (f->weave)
            pack_woven(f, rows, out);
        else
            pack_words(f, rows, out);
        break;
    case 2:
        for (int r = 0; r < TILE_ROWS; r++)
            memcpy(out + 2 * r, rows[r] + f->offset, 2);
        break;
    default:
        for (int r = 0; r < TILE_ROWS; r++)
            for (int u = 0; u < f->n_bytes; u++)
                out[u * TILE_ROWS + r] = rows[r][f->offset + u];
    }
}

static void pack_blocks(dtype type, const uint8_t *const first[TILE_ROWS], int64_t n_blocks,
                        uint8_t *out)
{
    int block_bytes = dtype_describe(type)->block_bytes;
    const uint8_t *rows[TILE_ROWS];
    memcpy(rows, first, sizeof rows);
    for (int64_t b = 0; b < n_blocks; b++) {
        for (const field *f = layouts[type]; f->unit; f++) {
            pack_field(f, rows, out);
            out += f->n_bytes * TILE_ROWS;
        }
        for (int r = 0; r < TILE_ROWS; r++)
            rows[r] += block_bytes;
    }
}

/* Zeros in all fields of row r of a panel. */
static void wipe_row(dtype type, int r, int64_t n_tiles, uint8_t *panel)
{
    for (int64_t i = 0; i < n_tiles; i++) {
        for (const field *f = layouts[type]; f->unit; f++) {
            for (int u = 0; u < f->n_bytes / f->unit; u++)
                memset(panel + (u * TILE_ROWS + r) * f->unit, 0, f->unit);
            panel += f->n_bytes * TILE_ROWS;
        }
    }
}

/* Rows of one-value blocks: a transposition, 32 columns at a time for the sake of the cache. */
static void pack_floats(const uint8_t *const rows[TILE_ROWS], int64_t n_cols, int n_bytes,
                        uint8_t *out)
{
    for (int64_t begin = 0; begin < n_cols; begin += 32) {
        int64_t end = begin + 32 < n_cols ? begin + 32 : n_cols;
        for (int r = 0; r < TILE_ROWS; r++) {
            if (n_bytes == 2)
                for (int64_t k = begin; k < end; k++)
                    memcpy(out + 2 * (k * TILE_ROWS + r), rows[r] + 2 * k, 2);
            else
                for (int64_t k = begin; k < end; k++)
                    memcpy(out + 4 * (k * TILE_ROWS + r), rows[r] + 4 * k, 4);
        }
    }
}

void tiles_pack(dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols,
                int64_t row_begin, int64_t row_end, uint8_t *out)
{
    const dtype_info *info = dtype_describe(type);
    int64_t stride = (int64_t)row_bytes(type, n_cols);
    assert(row_begin % TILE_ROWS == 0 && row_end <= n_rows);

    for (int64_t row = row_begin; row < row_end; row += TILE_ROWS) {
        /* Below the matrix there are zeros: a row is packed again, and its part wiped. */
        const uint8_t *rows[TILE_ROWS];
        for (int r = 0; r < TILE_ROWS; r++)
            rows[r] = blocks + (row + r < row_end ? row + r : row) * stride;
        uint8_t *panel = out + row * stride;
        if (info->block_values == 1)
            pack_floats(rows, n_cols, info->block_bytes, panel);
        else
            pack_blocks(type, rows, n_cols / info->block_values, panel);
        for (int64_t r = row_end - row; r < TILE_ROWS; r++)
            wipe_row(type, (int)r, n_cols / info->block_values, panel);
    }
}
