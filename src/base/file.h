/* Files: mapping one to read, and reading a small one whole. */
#ifndef LACE_BASE_FILE_H
#define LACE_BASE_FILE_H

#include "base/bytes.h"
#include "base/buf.h"

/* A file mapped read-only. Zero bytes long is allowed (data is then NULL). */
typedef struct file_map {
    span bytes;
} file_map;

lace_status file_map_open(const char *path, file_map *out, lace_error *err);
void file_map_close(file_map *map);

/* Tell the system that these pages of the mapping are not needed now. */
void file_map_release(const file_map *map, const void *data, size_t n_bytes);

/*
 * The whole file; LACE_E_LIMIT if it is longer than out->max. "-" is standard input. For a path that
 * a user typed: it may be a pipe, as in -f <(command).
 */
lace_status file_read(const char *path, buf *out, lace_error *err);

/* The same for a path that lace made up itself, such as config.json of a directory: what is not a
 * regular file is refused and never waited for. */
lace_status file_read_regular(const char *path, buf *out, lace_error *err);

#endif
