/* Rows of a file into tiles. */
#include "backend/vulkan/weight_tiles.h"

#include <string.h>

/* Pieces of a row for each type; Q6_K's scales d, two pieces for 16 rows, lie behind all rows. */
uint32_t tile_pieces(dtype type)
{
    switch (type) {
    case DTYPE_F32:
        return 64 * TILE_ROWS;
    case DTYPE_F16:
    case DTYPE_BF16:
        return 32 * TILE_ROWS;
    case DTYPE_Q8_0:
        return 17 * TILE_ROWS;
    case DTYPE_Q4_0:
    case DTYPE_Q4_K:
        return 9 * TILE_ROWS;
    case DTYPE_Q4_1:
        return 10 * TILE_ROWS;
    case DTYPE_Q5_0:
    case DTYPE_Q5_K:
        return 11 * TILE_ROWS;
    case DTYPE_Q5_1:
        return 12 * TILE_ROWS;
    case DTYPE_Q6_K:
        return 13 * TILE_ROWS + 2;
    default:
        return 0;
    }
}

/* Where pieces begin: bits above the nibbles, and scales. */
enum { NIBBLES = 8, SCALES_4 = 8, HIGH = 8, SCALES_5 = 10, SCALES_6 = 12, SCALES_8 = 16 };

static uint8_t *piece(uint8_t *tile, int p, int r)
{
    return tile + (p * TILE_ROWS + r) * PIECE_BYTES;
}

/* 32 numbers below 16 (more: their low bits) to the nibbles of block b. */
static void put_nibbles(uint8_t *tile, int r, int b, const uint8_t *q)
{
    uint8_t *to = piece(tile, b, r);
    for (int c = 0; c < 32; c++)
        to[c / 8 * 4 + c % 4] |= (uint8_t)((q[c] & 15) << (c % 8 / 4 * 4));
}

/* Bit 4 of 32 numbers: of column c in bit c / 4 of byte c % 4 of the block's word. */
static void put_fifth_bits(uint8_t *tile, int r, int b, const uint8_t *q)
{
    uint8_t *to = piece(tile, HIGH + b / 4, r) + b % 4 * 4;
    for (int c = 0; c < 32; c++)
        to[c % 4] |= (uint8_t)((q[c] >> 4 & 1) << (c / 4));
}

/* Bits 4 and 5, two words for a block: of column c in bits 2 (c / 4 % 4) of byte c % 4. */
static void put_high_bits(uint8_t *tile, int r, int b, const uint8_t *q)
{
    uint8_t *to = piece(tile, HIGH + b / 2, r) + b % 2 * 8;
    for (int c = 0; c < 32; c++)
        to[c / 16 * 4 + c % 4] |= (uint8_t)((q[c] >> 4) << (2 * (c / 4 % 4)));
}

static void split_nibbles(const uint8_t *bytes, uint8_t *q)
{
    for (int i = 0; i < 16; i++) {
        q[i] = bytes[i] & 15;
        q[i + 16] = bytes[i] >> 4;
    }
}

/* A block of 32 of the types that have such. b: which of its tile. */
static void pack_block(dtype type, const uint8_t *from, int b, int r, uint8_t *tile)
{
    uint8_t q[32];
    bool has_min = type == DTYPE_Q4_1 || type == DTYPE_Q5_1;
    bool has_fifth = type == DTYPE_Q5_0 || type == DTYPE_Q5_1;
    int scales = type == DTYPE_Q8_0 ? SCALES_8 : has_fifth ? SCALES_5 : SCALES_4;
    memcpy(piece(tile, scales, r) + 2 * b, from, 2);
    if (has_min)
        memcpy(piece(tile, scales + 1, r) + 2 * b, from + 2, 2);
    from += has_min ? 4 : 2;
    if (type == DTYPE_Q8_0) {
        memcpy(piece(tile, 2 * b, r), from, 16);
        memcpy(piece(tile, 2 * b + 1, r), from + 16, 16);
        return;
    }
    split_nibbles(from + (has_fifth ? 4 : 0), q);
    for (int i = 0; has_fifth && i < 32; i++)
        q[i] |= (uint8_t)((from[i / 8] >> (i % 8) & 1) << 4);
    put_nibbles(tile, r, b, q);
    if (has_fifth)
        put_fifth_bits(tile, r, b, q);
}

static void pack_q45_k(dtype type, const uint8_t *from, int r, uint8_t *tile)
{
    bool has_fifth = type == DTYPE_Q5_K;
    const uint8_t *high = from + 16, *low = from + (has_fifth ? 48 : 16);
    memcpy(piece(tile, has_fifth ? SCALES_5 : SCALES_4, r), from, 16);
    for (int b = 0; b < 8; b++) {
        uint8_t q[32];
        for (int i = 0; i < 32; i++) {
            q[i] = low[b / 2 * 32 + i] >> (b % 2 * 4) & 15;
            if (has_fifth)
                q[i] |= (uint8_t)((high[i] >> b & 1) << 4);
        }
        put_nibbles(tile, r, b, q);
        if (has_fifth)
            put_fifth_bits(tile, r, b, q);
    }
}

static void pack_q6_k(const uint8_t *from, int r, uint8_t *tile)
{
    for (int b = 0; b < 8; b++) {
        uint8_t q[32];
        int h = b / 4, part = b % 4; /* 128 columns, and which quarter of them */
        for (int i = 0; i < 32; i++) {
            int low = from[64 * h + part % 2 * 32 + i] >> (part / 2 * 4) & 15;
            q[i] = (uint8_t)(low | (from[128 + 32 * h + i] >> (2 * part) & 3) << 4);
        }
        put_nibbles(tile, r, b, q);
        put_high_bits(tile, r, b, q);
    }
    memcpy(piece(tile, SCALES_6, r), from + 192, 16);
    memcpy(piece(tile, SCALES_6 + 1, 0) + 2 * r, from + 208, 2);
}

/* Values that are numbers by themselves. */
static void pack_values(const uint8_t *from, int64_t n_bytes, int r, uint8_t *tile)
{
    for (int p = 0; p * PIECE_BYTES < n_bytes; p++) {
        int64_t left = n_bytes - p * PIECE_BYTES;
        memcpy(piece(tile, p, r), from + p * PIECE_BYTES,
               (size_t)(left < PIECE_BYTES ? left : PIECE_BYTES));
    }
}

void tile_pack_row(dtype type, const uint8_t *row, int64_t n_cols, int r, uint8_t *strip)
{
    uint64_t tile_bytes = (uint64_t)tile_pieces(type) * PIECE_BYTES;
    for (int64_t t = 0; t < tiles_across(n_cols); t++) {
        uint8_t *tile = strip + (uint64_t)t * tile_bytes;
        int64_t first = t * TILE_COLS, n = n_cols - first < TILE_COLS ? n_cols - first : TILE_COLS;
        const uint8_t *from = row + row_bytes(type, first);
        switch (type) {
        case DTYPE_F32:
        case DTYPE_F16:
        case DTYPE_BF16:
            pack_values(from, (int64_t)row_bytes(type, n), r, tile);
            break;
        case DTYPE_Q4_K:
        case DTYPE_Q5_K:
            pack_q45_k(type, from, r, tile);
            break;
        case DTYPE_Q6_K:
            pack_q6_k(from, r, tile);
            break;
        default:
            for (int b = 0; b < n / 32; b++)
                pack_block(type, from + row_bytes(type, 32 * b), b, r, tile);
        }
    }
}
