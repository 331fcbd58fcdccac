/* Sums of products of 16 rows, which all matrix instructions are made of, and the values of packed
 * numbers. */
#ifndef LACE_TESTS_CARD_MATRIX_SUMS_H
#define LACE_TESTS_CARD_MATRIX_SUMS_H

#include "warp_matrix.h"

enum { MATRIX_ROWS = 16, MATRIX_MOST_COLS = 256, MATRIX_MOST_DEEP = 64 };

/* sums[16][n] += a[16][k] x b[k][n]; n is a multiple of 8. Whole numbers wrap around. */
void matrix_add_floats(int n, int k, const double *a, const double *b, double *sums);
void matrix_add_wholes(int n, int k, const uint32_t *a, const uint32_t *b, uint32_t *sums);

bool matrix_is_bytes(matrix_type t);

/* n numbers that lie packed. */
void matrix_floats(matrix_type t, int n, const uint16_t *from, double *out);
void matrix_wholes(matrix_type t, int n, const uint8_t *from, uint32_t *out);

float float_of_bits(uint32_t bits);
uint32_t bits_of_float(float x);

#endif
