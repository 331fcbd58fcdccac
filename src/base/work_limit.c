/* Bounds on the work that is done for somebody. */
#define _POSIX_C_SOURCE 200809L
#include "base/work_limit.h"

#include <time.h>

uint64_t work_thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void work_limit_init(work_limit *l, uint64_t max_ns, bool (*is_unwanted)(void *), void *user)
{
    *l = (work_limit){.max_ns = max_ns, .is_unwanted = is_unwanted, .user = user};
    l->end_ns = max_ns ? work_thread_ns() + max_ns : UINT64_MAX;
}

bool work_limit_look(work_limit *l)
{
    if (l->is_unwanted && l->is_unwanted(l->user))
        l->is_over = l->was_unwanted = true;
    if (l->max_ns && work_thread_ns() > l->end_ns)
        l->is_over = true;
    return !l->is_over;
}

lace_status work_limit_error(const work_limit *l, const char *what, lace_error *err)
{
    if (l->was_unwanted)
        return error_set(err, LACE_E_LIMIT, "%s was cancelled: the request is gone", what);
    return error_set(err, LACE_E_LIMIT, "%s takes longer than %d ms to prepare", what,
                     (int)(l->max_ns / 1000000));
}
