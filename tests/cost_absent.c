/* Costs on Windows, where no process can be copied: most are not measured. */
#include "cost.h"

#include "base/clock.h"
#include "tap.h"

static void skip(void *arg)
{
    tap_skip("time and memory are measured in copies of a process");
}

void cost_check(const cost_subject *s)
{
    tap_case_arg(s->name, skip, NULL);
}

call_cost cost_of_call(int (*call)(const void *arg), const void *arg)
{
    uint64_t begin = clock_used_ns();
    int code = call(arg);
    return (call_cost){.code = code, .ms = (double)(clock_used_ns() - begin) * 1e-6};
}

double cost_peak_bytes(void)
{
    return 0;
}
