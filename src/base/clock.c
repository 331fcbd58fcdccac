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

struct timespec clock_after(uint64_t ns)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t end = (uint64_t)t.tv_nsec + ns;
    t.tv_sec += (time_t)(end / UINT64_C(1000000000));
    t.tv_nsec = (long)(end % UINT64_C(1000000000));
    return t;
}
