/*
 * Merging symbols pairwise, best pair first: what BPE and SentencePiece have in common. Symbols
 * form a linked list, candidates a heap, so n symbols take O(n log n).
 */
#ifndef LACE_TOKENIZER_MERGE_H
#define LACE_TOKENIZER_MERGE_H

#include "base/status.h"

typedef struct symbol {
    int32_t id;              /* the caller's; of the merged symbol after a merge */
    uint32_t start, n_bytes; /* in the caller's text; n_bytes 0: merged into the one before */
    int32_t prev, next;      /* -1 at the ends */
} symbol;

typedef struct merge_candidate {
    uint64_t key;     /* rank, then index of the left symbol: the lowest is merged first */
    uint32_t n_bytes; /* of both; another number later on means that one of them has changed */
    int32_t id;       /* of the result */
} merge_candidate;

typedef struct merger {
    symbol *symbols; /* symbols[0] is the first of the list */
    size_t n_symbols, symbols_capacity;
    merge_candidate *heap;
    size_t n_heap, heap_capacity;
} merger;

void merger_deinit(merger *m); /* {0} is an empty merger */

/* Forget the symbols and make room for n. */
lace_status merger_reset(merger *m, size_t n);
/* Append a symbol, within the room made. */
void merger_add(merger *m, int32_t id, size_t start, size_t n_bytes);

/* Whether two neighbours merge, with which rank (lower is sooner), and into what. */
typedef bool (*merge_fn)(const void *context, const symbol *left, const symbol *right,
                         uint32_t *rank, int32_t *id);

lace_status merger_run(merger *m, merge_fn fn, const void *context);

#endif
