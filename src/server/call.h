/*
 * A call: one request and its answer. This is what routes work with.
 *
 * A route is a row of the table in routes.c: a method, a path, and a function. The function gets
 * the complete request on a worker thread (or, with ROUTE_ON_LOOP, on the event loop, where it must
 * not take long), and decides what is answered, by one of
 *
 *     call_reply(c, 200, "application/json", &out)    a whole answer
 *     call_fail(c, 400, ...)                          an error, in the form of the route's family
 *     call_generate(c, &request, &sink)               text of the model, see generate.h
 *
 * Nothing is sent before the function has returned. From then on the call belongs to the event
 * loop, which hands it the events of its generations.
 */
#ifndef LACE_SERVER_CALL_H
#define LACE_SERVER_CALL_H

#include <jansson.h>

#include "base/bytes.h"
#include "server/errors.h"
#include "server/json_out.h"

typedef struct call call;
typedef struct server server;
typedef struct gen_request gen_request;
typedef struct gen_event gen_event;
typedef struct gen_sink gen_sink;

enum {
    ROUTE_ON_LOOP = 1,   /* quick: runs on the event loop */
    ROUTE_NO_KEY = 2,    /* open to everybody */
    ROUTE_GENERATES = 4, /* refused while the queue is full or the server drains */
    ROUTE_PREFIX = 8,    /* the path is the beginning of the paths */
    ROUTE_EMBEDS = 16,   /* takes long, on threads that are for it */
};

typedef struct route {
    const char *method; /* "GET" (which answers HEAD, too) or "POST" */
    const char *path;
    void (*run)(call *c);
    unsigned flags;
    error_style errors;
} route;

/* The route for a method and a path. NULL: none; *allow then names the methods that the path has,
 * as the value of the header Allow, a literal; NULL: there is nothing at it. */
const route *route_find(text method, text path, const char **allow);

/* Why there is nothing at a path, with what to use instead where other servers have something. */
const char *route_missing(text path);

/* ---- What was asked -------------------------------------------------------------------------- */

server *call_server(const call *c);
text call_path(const call *c);
uint64_t call_begin_ns(const call *c); /* when the request was complete */
const char *call_id(const call *c);    /* "a1b2...", of this call alone */

/*
 * The body as a JSON object; belongs to the call. NULL if it is none: the error is then the call's
 * answer, and the route just returns.
 */
json_t *call_json(call *c);
json_t *call_json_list(call *c); /* the same for a list */

bool call_is_unwanted(
    void *call); /* the client has left; in the form that lace_grammar_options has */

/* ---- What is answered ------------------------------------------------------------------------ */

/* Takes what is in `body` and leaves it empty. `type` is a literal. */
void call_reply(call *c, int status, const char *type, json_out *body);
/* The same for bytes that outlive the server. */
void call_reply_static(call *c, int status, const char *type, const char *extra_headers,
                       const void *data, size_t n);

/* `param` and `code` may be NULL. The type of the error follows from the status. */
__attribute__((format(printf, 5, 6))) void call_fail(call *c, int status, const char *param,
                                                     const char *code, const char *format, ...);
/* The same with the line of an error; the status is 400, or what fits the error. */
void call_fail_error(call *c, const char *param, const lace_error *err);

/* 400 with this message, and 503 for want of memory. They return
 * false, for `return call_refuse()`. */
bool call_refuse(call *c, const char *param, const char *message);
bool call_nomem(call *c);

/* Put an item, which is taken over and may be NULL, at the end of a list. False: answered. */
bool call_append(call *c, json_t *list, json_t *item);

/*
 * Fields that a family of clients calls otherwise than those who read them: from now on errors name
 * them as they came. The table is static and ends with NULLs.
 */
typedef struct field_name {
    const char *ours, *theirs;
} field_name;
void call_rename(call *c, const field_name *names);

/* Generate, from a worker's route; takes the request's contents. See generate.h. */
void call_generate(call *c, gen_request *request, const gen_sink *sink);

/* ---- Streams, on the event loop -------------------------------------------------------------- */

/* Start an answer whose end is not known. A second call does nothing. */
void call_begin_stream(call *c, const char *type);
bool call_is_streaming(const call *c);
void call_write(call *c, json_out *out); /* what is in `out`, which is then empty */
void call_end(call *c);                  /* the last byte of a stream */

#endif
