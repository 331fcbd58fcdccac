/*
 * Page files: one page of the prefix tree as a file. It holds what layers remember of 32 tokens, which
 * tokens these are, and by its parent's key all tokens before them.
 *
 *     "LACEPAGE"  u32 version  u32 n_parts  u32 n_tokens  u32 0
 *     parent's key, 32 bytes
 *     u64 n_bytes of each part: a page of each group, then a snapshot; 0: it is not there
 *     i32 tokens
 *     the parts
 *     SHA-256 of all before, 32 bytes
 *
 * The key of a page is the digest of its parent's key and its tokens; that of a text's beginning is
 * the digest of the model and the owner. So a file is found for exactly one text of one model.
 */
#ifndef LACE_STATE_PAGE_FILE_H
#define LACE_STATE_PAGE_FILE_H

#include "base/bytes.h"
#include "base/digest.h"
#include "state/states.h"

enum { PAGE_FILE_MOST_PARTS = STATES_MAX_GROUPS + 1 };

/* What pages of a model look like: how large each part is where it is there. */
typedef struct page_shape {
    int32_t n_parts;
    uint64_t part_bytes[PAGE_FILE_MOST_PARTS];
} page_shape;

page_shape page_shape_of(const states *kv);

typedef struct page_file {
    digest parent;
    int32_t tokens[PAGE_TOKENS];
    bool has_part[PAGE_FILE_MOST_PARTS];
    const uint8_t *parts[PAGE_FILE_MOST_PARTS]; /* in the bytes that were read */
} page_file;

/* The key of a page; false: memory is out. */
bool page_key(const digest *parent, const int32_t tokens[PAGE_TOKENS], digest *out);

/* Bytes of the file whose page has these parts. */
uint64_t page_file_bytes(const page_shape *sizes, const bool *has_part);

/*
 * Write all but the parts and the last digest into `bytes`; p->parts are then the places where the
 * parts belong.
 */
void page_file_lay_out(const page_shape *sizes, page_file *p, uint8_t *bytes);

/* Complete it, once the parts are there. False: memory is out. */
bool page_file_seal(uint8_t *bytes, uint64_t n_bytes);

/* Read and check all of it. */
lace_status page_file_read(span bytes, const page_shape *sizes, page_file *out, lace_error *err);

#endif
