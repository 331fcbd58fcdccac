/* One tile of sums, 16 rows of 8 columns, which all matrix instructions are made of, and the values of
 * packed numbers. */
#ifndef LACE_TESTS_CARD_MATRIX_SUMS_H
#define LACE_TESTS_CARD_MATRIX_SUMS_H

#include "warp_matrix.h"

enum { MATRIX_ROWS = 16, MATRIX_COLS = 8, MATRIX_MOST_DEEP = 64 };

/*
 * d = a[16][k] x b[k][8], and c if it is not NULL. c and d are four registers: lane 4 r + c has columns
 * 2 c and 2 c + 1 of row r in the first two, and of row r + 8 in the others. They may be the same.
 * Whole numbers wrap around.
 */
void matrix_tile_floats(int k, const double *a, const double *b, uint32_t *const *c,
                        uint32_t *const *d);
void matrix_tile_wholes(int k, const uint32_t *a, const uint32_t *b, uint32_t *const *c,
                        uint32_t *const *d);

/* [8][k] to [k][8]; k is a multiple of 8. */
void matrix_turn_floats(int k, const double *from, double *to);
void matrix_turn_wholes(int k, const uint32_t *from, uint32_t *to);

bool matrix_is_bytes(matrix_type t);

/* n numbers that lie packed. */
void matrix_floats(matrix_type t, int n, const uint16_t *from, double *out);
void matrix_wholes(matrix_type t, int n, const uint8_t *from, uint32_t *out);

float float_of_bits(uint32_t bits);
uint32_t bits_of_float(float x);

#endif
