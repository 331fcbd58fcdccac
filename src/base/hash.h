/*
 * A map from text to a number, with open addressing and a seed drawn once per process, so that a
 * file cannot be written to make every name collide. Keys are borrowed, not copied.
 */
#ifndef LACE_BASE_HASH_H
#define LACE_BASE_HASH_H

#include "base/bytes.h"

typedef struct map_entry {
    text key;
    uint32_t hash;
    int32_t value; /* -1: an empty slot */
} map_entry;

typedef struct map {
    map_entry *entries;
    size_t n_slots; /* a power of two, or 0 */
    size_t n_used;
} map;

void map_init(map *m);
void map_deinit(map *m);
lace_status map_reserve(map *m, size_t n); /* room for n keys; LACE_E_NOMEM */

/* Add key -> value (value >= 0). LACE_E_DUP if the key is there (it keeps its value). */
lace_status map_add(map *m, text key, int32_t value);
int32_t map_find(const map *m, text key); /* -1 if absent */

/* The hash itself (seeded). */
uint32_t hash_bytes(const void *data, size_t n);

#endif
