/*
 * Random numbers that are the same on every platform: xoshiro256** (Blackman and Vigna, 2018),
 * its state filled from a seed by splitmix64.
 */
#ifndef LACE_BASE_RANDOM_H
#define LACE_BASE_RANDOM_H

#include <stdint.h>

typedef struct random_state {
    uint64_t s[4]; /* never all zero */
} random_state;

void random_init(random_state *r, uint64_t seed); /* any seed will do, 0 too */
uint64_t random_bits(random_state *r);
double random_unit(random_state *r); /* in [0, 1), a multiple of 2^-53 */

#endif
