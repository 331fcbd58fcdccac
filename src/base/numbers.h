/* Small arithmetic on counts and sizes that many files need. */
#ifndef LACE_BASE_NUMBERS_H
#define LACE_BASE_NUMBERS_H

#include <stdint.h>

/* The least multiple of `to` that is not below n. The sum n + to - 1 must fit into 64 bits. */
static inline uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* How many groups of `by` hold n things, n >= 0: the last one may be smaller. */
static inline int64_t divide_up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
