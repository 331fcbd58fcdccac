/*
 * An index of texts by their prefixes: the texts sorted, and a walk that narrows a range of them
 * byte by byte. It does what a trie does in four bytes a text.
 */
#ifndef LACE_TOKENIZER_PREFIX_H
#define LACE_TOKENIZER_PREFIX_H

#include "base/bytes.h"

typedef struct prefix_entry {
    text key;
    int32_t id;
} prefix_entry;

typedef struct prefix_index {
    prefix_entry *entries; /* sorted by key, then id */
    size_t n_entries;
    uint32_t first[257]; /* entries whose first byte is c are [first[c], first[c + 1]) */
} prefix_index;

/* Index entries[n], which are sorted in place and borrowed. Keys are not empty. */
void prefix_index_init(prefix_index *index, prefix_entry *entries, size_t n);

/* A walk along a text: the entries that begin with the bytes seen so far. */
typedef struct prefix_walk {
    uint32_t low, high; /* none if equal */
    uint32_t depth;     /* bytes seen */
} prefix_walk;

prefix_walk prefix_begin(const prefix_index *index, unsigned char first);
bool prefix_next(const prefix_index *index, prefix_walk *walk, unsigned char byte);

/* The lowest id whose key is exactly the bytes seen, or -1. */
int32_t prefix_id(const prefix_index *index, const prefix_walk *walk);

#endif
