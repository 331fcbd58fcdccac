/* Time that only moves forward, and the time of day. */
#ifndef LACE_BASE_CLOCK_H
#define LACE_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

uint64_t clock_ns(void);

/* Processor time that all threads of this process have used. */
uint64_t clock_used_ns(void);

/* Seconds since 1970 as clocks on the wall show them: in the time zone of this place. */
int64_t clock_wall_seconds(void);

/* Seconds in the unit of clock_ns. */
static inline uint64_t clock_seconds(int64_t n)
{
    return (uint64_t)n * UINT64_C(1000000000);
}

/* When so much time will have passed, for a pthread_cond_t of CLOCK_MONOTONIC. */
struct timespec clock_after(uint64_t ns);

#endif
