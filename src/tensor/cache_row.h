/*
 * Rows of a KV cache: how the values of a head are kept in each type.
 *
 * Types of 8 bits and more keep values as they are. In types of 4 and 5 bits (IQ4_NL and Q5_0)
 * values are rotated first (rotate.h), in spans of up to 128 of a row: a few large values, which
 * keys of most models have at the same places everywhere, would leave too few levels to the others.
 * Attention multiplies rotated keys with a query that is rotated alike, and rotates back the sum of
 * rotated values: two rotations for a query, none for a row that is read.
 */
#ifndef LACE_TENSOR_CACHE_ROW_H
#define LACE_TENSOR_CACHE_ROW_H

#include "tensor/dtype.h"

/* How many values of a row of `dim` values are rotated together; 0: none, or they are not rotated. */
int32_t cache_span(dtype type, int32_t dim);

/* n values, whole spans. out may be x. */
void cache_rotate(const float *x, int32_t n, int32_t span, float *out);
void cache_unrotate(const float *x, int32_t n, int32_t span, float *out);

/* n values of a row, whole blocks and spans. row: row_bytes(type, n) bytes. */
void cache_put(dtype type, int32_t span, const float *x, int32_t n, uint8_t *row);
void cache_get(dtype type, int32_t span, const uint8_t *row, int32_t n, float *out);

#endif
