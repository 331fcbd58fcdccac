/* A byte buffer that grows up to a maximum stated when it is created. */
#ifndef LACE_BASE_BUF_H
#define LACE_BASE_BUF_H

#include "base/status.h"

typedef struct buf {
    char *data; /* NULL while nothing was written; otherwise data[size] is 0 */
    size_t size;
    size_t capacity;
    size_t max; /* the buffer never holds more bytes than this */
} buf;

void buf_init(buf *b, size_t max);
void buf_deinit(buf *b);
void buf_clear(buf *b); /* keeps the storage */

/* LACE_E_LIMIT past the maximum, LACE_E_NOMEM without memory; the contents stay as they were. */
lace_status buf_append(buf *b, const void *data, size_t n_bytes);
lace_status buf_append_text(buf *b, const char *terminated);
__attribute__((format(printf, 2, 3))) lace_status buf_printf(buf *b, const char *format, ...);
/* Make room for n more bytes without changing size. */
lace_status buf_reserve(buf *b, size_t n_bytes);

#endif
