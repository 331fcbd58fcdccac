/* JSON written by hand into a buffer. The first failure sticks and is asked for at the end. */
#ifndef LACE_SERVER_JSON_OUT_H
#define LACE_SERVER_JSON_OUT_H

#include "base/buf.h"
#include "base/bytes.h"

typedef struct json_out {
    buf b;
    bool has_failed; /* out of memory, or longer than allowed */
} json_out;

void json_out_init(json_out *o, size_t max);
void json_out_deinit(json_out *o);

void json_out_raw(json_out *o, const char *terminated);
void json_out_bytes(json_out *o, const void *data, size_t n);
__attribute__((format(printf, 2, 3))) void json_out_printf(json_out *o, const char *format, ...);

/* A string with its quotes. Bytes that are not UTF-8 become U+FFFD. */
void json_out_text(json_out *o, const char *data, size_t n);
void json_out_string(json_out *o, const char *terminated);

/* A number; what is not finite becomes null. */
void json_out_number(json_out *o, double x);

/* Several of one limit in a struct; offsets[n] say where. */
void json_outs_init(void *in, const size_t *offsets, size_t n, size_t max_bytes);
void json_outs_deinit(void *in, const size_t *offsets, size_t n);

#endif
