/*
 * A small HTTP/1.1 client on libevent, for putting load on a server: one connection per call, the
 * body handed out as it comes, and server-sent events taken apart.
 */
#ifndef LACE_CLI_BENCH_SERVE_HTTP_H
#define LACE_CLI_BENCH_SERVE_HTTP_H

#include <event2/event.h>
#include <sys/socket.h>

#include "base/buf.h"

/* A server, from its URL. */
typedef struct http_target {
    char url[256];    /* as given, without a slash at its end; http:// is added to HOST:PORT */
    char host[160];   /* for the header Host: "127.0.0.1:8080" */
    char prefix[128]; /* what goes before every path: "" or "/llm" */
    struct sockaddr_storage address;
    socklen_t n_address;
} http_target;

/* "http://HOST[:PORT][/PREFIX]"; "/v1" at its end is left out. Looks the host up. LACE_E_ARG. */
lace_status http_target_init(http_target *t, const char *url, lace_error *err);

typedef struct http_request {
    const char *path;  /* "/v1/models"; the target's prefix goes before it */
    const char *key;   /* for "Authorization: Bearer"; NULL: none */
    const char *body;  /* JSON to be posted (copied); NULL: GET */
    int32_t timeout_s; /* of silence */
} http_request;

/* Both are called from the event loop. */
typedef struct http_handler {
    void (*on_body)(void *user, const char *data, size_t n_bytes);
    /* The call is over, and gone after this. `problem` is NULL if the answer is complete. */
    void (*on_end)(void *user, int status, const char *problem);
    void *user;
} http_handler;

typedef struct http_call http_call;

/* On failure nothing is called. */
lace_status http_call_start(struct event_base *base, const http_target *t, const http_request *r,
                            const http_handler *handler, http_call **out, lace_error *err);
void http_call_cancel(http_call *c); /* without a call of on_end; NULL is fine */

/* ---- Server-sent events ---------------------------------------------------------------------- */

/* The lines of a stream, put together to events. */
typedef struct sse_reader {
    buf line, data;
    bool has_data;
} sse_reader;

void sse_reader_init(sse_reader *s);
void sse_reader_deinit(sse_reader *s);

/* Calls fn with the data of each event that these bytes complete. LACE_E_LIMIT past 1 MiB. */
lace_status sse_reader_feed(sse_reader *s, const char *data, size_t n_bytes,
                            void (*fn)(void *user, const char *data, size_t n_bytes), void *user);

#endif
