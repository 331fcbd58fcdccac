/* Memory of the cards: allocations of the host's memory, and which card may touch which. */
#ifndef TESTS_CARD_CARD_MEMORY_H
#define TESTS_CARD_CARD_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EVERY_CARD = -1 };

/* Poisoned memory of this card; NULL if the budget does not have it. */
void *memory_take(int card, size_t n_bytes, uint64_t budget);
void memory_give(void *address);
uint64_t memory_used(int card);

/* Memory that others own, and the cards may touch. */
bool memory_add(int card, void *address, size_t n_bytes);
void memory_drop(void *address);

/* The allocation of this card, or of every card, that an address lies in. */
bool memory_span(int card, uint64_t address, uint64_t *from, uint64_t *to);

/* Changes when something was given back: what memory_span said before may be wrong. */
uint64_t memory_epoch(void);

#endif
