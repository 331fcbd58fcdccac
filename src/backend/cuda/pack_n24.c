/* N24 matrices to tiles (gpu_tiles.h). */
#include <string.h>

#include "backend/cuda/gpu.h"
#include "tensor/sparse.h"

enum { CODES = 0, PLACES = 1024, SCALES = 1536, ANY_PLACES = 0x44 /* the first two of four */ };

/* The two values of a row in four columns: number `four` of the 32 columns number `part`. */
static void put_pair(uint8_t *tile, int part, int four, int row, const uint8_t codes[2],
                     const int places[2])
{
    int j = part / 2, h = part % 2, r = row % 8, is_high = row / 8;
    uint8_t *word = tile + CODES + 512 * (j / 2) + 16 * (4 * r + four / 2) + 4 * (2 * (j % 2) + h);
    for (int n = 0; n < 2; n++) {
        int level = codes[n] < 8 ? 15 - codes[n] : codes[n] - 8; /* sign and magnitude */
        word[2 * is_high + four % 2] |= (uint8_t)(level << 4 * n);
    }
    uint8_t *at = tile + PLACES + 16 * (4 * r + is_high + 2 * h) + 4 * j + four / 2;
    *at =
        (uint8_t)((*at & ~(15 << 4 * (four % 2))) | (places[0] | places[1] << 2) << 4 * (four % 2));
}

/* 32 columns of 16 rows. Returns what follows them. */
static const uint8_t *pack_part(const uint8_t *at, uint8_t *tile, int part)
{
    const uint8_t *values = at + 8 * 8;
    int n[2] = {0, 0}; /* values so far, of masks 0-3 and of masks 4-7 */
    for (int i = 0; i < 8; i++) {
        uint64_t mask = load_u64(at + 8 * i);
        for (int row = 0; row < SPARSE_PANEL; row++) {
            int places[2] = {0, 1}, found = 0;
            uint8_t codes[2] = {0, 0};
            for (int c = 0; c < 4; c++)
                if (mask >> (4 * row + c) & 1) {
                    codes[found] = values[n[i / 4]++] >> 4 * (i / 4) & 15;
                    places[found++] = c;
                }
            if (found == 2)
                put_pair(tile, part, i, row, codes, places);
        }
    }
    return values + (n[0] > n[1] ? n[0] : n[1]);
}

void gpu_pack_n24(const uint8_t *where, int64_t first, int64_t n, int64_t n_cols, uint8_t *tiles)
{
    int64_t across = (n_cols + TILE_COLS_N24 - 1) / TILE_COLS_N24;
    for (int64_t p = 0; p < n; p++) {
        const uint8_t *at = sparse_panel(where, first + p);
        uint8_t *panel = tiles + (uint64_t)(p * across) * TILE_BYTES_N24;
        memset(panel, 0, (size_t)across * TILE_BYTES_N24);
        for (int64_t t = 0; t < across; t++)
            memset(panel + t * TILE_BYTES_N24 + PLACES, ANY_PLACES, SCALES - PLACES);
        for (int64_t col = 0; col < n_cols; col += SPARSE_TILE) {
            uint8_t *tile = panel + col / TILE_COLS_N24 * TILE_BYTES_N24;
            if (col % SPARSE_GROUP == 0) {
                for (int row = 0; row < SPARSE_PANEL; row++)
                    tile[SCALES + 2 * row + col % TILE_COLS_N24 / SPARSE_GROUP] = at[row];
                at += SPARSE_PANEL;
            }
            at = pack_part(at, tile, (int)(col % TILE_COLS_N24 / SPARSE_TILE));
        }
    }
}
