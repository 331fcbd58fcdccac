/*
 * The prefix tree: what texts began with, kept in memory for texts to come.
 *
 * A node is a page of the cache with the tokens it was computed from; its parent is the page
 * before. A text that begins like one that was seen shares the pages of the common part, so only
 * the rest is computed. Of the last page a part may be shared: it is copied when it is written.
 *
 *     [The king said to] -- [his son: go and] -- [fetch water]      (pages of 4 tokens)
 *                        \- [the queen that he]
 *
 * Texts have owners, and each owner has a tree of its own: what one has is not found for another.
 *
 * Pages that no sequence holds are given up when room is needed, the least recently used ones
 * first, and always from the ends of the branches. Layers with a window drop their pages on their
 * own; a node without such a page can still be passed, but no text can begin right behind it.
 *
 * In models with recurrent layers, a text can begin only where their state is known: behind a node
 * with a snapshot, and behind all of its tokens. A node takes the snapshot that the sequence keeps
 * where the node ends, if there is one: behind pages where a batch ended, and where a text ends.
 * Snapshots go with their nodes, or alone when another one needs the slot, the least recently used
 * first.
 *
 * With a store (page_store.h), whole pages are also kept in files, and come back from there: when
 * they were given up, or in another process.
 */
#ifndef LACE_STATE_PREFIX_TREE_H
#define LACE_STATE_PREFIX_TREE_H

#include "state/page_store.h"

typedef struct prefix_tree prefix_tree;

/* The states must outlive the tree. They ask it for snapshots to give up. */
lace_status prefix_tree_create(states *kv, prefix_tree **out, lace_error *err);
void prefix_tree_free(prefix_tree *t); /* gives its pages and snapshots back */

/* How many of the n tokens the owner's tree knows; with recurrent layers, can begin with. */
int32_t prefix_tree_find(const prefix_tree *t, uint64_t owner, const int32_t *tokens, int32_t n);

/*
 * Let an empty sequence begin with as many of the tokens as that tree knows. Returns how many; *end,
 * unless it is NULL, is why not more.
 */
int32_t prefix_tree_begin(prefix_tree *t, uint64_t owner, int32_t sequence, const int32_t *tokens,
                          int32_t n, lace_reuse_end *end);

/*
 * Keep what a sequence holds: n tokens, which are those given. A last page that is not full is kept
 * if `with_part`; the sequence should not grow after that, or it will be copied.
 */
void prefix_tree_keep(prefix_tree *t, uint64_t owner, int32_t sequence, const int32_t *tokens,
                      int32_t n, bool with_part);

/* Use a store, which must outlive the tree, from now on. */
void prefix_tree_use_store(prefix_tree *t, page_store *store);

/* Write those whole pages of the text into the store that are kept and not there yet. */
void prefix_tree_store(prefix_tree *t, uint64_t owner, const int32_t *tokens, int32_t n);

/* Give up pages until the demand can be met. False if it cannot. */
bool prefix_tree_make_room(prefix_tree *t, const page_demand *demand);

int64_t prefix_tree_unused_pages(const prefix_tree *t); /* that no sequence holds, of group 0 */
uint64_t prefix_tree_n_evicted(const prefix_tree *t);   /* tokens given up so far */

#endif
