/*
 * The page store: pages of prefix trees in a directory, which outlive the process.
 *
 * Pages are written behind, by a thread of the store's own: a file appears whole, under its key, or
 * not at all. Nothing waits for the disk; where pages come faster than they can be written, some are
 * left out. A file that was damaged is found by its digest and removed. When the files take more room
 * than allowed, the ones that were not read for longest go. Several processes may share a directory.
 *
 * The system keeps what it has read and written in free memory, so recent pages come from there.
 */
#ifndef LACE_STATE_PAGE_STORE_H
#define LACE_STATE_PAGE_STORE_H

#include "base/buf.h"
#include "state/page_file.h"

typedef struct page_store page_store;

/* The directory is made if it is not there. max_bytes: of all files. model: what they belong to. */
lace_status page_store_open(const char *directory, uint64_t max_bytes, const digest *model,
                            page_store **out, lace_error *err);
void page_store_close(page_store *s); /* writes what waits; NULL is fine */

/* The key before the first page of an owner's texts. False: memory is out. */
bool page_store_root(const page_store *s, uint64_t owner, digest *out);

/* Room for a file that waits to be written; NULL: too much waits, or memory is out. */
uint8_t *page_store_take(page_store *s, uint64_t n_bytes);

void page_store_give_back(page_store *s, uint8_t *bytes, uint64_t n_bytes); /* unwritten */

/* Write a file that is complete but for its seal. Takes `bytes`, which page_store_take gave. */
void page_store_write(page_store *s, const digest *key, uint8_t *bytes, uint64_t n_bytes);

/* Read the file of a key, at most max_bytes. False: there is none that could be read. */
bool page_store_read(page_store *s, const digest *key, uint64_t max_bytes, buf *out);

/* The file of a key is damaged. */
void page_store_remove(page_store *s, const digest *key);

#endif
