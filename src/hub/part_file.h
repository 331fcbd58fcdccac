/*
 * A file on its way: its bytes come in any order, and what has come is known after a kill -9.
 *
 * The file is cut into pieces. Behind its last byte stand marks, which say how much of each piece,
 * from its beginning, is there:
 *
 *     | bytes of the file ... | "lacepart" size piece_bytes n_pieces | done[0] done[1] ... |
 *
 * A mark is written after the bytes that it speaks of. Nothing is believed at the end: the whole file
 * is read again and hashed before it gets its name.
 */
#ifndef LACE_HUB_PART_FILE_H
#define LACE_HUB_PART_FILE_H

#include "base/status.h"

/* What a file must be, as the hub lists it. */
typedef enum part_hash {
    PART_SHA256,   /* of the bytes: large files (LFS), and all blobs of Ollama's registry */
    PART_GIT_BLOB, /* SHA-1 of "blob SIZE\0" and the bytes: what lies in git itself */
} part_hash;

enum { PART_MAX_HEX = 64 };

typedef struct part_file {
    char *path;
    int fd;
    uint64_t size, piece_bytes;
    size_t n_pieces;
    uint64_t *done; /* [n_pieces] bytes of each, from its beginning */
    uint64_t n_done;
    bool was_resumed; /* some of it is from an earlier try */
} part_file;

/*
 * Open what an earlier try has left at this path, or begin. Room on the disk is taken now. One
 * process has the file at a time: while it is another, *out is NULL and that is no error.
 */
lace_status part_file_open(const char *path, uint64_t size, part_file **out, lace_error *err);
void part_file_close(part_file *p);  /* the file stays; NULL is fine */
void part_file_remove(part_file *p); /* the file goes, then close */

/* Forget all bytes. */
lace_status part_file_reset(part_file *p, lace_error *err);

uint64_t part_file_piece_size(const part_file *p, size_t piece);

/* Write behind what a piece has; may go on into the pieces behind it, if these are empty. */
lace_status part_file_write(part_file *p, uint64_t offset, const void *data, size_t n,
                            lace_error *err);

/* Read the whole file: LACE_E_MAGIC if its hash is another. on_bytes may end it (false). */
typedef bool (*part_bytes_fn)(void *user, uint64_t n_bytes);
lace_status part_file_check(const part_file *p, part_hash kind, const char *expected,
                            part_bytes_fn on_bytes, void *user, lace_error *err);

/* Give it its name. Only after part_file_check. */
lace_status part_file_finish(part_file *p, const char *name, lace_error *err);

#endif
