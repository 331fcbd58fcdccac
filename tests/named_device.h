/*
 * The device that LACE_DEVICE names, for tests that may run on another one than they usually do.
 */
#ifndef LACE_TESTS_NAMED_DEVICE_H
#define LACE_TESTS_NAMED_DEVICE_H

#include <stdbool.h>

/* NULL if none is named. */
const char *named_device(void);

/* Whether a model can be opened there. If not, a case fails that says why: its cases need not begin.
 * Where none is named, the one that models usually have. */
bool named_device_opens(void);

#endif
