/*
 * Requests of HTTP/1.1 and 1.0, read strictly, byte by byte as they come.
 *
 * What two programs could read in two ways is refused: line ends other than CRLF, white space
 * around names, folded lines, lengths that are not plain digits, a length beside chunks. Every
 * limit holds while bytes arrive, so no request is ever larger in memory than its limits.
 *
 *     size_t used = http_parser_feed(&p, data, n);
 *     if (p.state == HTTP_HEAD_DONE)  ... look at it, then http_parser_read_body(&p), feed on ...
 *     if (p.state == HTTP_DONE)       ... a request ...; deinit and init for the next
 *     if (p.state == HTTP_BAD)        ... answer p.status and close ...
 */
#ifndef LACE_SERVER_HTTP_PARSE_H
#define LACE_SERVER_HTTP_PARSE_H

#include "base/buf.h"
#include "base/bytes.h"

enum {
    HTTP_MAX_LINE = 8192,       /* bytes of a line of the head */
    HTTP_MAX_HEAD = 64 << 10,   /* bytes of the head */
    HTTP_MAX_HEADERS = 100,     /* lines of the head after the first */
    HTTP_MAX_CHUNK_LINE = 256,  /* a chunk's size and its extension */
    HTTP_MAX_TRAILER = 4 << 10, /* bytes after the last chunk */
};

typedef enum http_state {
    HTTP_HEAD,      /* reading the request line and the headers */
    HTTP_HEAD_DONE, /* waits for http_parser_read_body */
    HTTP_BODY,
    HTTP_CHUNK_SIZE,
    HTTP_CHUNK_DATA,
    HTTP_CHUNK_END, /* the CRLF after a chunk's data */
    HTTP_TRAILER,
    HTTP_DONE,
    HTTP_BAD,
} http_state;

typedef struct http_header {
    text name, value; /* the name as it was written; the value without white space around it */
} http_header;

typedef struct http_parser {
    http_state state;
    int status;         /* HTTP_BAD: to be answered */
    const char *reason; /* and why */

    buf head; /* everything up to the empty line; what follows points into it */
    text method, target, path, query;
    bool is_1_0;
    http_header headers[HTTP_MAX_HEADERS];
    size_t n_headers;
    bool keeps_alive; /* the connection may be used again */
    bool expects_continue;
    bool is_chunked;
    bool has_length;
    bool is_counted; /* the caller's: among its large requests */
    uint64_t length; /* of the body, or of what is left of a chunk */

    buf body;      /* its max is the limit */
    size_t n_line; /* bytes of the current line of the head, or of a chunk's line */
    size_t n_trailer;
    char chunk_line[HTTP_MAX_CHUNK_LINE];
} http_parser;

void http_parser_init(http_parser *p, size_t max_body);
void http_parser_deinit(http_parser *p);

/* Returns how many of the bytes were used: all, unless the state says that something is done. */
size_t http_parser_feed(http_parser *p, const char *data, size_t n);

/* Go on to the body. */
void http_parser_read_body(http_parser *p);

/* True while no byte of a request was seen. */
bool http_parser_is_idle(const http_parser *p);

/* The path, also of a head that is not complete or was refused; empty if none can be seen. */
text http_parser_path(const http_parser *p);

/* The value of a header that may be given once; data is NULL if it is absent. */
text http_parser_header(const http_parser *p, const char *name);
/* How often it is given. */
size_t http_parser_count(const http_parser *p, const char *name);

/* Equal but for the case of ASCII letters. */
bool http_name_is(text name, const char *expected);

#endif
