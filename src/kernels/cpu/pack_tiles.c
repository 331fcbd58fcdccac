/* Packing: from the file's blocks to the tiles that tiles.h draws, in portable C. */
#include "kernels/cpu/tiles.h"

#include <assert.h>
#include <string.h>

#include "tensor/blocks.h"

/* A field of a block: where it is, its length, and the unit in which 16 rows are interleaved. */
typedef struct field {
    uint16_t offset, n_bytes;
    uint8_t unit; /* bytes; 0 ends the list */
    uint8_t how;  /* of words only */
} field;

enum { COPY, ADD_128, GATHER_BITS };

#define FIELD(type, name, unit_bytes)                                                              \
    {                                                                                              \
        offsetof(type, name), sizeof((type *)0)->name, unit_bytes, COPY                            \
    }
#define FIELD_AS(type, name, how)                                                                  \
    {                                                                                              \
        offsetof(type, name), sizeof((type *)0)->name, 4, how                                      \
    }

/* The fields of each tile, in the order of tiles.h. */
static const field layouts[DTYPE_COUNT][6] = {
    [DTYPE_F32] = {{0, 4, 4, COPY}},
    [DTYPE_F16] = {{0, 2, 2, COPY}},
    [DTYPE_BF16] = {{0, 2, 2, COPY}},
    [DTYPE_Q4_0] = {FIELD(block_q4_0, quants, 4), FIELD(block_q4_0, scale, 2)},
    [DTYPE_IQ4_NL] = {FIELD(block_iq4_nl, quants, 4), FIELD(block_iq4_nl, scale, 2)},
    [DTYPE_Q4_1] = {FIELD(block_q4_1, quants, 4), FIELD(block_q4_1, scale, 2),
                    FIELD(block_q4_1, min, 2)},
    [DTYPE_Q5_0] = {FIELD(block_q5_0, low, 4), FIELD_AS(block_q5_0, high, GATHER_BITS),
                    FIELD(block_q5_0, scale, 2)},
    [DTYPE_Q5_1] = {FIELD(block_q5_1, low, 4), FIELD_AS(block_q5_1, high, GATHER_BITS),
                    FIELD(block_q5_1, scale, 2), FIELD(block_q5_1, min, 2)},
    [DTYPE_Q8_0] = {FIELD_AS(block_q8_0, quants, ADD_128), FIELD(block_q8_0, scale, 2)},
    [DTYPE_MXFP4] = {FIELD(block_mxfp4, quants, 4), FIELD(block_mxfp4, exponent, 1)},
    [DTYPE_Q2_K] = {FIELD(block_q2_k, quants, 4), FIELD(block_q2_k, scales, 1),
                    FIELD(block_q2_k, scale, 2), FIELD(block_q2_k, min, 2)},
    [DTYPE_Q3_K] = {FIELD(block_q3_k, high, 4), FIELD(block_q3_k, low, 4),
                    FIELD(block_q3_k, scales, 1), FIELD(block_q3_k, scale, 2)},
    [DTYPE_Q4_K] = {FIELD(block_q4_k, quants, 4), FIELD(block_q4_k, scales, 1),
                    FIELD(block_q4_k, scale, 2), FIELD(block_q4_k, min, 2)},
    [DTYPE_Q5_K] = {FIELD(block_q5_k, high, 4), FIELD(block_q5_k, low, 4),
                    FIELD(block_q5_k, scales, 1), FIELD(block_q5_k, scale, 2),
                    FIELD(block_q5_k, min, 2)},
    [DTYPE_Q6_K] = {FIELD(block_q6_k, low, 4), FIELD(block_q6_k, high, 4),
                    FIELD(block_q6_k, scales, 1), FIELD(block_q6_k, scale, 2)},
    [DTYPE_IQ4_XS] = {FIELD(block_iq4_xs, quants, 4), FIELD(block_iq4_xs, scales_low, 1),
                      FIELD(block_iq4_xs, scales_high, 2), FIELD(block_iq4_xs, scale, 2)},
};

bool tiles_has_layout(dtype type)
{
    return layouts[type][0].unit != 0;
}

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

static void pack_words(const field *f, const uint8_t *const rows[TILE_ROWS], int64_t at,
                       uint8_t *out)
{
    for (int u = 0; u < f->n_bytes / 4; u++) {
        for (int r = 0; r < TILE_ROWS; r++) {
            uint32_t word;
            memcpy(&word, rows[r] + at + f->offset + 4 * u, 4);
            if (f->how == ADD_128)
                word ^= 0x80808080;
            else if (f->how == GATHER_BITS)
                word = gather_bits(word);
            memcpy(out + 4 * (u * TILE_ROWS + r), &word, 4);
        }
    }
}

static void pack_field(const field *f, const uint8_t *const rows[TILE_ROWS], int64_t at,
                       uint8_t *out)
{
    switch (f->unit) {
    case 4:
        pack_words(f, rows, at, out);
        break;
    case 2:
        for (int r = 0; r < TILE_ROWS; r++)
            memcpy(out + 2 * r, rows[r] + at + f->offset, 2);
        break;
    default:
        for (int u = 0; u < f->n_bytes; u++)
            for (int r = 0; r < TILE_ROWS; r++)
                out[u * TILE_ROWS + r] = rows[r][at + f->offset + u];
    }
}

/* Rows of the file's blocks, and a row of zeros in place of those below the matrix. */
typedef struct panel {
    const uint8_t *rows[TILE_ROWS];
    int n_rows;
} panel;

static panel panel_view(const uint8_t *blocks, uint64_t stride, int64_t row, int64_t row_end)
{
    panel p = {.n_rows = row_end - row < TILE_ROWS ? (int)(row_end - row) : TILE_ROWS};
    for (int r = 0; r < p.n_rows; r++)
        p.rows[r] = blocks + (uint64_t)(row + r) * stride;
    return p;
}

void tiles_pack(dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols,
                int64_t row_begin, int64_t row_end, uint8_t *out)
{
    static const uint8_t zeros[sizeof(block_q6_k) + sizeof(block_q5_k)];
    const dtype_info *info = dtype_describe(type);
    uint64_t stride = row_bytes(type, n_cols);
    int64_t n_blocks = n_cols / info->block_values;
    assert(row_begin % TILE_ROWS == 0 && row_end <= n_rows);
    assert((size_t)info->block_bytes <= sizeof zeros);

    for (int64_t row = row_begin; row < row_end; row += TILE_ROWS) {
        panel p = panel_view(blocks, stride, row, row_end);
        uint8_t *at = out + (uint64_t)row * stride;
        for (int64_t b = 0; b < n_blocks; b++) {
            const uint8_t *rows[TILE_ROWS];
            for (int r = 0; r < TILE_ROWS; r++)
                rows[r] = r < p.n_rows ? p.rows[r] + b * info->block_bytes : zeros;
            for (const field *f = layouts[type]; f->unit; f++) {
                pack_field(f, rows, 0, at);
                at += f->n_bytes * TILE_ROWS;
            }
        }
    }
}
