/*
 * Matrices as fast shaders read them: tiles of 16 rows and 256 columns, all tiles of rows 0 to 15
 * first. A tile is pieces of 16 bytes, piece p of row r at 16 p + r, so that 16 threads, each with a
 * row of its own, read memory that lies together. What rows and columns a matrix lacks is zeros.
 *
 * Which piece has what is said in tiles.glsl, which reads them. Tables, whose rows are looked up, and
 * types without tiles stay in rows.
 */
#ifndef LACE_BACKEND_VULKAN_WEIGHT_TILES_H
#define LACE_BACKEND_VULKAN_WEIGHT_TILES_H

#include "tensor/dtype.h"

enum { TILE_ROWS = 16, TILE_COLS = 256, PIECE_BYTES = 16 };

/* Pieces of a tile; 0: the type has none. */
uint32_t tile_pieces(dtype type);

/* Tiles in which so many columns lie. */
static inline int64_t tiles_across(int64_t n_cols)
{
    return (n_cols + TILE_COLS - 1) / TILE_COLS;
}

/* A row as in a file becomes row r of its strip of tiles, whose bytes were zeros. */
void tile_pack_row(dtype type, const uint8_t *row, int64_t n_cols, int r, uint8_t *strip);

#endif
