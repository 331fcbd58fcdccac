/*
 * An index of texts for scanning others: after each byte of a text it tells which of the indexed
 * ones end there, in time that does not depend on how long they are (the automaton of Aho and
 * Corasick). It is also a trie, to walk down from the root.
 *
 * States are numbers, 0 is the root. The children of a state lie one after the other, sorted, so a
 * state takes 17 bytes.
 */
#ifndef LACE_TOKENIZER_SCAN_H
#define LACE_TOKENIZER_SCAN_H

#include "base/arena.h"
#include "base/bytes.h"

enum {
    SCAN_MAX_BYTES = 16 << 20, /* of all texts together */
    SCAN_MAX_NESTED = 256,     /* texts that end at one place: each is the end of the next longer */
};

typedef struct scan_entry {
    text key;
    int32_t id;
} scan_entry;

typedef struct scan_index {
    uint32_t n_states;
    uint32_t *first_child; /* [n_states + 1] */
    uint8_t *labels;       /* [n_states] the byte that leads to it */
    uint32_t *fallbacks;   /* [n_states] the longest end of its text that is a state, too */
    uint32_t *shorter;     /* [n_states] the longest one of these that is an indexed text, or 0 */
    int32_t *ids;          /* [n_states] of its text, if that is indexed, or -1 */
    uint32_t of_byte[256]; /* the root's child, or 0 */
} scan_index;

/*
 * Index entries[n], which are sorted in place; keys are not empty, and of equal ones the lowest id
 * counts. LACE_E_LIMIT if the limits above are exceeded.
 */
lace_status scan_init(scan_index *s, scan_entry *entries, size_t n, arena *memory);

/* The child of a state, or 0. */
uint32_t scan_child(const scan_index *s, uint32_t state, unsigned char byte);

/* The state after one more byte. */
uint32_t scan_next(const scan_index *s, uint32_t state, unsigned char byte);

/* The state of the longest indexed text that ends here, or 0; the next ones are in `shorter`. */
static inline uint32_t scan_longest(const scan_index *s, uint32_t state)
{
    return s->ids[state] >= 0 ? state : s->shorter[state];
}

#endif
