/* M4 matrices to tiles (gpu_tiles.h). */
#include <string.h>

#include "backend/cuda/gpu.h"
#include "tensor/sparse.h"

enum { SCALES = 2048, SIX = 8 /* the code of the level that zeros take the place of */ };

/* Values of masks 0-3 are low nibbles, those of masks 4-7 high ones, of the same bytes. */
static int count_bytes(const uint8_t *masks)
{
    int n[2] = {0, 0};
    for (int i = 0; i < 8; i++)
        n[i / 4] += __builtin_popcountll(load_u64(masks + 8 * i));
    return n[0] > n[1] ? n[0] : n[1];
}

bool gpu_holds_m4(const uint8_t *where, int64_t n, int64_t n_cols)
{
    for (int64_t p = 0; p < n; p++) {
        const uint8_t *at = sparse_panel(where, p);
        for (int64_t col = 0; col < n_cols; col += SPARSE_TILE) {
            if (col % SPARSE_GROUP == 0)
                at += SPARSE_PANEL;
            int bytes = count_bytes(at);
            at += 8 * 8;
            /* What is left over in the last bytes is 0, another code. */
            for (int i = 0; i < bytes; i++)
                if ((at[i] & 15) == SIX || at[i] >> 4 == SIX)
                    return false;
            at += bytes;
        }
    }
    return true;
}

/* 32 columns of 16 rows, number `part` of a tile. Returns what follows them. */
static const uint8_t *pack_part(const uint8_t *at, uint8_t *tile, int part)
{
    const uint8_t *values = at + 8 * 8;
    int n[2] = {0, 0};
    for (int i = 0; i < 8; i++) {
        /* Four columns are four nibbles of a word: two bytes. */
        uint8_t *words = tile + 512 * (part / 2) + 16 * (i / 2) + 8 * (i % 2) + 2 * (part % 2);
        for (uint64_t mask = load_u64(at + 8 * i); mask; mask &= mask - 1) {
            int bit = __builtin_ctzll(mask), row = bit / 4, c = bit % 4;
            int code = values[n[i / 4]++] >> 4 * (i / 4) & 15;
            int level = code < 8 ? 15 - code : code - 8; /* sign and magnitude */
            words[64 * (row % 8) + 4 * (row / 8) + c / 2] |= (uint8_t)(level << 4 * (c % 2));
        }
    }
    return values + (n[0] > n[1] ? n[0] : n[1]);
}

void gpu_pack_m4(const uint8_t *where, int64_t first, int64_t n, int64_t n_cols, uint8_t *tiles)
{
    int64_t across = (n_cols + TILE_COLS_M4 - 1) / TILE_COLS_M4;
    for (int64_t p = 0; p < n; p++) {
        const uint8_t *at = sparse_panel(where, first + p);
        uint8_t *panel = tiles + (uint64_t)(p * across) * TILE_BYTES_M4;
        memset(panel, 0, (size_t)across * TILE_BYTES_M4);
        for (int64_t col = 0; col < n_cols; col += SPARSE_TILE) {
            uint8_t *tile = panel + col / TILE_COLS_M4 * TILE_BYTES_M4;
            if (col % SPARSE_GROUP == 0) {
                for (int row = 0; row < SPARSE_PANEL; row++)
                    tile[SCALES + 2 * row + col % TILE_COLS_M4 / SPARSE_GROUP] = at[row];
                at += SPARSE_PANEL;
            }
            at = pack_part(at, tile, (int)(col % TILE_COLS_M4 / SPARSE_TILE));
        }
    }
}
