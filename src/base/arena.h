/* An arena: many small allocations with one lifetime, freed together. */
#ifndef LACE_BASE_ARENA_H
#define LACE_BASE_ARENA_H

#include "base/status.h"

typedef struct arena_chunk arena_chunk;

typedef struct arena {
    arena_chunk *newest; /* chunks in a list, newest first */
    size_t used;         /* bytes handed out */
    size_t max;          /* never hands out more than this */
} arena;

void arena_init(arena *a, size_t max);
void arena_deinit(arena *a); /* frees everything that came from it */

/* n objects of the given size, zeroed, aligned to 64 bytes if that large, else to 16. NULL when
 * the product overflows, the maximum is reached or memory is out. */
void *arena_alloc(arena *a, size_t n, size_t size);
char *arena_strndup(arena *a, const char *text, size_t n);

#endif
