/* Time that only moves forward, and the time of day. */
#define _DEFAULT_SOURCE /* timegm */
#include "base/clock.h"

#include <time.h>

uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_used_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int64_t clock_wall_seconds(void)
{
    time_t now = time(NULL);
    struct tm local;
    return (int64_t)(localtime_r(&now, &local) ? timegm(&local) : now);
}
