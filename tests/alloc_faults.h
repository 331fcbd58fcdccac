/* Memory that runs out in a test: each allocation of a call fails in its turn. */
#ifndef LACE_TESTS_ALLOC_FAULTS_H
#define LACE_TESTS_ALLOC_FAULTS_H

#include <stdbool.h>

#include "lace.h"

/*
 * Call `fn` again and again, with its first allocation failing, then its second, and so on until a
 * call has fewer; `forever`: all later ones fail too. The last call must return LACE_OK, each other one
 * LACE_E_NOMEM. `fn` gives back what it made. A note says how many allocations there were.
 */
long fail_each_allocation(lace_status (*fn)(lace_error *err), bool forever);

#endif
