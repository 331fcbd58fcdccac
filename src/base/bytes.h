/*
 * Spans and the checked cursor: the only way in which bytes from outside are read.
 *
 * A cursor never passes the end of its span. Every read names the field it is for, and a failure
 * says where it was: "at byte 24: n_kv: needs 8 bytes, 3 are left".
 */
#ifndef LACE_BASE_BYTES_H
#define LACE_BASE_BYTES_H

#include "base/status.h"

typedef struct span {
    const uint8_t *data;
    size_t size;
} span;

/* A name or text inside a span: counted, not terminated. */
typedef struct text {
    const char *data;
    size_t size;
} text;

text text_of(const char *terminated);
bool text_equals(text a, text b);
bool text_is(text a, const char *terminated);
/* For printf("%.*s"): the size as an int, at most 64 so that messages stay short. */
int text_width(text t);

typedef struct cursor {
    span bytes;
    size_t at; /* offset of the next byte, <= bytes.size */
} cursor;

size_t cursor_left(const cursor *c);
lace_status cursor_u32(cursor *c, uint32_t *out, const char *field, lace_error *err);
lace_status cursor_u64(cursor *c, uint64_t *out, const char *field, lace_error *err);
/* n bytes as they lie there. */
lace_status cursor_take(cursor *c, uint64_t n, span *out, const char *field, lace_error *err);

/* Little-endian values at a pointer of any alignment. */
uint16_t load_u16(const void *p);
uint32_t load_u32(const void *p);
uint64_t load_u64(const void *p);
float load_f32(const void *p);

/* An error at a place: "at byte N: ..." */
__attribute__((format(printf, 4, 5))) lace_status
error_at(lace_error *err, lace_status status, uint64_t offset, const char *format, ...);

#endif
