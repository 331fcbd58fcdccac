/* Time that only moves forward. */
#ifndef LACE_BASE_CLOCK_H
#define LACE_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_ns(void);

#endif
