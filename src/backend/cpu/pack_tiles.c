/* How much memory tiles take. They are packed by pack_tiles_tmpl.c, at each CPU level. */
#include "backend/cpu/tiles.h"

uint64_t tiles_packed_bytes(dtype type, int64_t n_rows, int64_t n_cols)
{
    int64_t n_panels = (n_rows + TILE_ROWS - 1) / TILE_ROWS;
    return (uint64_t)n_panels * TILE_ROWS * row_bytes(type, n_cols);
}
