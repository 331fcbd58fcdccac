/* Random but sane blocks of every type, so that each decoder and kernel can be exercised. */
#ifndef LACE_TESTS_RANDOM_BLOCKS_H
#define LACE_TESTS_RANDOM_BLOCKS_H

#include "tensor/dtype.h"

/* Q6_K comes closest: a scale below 2^-5, times 128, times 32. */
#define RANDOM_BLOCKS_MAX 128.0f

/*
 * Fills n_blocks blocks: random bits, but scales are finite, of both signs, and of a size that
 * keeps all decoded values within +-RANDOM_BLOCKS_MAX. The same seed gives the same blocks. The
 * type is one that kernels compute with.
 */
void random_blocks(dtype type, uint64_t seed, int64_t n_blocks, void *out);

/* The same for floats, evenly spread over [-1, 1). */
void random_floats(uint64_t seed, int64_t n, float *out);

#endif
