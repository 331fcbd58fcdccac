/*
 * A record log: a file to whose end records are added, and which is read when it is opened.
 *
 *     for each record: u32 n_bytes, SHA-256 of the bytes, the bytes
 *
 * A process that is killed leaves at most a last record that is not whole: what follows the last
 * good record is cut off when the file is opened. Records are not flushed to the disk.
 */
#ifndef LACE_BASE_RECORD_LOG_H
#define LACE_BASE_RECORD_LOG_H

#include "base/bytes.h"

typedef struct record_log record_log;

/* Called for each record, the oldest first. */
typedef void (*record_log_fn)(void *user, span record);

/*
 * Open or make the file. Of one that is larger than max_bytes nothing is read, and it begins anew;
 * that is also what happens when it becomes larger.
 */
lace_status record_log_open(const char *path, uint64_t max_bytes, record_log_fn fn, void *user,
                            record_log **out, lace_error *err);
void record_log_close(record_log *l); /* NULL is fine */

/* Add a record. One that cannot be written is lost; the file stays whole. */
void record_log_add(record_log *l, const void *data, size_t n_bytes);

#endif
