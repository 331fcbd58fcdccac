/* Fat binaries as nvcc makes them: PTX text of one architecture or more. */
#ifndef TESTS_CARD_FATBIN_H
#define TESTS_CARD_FATBIN_H

#include <stdint.h>

/*
 * The text for the highest architecture that a card of this one runs (80 for 8.0), made by malloc;
 * text for 9.0 that only such cards run counts for these alone. NULL: there is none. *arch: whose.
 */
char *fatbin_ptx(const void *image, uint32_t card_arch, uint32_t *arch);

#endif
