/*
 * Writing a file so that it is there whole or not at all.
 *
 * The bytes go to a temporary file in the same directory. Committing flushes it to the disk,
 * renames it to its path (replacing what was there, unless told not to) and flushes the directory.
 * Until then, and after any failure, the path is as it was and no temporary file is left. Where the
 * system has nameless files (O_TMPFILE), not even a killed process leaves one. If only the last
 * step fails, flushing the directory, the new file is complete and in place, and may be gone after
 * a power failure.
 *
 * A path that is a symbolic link stays one: what it leads to is replaced. An existing file's
 * permissions are kept. What exists and is not a regular file is refused.
 */
#ifndef LACE_BASE_FILE_WRITE_H
#define LACE_BASE_FILE_WRITE_H

#include "base/bytes.h"
#include "base/status.h"

typedef struct file_writer file_writer;

/* What must hold for a file to get its name. */
typedef struct file_rules {
    bool keeps_old; /* what is at the path, now or at the end, stays, and that is an error */
    /* Looks at the whole file before it has its name, and may refuse it; or NULL. */
    lace_status (*check)(void *user, span bytes, lace_error *err);
    void *user;
    /* Not NULL: the file gets no name at all. *fd is it, open for reading; the caller closes it. */
    int *fd;
} file_rules;

/* With rules, or NULL for none; they are copied. */
lace_status file_writer_create_by(const char *path, const file_rules *rules, file_writer **out,
                                  lace_error *err);
lace_status file_writer_create(const char *path, file_writer **out, lace_error *err);

/* Append. After a failure only abort makes sense; commit then fails too. */
lace_status file_writer_write(file_writer *w, const void *data, size_t n_bytes, lace_error *err);

/* Both free the writer, whatever happens. Abort takes NULL. */
lace_status file_writer_commit(file_writer *w, lace_error *err);
void file_writer_abort(file_writer *w);

/* All of it, for what is in memory already; rules may be NULL. */
lace_status file_write_whole(const char *path, const file_rules *rules, const void *data,
                             size_t n_bytes, lace_error *err);

/*
 * For tests: let the operating-system call number `index` (from 0) of all writers fail as if the
 * disk were full; a negative index: none. If `is_short`, every write takes half of what it could.
 */
void file_writer_fail_at(long index, bool is_short);
long file_writer_calls(void); /* calls since then */

#endif
