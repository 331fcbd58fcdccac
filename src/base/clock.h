/* Time that only moves forward. */
#ifndef LACE_BASE_CLOCK_H
#define LACE_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_ns(void);

/* Seconds in the unit of clock_ns. */
static inline uint64_t clock_seconds(int64_t n)
{
    return (uint64_t)n * UINT64_C(1000000000);
}

#endif
