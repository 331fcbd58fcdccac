/*
 * How much may be done for somebody: a bound on the processor time of the calling thread, and a
 * question that is asked now and then, whether anybody still waits for the result.
 *
 * Long loops count what they do in small units, of some 10 to 50 ns each:
 *
 *     while (...) {
 *         if (!work_goes_on(limit, 1))
 *             return work_limit_error(limit, "the grammar", err);
 *         ...
 *     }
 *
 * Processor time, not the clock: what is accepted on an idle machine is accepted on a busy one.
 */
#ifndef LACE_BASE_WORK_LIMIT_H
#define LACE_BASE_WORK_LIMIT_H

#include "base/status.h"

typedef struct work_limit {
    uint64_t max_ns;                 /* of the thread's processor time; 0: no bound */
    bool (*is_unwanted)(void *user); /* NULL: nobody is asked */
    void *user;
    uint64_t end_ns;  /* when max_ns are over */
    uint32_t n_units; /* since the clock was last looked at */
    bool is_over;     /* stays so */
    bool was_unwanted;
} work_limit;

enum { WORK_UNITS_A_LOOK = 4096 };

/* Begins to count, on the thread that will do the work. */
void work_limit_init(work_limit *l, uint64_t max_ns, bool (*is_unwanted)(void *), void *user);

/* Looks at the clock and asks; what work_goes_on does from time to time. */
bool work_limit_look(work_limit *l);

/* Count some units. False: stop. NULL is no limit at all. */
static inline bool work_goes_on(work_limit *l, uint32_t n_units)
{
    if (!l)
        return true;
    l->n_units += n_units;
    if (l->n_units < WORK_UNITS_A_LOOK)
        return !l->is_over;
    l->n_units = 0;
    return work_limit_look(l);
}

/* Why it stopped, about `what`, "the grammar". */
lace_status work_limit_error(const work_limit *l, const char *what, lace_error *err);

/* Processor time of the calling thread. */
uint64_t work_thread_ns(void);

#endif
