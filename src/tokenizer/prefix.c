/* An index of texts by their prefixes. */
#include "tokenizer/prefix.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    const prefix_entry *x = a, *y = b;
    size_t n = x->key.size < y->key.size ? x->key.size : y->key.size;
    int order = memcmp(x->key.data, y->key.data, n);
    if (order)
        return order;
    if (x->key.size != y->key.size)
        return x->key.size < y->key.size ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

void prefix_index_init(prefix_index *index, prefix_entry *entries, size_t n)
{
    if (n > 1)
        qsort(entries, n, sizeof *entries, compare);
    index->entries = entries;
    index->n_entries = n;
    size_t at = 0;
    for (unsigned c = 0; c < 256; c++) {
        index->first[c] = (uint32_t)at;
        while (at < n && (unsigned char)entries[at].key.data[0] == c)
            at++;
    }
    index->first[256] = (uint32_t)n;
}

prefix_walk prefix_begin(const prefix_index *index, unsigned char first)
{
    return (prefix_walk){index->first[first], index->first[first + 1], 1};
}

/* The byte of an entry at a depth; -1 behind its end, which sorts first. */
static int byte_at(const prefix_index *index, uint32_t entry, uint32_t depth)
{
    text key = index->entries[entry].key;
    return depth < key.size ? (unsigned char)key.data[depth] : -1;
}

/* The first entry in [low, high) whose byte at `depth` is at least `byte`. */
static uint32_t lower_bound(const prefix_index *index, uint32_t low, uint32_t high, uint32_t depth,
                            int byte)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (byte_at(index, middle, depth) < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool prefix_next(const prefix_index *index, prefix_walk *walk, unsigned char byte)
{
    uint32_t depth = walk->depth++;
    walk->low = lower_bound(index, walk->low, walk->high, depth, byte);
    walk->high = lower_bound(index, walk->low, walk->high, depth, byte + 1);
    return walk->low < walk->high;
}

int32_t prefix_id(const prefix_index *index, const prefix_walk *walk)
{
    if (walk->low == walk->high || index->entries[walk->low].key.size != walk->depth)
        return -1;
    return index->entries[walk->low].id;
}
