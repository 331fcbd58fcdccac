/* Between checkkernels.c and check_data.c. */
#ifndef LACE_TESTS_CHECK_INTERNAL_H
#define LACE_TESTS_CHECK_INTERNAL_H

#include <stdint.h>

void check_seed(uint64_t seed);
void check_release(void); /* look at the guards of all memory, and free it */
__attribute__((format(printf, 1, 2))) void check_fail(const char *format, ...);

#endif
