/* Memory that runs out in a test. */
#include "alloc_faults.h"

#include "base/mem.h"
#include "tap.h"

long fail_each_allocation(lace_status (*fn)(lace_error *err), bool forever)
{
    enum { MOST = 100000 };
    for (long i = 0; i < MOST; i++) {
        lace_error err = {0};
        mem_fail_at(i, forever);
        lace_status status = fn(&err);
        long n = mem_count();
        mem_fail_at(-1, false);
        if (i >= n) {
            if (!CHECK(status == LACE_OK))
                tap_note("without a failure: %s", err.text);
            tap_note("%ld allocations failed %s", n, forever ? "and all after them" : "once");
            return n;
        }
        if (!CHECK(status == LACE_E_NOMEM && err.status == LACE_E_NOMEM))
            tap_note("allocation %ld: %s, %s", i, lace_status_name(status), err.text);
    }
    CHECK(!"the allocations come to an end");
    return MOST;
}
