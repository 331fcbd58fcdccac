/*
 * Digests: SHA-256 of bytes, which tell whether two pieces of data are the same without keeping
 * both. They are the same in every process, so they can name files.
 */
#ifndef LACE_BASE_DIGEST_H
#define LACE_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIGEST_BYTES = 32 };

typedef struct digest {
    uint8_t bytes[DIGEST_BYTES];
} digest;

bool digest_equals(const digest *a, const digest *b);

/* Two pieces of data behind each other; the second may be empty. False: memory is out. */
bool digest_of(const void *data, size_t n_bytes, const void *more, size_t n_more, digest *out);

/* A digest of what comes piece by piece. */
typedef struct digest_stream digest_stream;

digest_stream *digest_stream_create(void); /* NULL: memory is out */
void digest_stream_free(digest_stream *s); /* NULL is fine */
bool digest_stream_add(digest_stream *s, const void *data, size_t n_bytes);
/* Of all that was added, and then of `more`, which the stream itself does not get. */
bool digest_stream_peek(const digest_stream *s, const void *more, size_t n_more, digest *out);

#endif
