/*
 * Allocation: which of several sizes each tensor gets, so that all together fit a budget and the
 * sum of what they cost is small. Greedy by gain for each byte, then exchanges of two, then trades
 * in which one tensor becomes larger at the cost of as many others as it takes.
 */
#ifndef LACE_COMPRESS_ALLOCATE_H
#define LACE_COMPRESS_ALLOCATE_H

#include <stddef.h>
#include <stdint.h>

enum { ALLOCATE_CHOICES = 16 };

typedef struct allocate_item {
    int n; /* choices, in the order of size */
    uint64_t n_bytes[ALLOCATE_CHOICES];
    double cost[ALLOCATE_CHOICES];
    int chosen;
} allocate_item;

/* Sets `chosen`. Returns the bytes of all; more than the budget if the least do not fit. */
uint64_t allocate(allocate_item *items, size_t n_items, uint64_t budget);

#endif
