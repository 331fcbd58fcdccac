/* Packing with vectors of 16 bytes, which every processor of lace's has. */
#include "backend/cpu/tiles.h"

#include <assert.h>
#include <string.h>

#include "backend/cpu/unroll.h"
#include "tensor/blocks.h"

static int64_t n_panels(int64_t n_rows)
{
    return (n_rows + TILE_ROWS - 1) / TILE_ROWS;
}

uint64_t tiles_packed_bytes(dtype type, int64_t n_rows, int64_t n_cols)
{
    return (uint64_t)n_panels(n_rows) * TILE_ROWS * row_bytes(type, n_cols);
}

typedef uint32_t words4 __attribute__((vector_size(16)));

#define LOW_OF(a, b)  __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH_OF(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)

static words4 load_16(const uint8_t *at)
{
    words4 x;
    memcpy(&x, at, 16);
    return x;
}

/* 16 bytes of each row, at `offset`, become 4 vectors of words, `apart` bytes from each other. */
INLINE void weave_words(const uint8_t *const rows[TILE_ROWS], int offset, uint32_t flips,
                        uint8_t *out, int64_t apart)
{
    const words4 flip = {flips, flips, flips, flips};
    UNROLL
    for (int r = 0; r < TILE_ROWS; r += 4, out += 16) {
        words4 a = load_16(rows[r] + offset) ^ flip, b = load_16(rows[r + 1] + offset) ^ flip;
        words4 c = load_16(rows[r + 2] + offset) ^ flip, d = load_16(rows[r + 3] + offset) ^ flip;
        words4 ac = LOW_OF(a, c), bd = LOW_OF(b, d), AC = HIGH_OF(a, c), BD = HIGH_OF(b, d);
        words4 x[4] = {LOW_OF(ac, bd), HIGH_OF(ac, bd), LOW_OF(AC, BD), HIGH_OF(AC, BD)};
        for (int k = 0; k < 4; k++)
            memcpy(out + k * apart, &x[k], 16);
    }
}

#define TILES_PACK tiles_pack
#include "backend/cpu/pack_tiles_tmpl.c"
