/*
 * Inside the server: the event loop's objects and the two kinds of threads that work for it.
 *
 *   the loop     one thread: sockets, HTTP, checks of access, writing answers (loop.c, conn.c)
 *   workers      a few threads: JSON, templates, tokens; they run the routes (workers.c). Some are
 *                for requests that take long, others wait for embeddings (embed_queue.h).
 *   inference    one thread: owns the batcher (inference.c)
 *
 * Calls go from the loop to a worker and come back; jobs go from the loop to the inference thread
 * and come back as events. What comes back lies in the mailbox, which wakes the loop. All that is
 * below belongs to the loop, except where a field says otherwise.
 */
#ifndef LACE_SERVER_CORE_H
#define LACE_SERVER_CORE_H

#include <event2/event.h>
#include <pthread.h>
#include <stdatomic.h>

#include "chat/chat.h"
#include "server/call.h"
#include "server/generate.h"
#include "server/http_parse.h"
#include "server/kept_replies.h"
#include "server/metrics.h"
#include "server/server.h"

struct bufferevent;
struct evconnlistener;
struct ssl_ctx_st;

typedef struct conn conn;
typedef struct workers workers;
typedef struct inference inference;

/* ---- Connections ----------------------------------------------------------------------------- */

typedef enum conn_wait {
    WAIT_NOTHING,
    WAIT_HANDSHAKE, /* of TLS */
    WAIT_REQUEST,   /* idle between requests */
    WAIT_HEAD,      /* a head has begun */
    WAIT_BODY,
    WAIT_LINGER, /* refused; what still comes is read and dropped */
} conn_wait;

struct conn {
    conn *prev, *next;
    server *s;
    struct bufferevent *bev;
    http_parser *parser; /* NULL while idle and while a call has it */
    call *active;        /* the call that is being answered; NULL: none */
    conn_wait wait;
    uint64_t deadline_ns;     /* of `wait`; 0: none */
    uint64_t output_since_ns; /* since when there has been output that nobody takes; 0: none */
    char client[48];          /* its address; "unix" */
    char cors[400];           /* headers for a page of another origin that may call; "" for none */
    bool closes;              /* when all output is written */
    bool lingers;             /* and then reads on for a while */
};

void parser_free(server *s, http_parser *p); /* NULL is fine */
void conn_accept(server *s, evutil_socket_t fd, const struct sockaddr *from);
void conn_close(conn *c);
/* Write a head and a body; ends the connection after it unless it may be kept. */
void conn_answer(conn *c, int status, const char *type, const char *extra_headers, const void *data,
                 size_t n, bool keeps_alive, bool is_head);
void conn_write(conn *c, const void *data, size_t n);
void conn_call_done(conn *c, bool keeps_alive); /* the active call is answered */
void conn_tick(server *s, uint64_t now);        /* deadlines of all connections */

/* ---- Calls ----------------------------------------------------------------------------------- */

/* A generation on its way through the inference thread. */
typedef struct gen_job {
    struct gen_job *next; /* in the inference thread's lists */
    call *c;
    int choice;
    atomic_bool is_cancelled;
    bool is_satisfied;           /* by the loop, because it has said enough: a good end */
    lace_generation *generation; /* the inference thread's */
} gen_job;

typedef enum call_outcome {
    OUTCOME_NONE,
    OUTCOME_REPLY,
    OUTCOME_GENERATE,
    OUTCOME_FORWARD, /* to the process that has the model: router.h */
} call_outcome;

struct call {
    call *prev, *next; /* of all calls */
    call *next_posted; /* in the workers' queue and in the mailbox */
    server *s;
    conn *conn; /* NULL: the client has gone */
    const route *route;
    const field_name *names; /* how errors call fields; NULL: as they are read */
    http_parser *parser;     /* holds the request */
    json_t *json;
    char client[48]; /* address of the client, who may be gone */
    size_t key;      /* which one it came with, as access_key says */
    char id[25];
    uint64_t begin_ns;
    int64_t created;     /* seconds since 1970 */
    bool is_working;     /* a worker has it */
    uint64_t turn;       /* the same for calls that share a key, or else a connection */
    bool is_slow;        /* a worker has it that is for what takes long */
    bool wants_time;     /* and another must send it there */
    atomic_bool is_gone; /* the client has left; for the worker */

    call_outcome outcome;
    int status;
    const char *type;
    const char *extra_headers; /* lines with CRLF, a literal; NULL: none */
    json_out body;
    const void *static_body;
    size_t n_static_body;

    bool is_streaming, is_ended;
    bool is_timed_out;
    uint64_t last_write_ns;
    gen_request request;
    const gen_sink *sink;
    void *state;
    struct forward *forward; /* on its way to another process; NULL: it is not */
    gen_job *jobs;           /* [request.n_choices] */
    reply_note *notes;       /* [request.n_choices] of replies to be kept; NULL: none are */
    int n_left;              /* choices that have not finished */
    int n_generated;         /* tokens, of all choices */
    int32_t n_reused;        /* tokens of the first choice's prompt, and why not more */
    lace_reuse_end reuse_end;
    lace_cut reasoning_cut, text_cut; /* of the choice that ended last */
    bool has_error;
    bool is_logged;
    uint64_t last_token_ns; /* for the time between tokens */
};

call *call_create(conn *c, const route *r);
/* The route's function; on a worker, too. False: to be run once more, by a slow worker. */
bool call_run(call *c);
void call_dispatch(call *c);        /* act on the outcome */
uint64_t call_owner(const call *c); /* whose beginnings of texts it shares */
void call_event(gen_event *e);      /* from the mailbox; frees it */
void call_abandon(call *c);         /* the client has gone */
/* For answers that come from elsewhere: send a reply, end a stream, fail in whatever state. */
void call_send_reply(call *c);
void call_finish(call *c);
void call_end_with_error(call *c, int status, const char *code, const char *message);
void call_tick(server *s, uint64_t now);
void call_cut_all(server *s);  /* the server ends: tell the clients that still wait */
void call_free_all(server *s); /* when no other thread is left */

/* A request's line in the log, and that of one that was refused before it had a route. */
void log_call(call *c);
void log_refusal(const conn *c, int status, const char *reason);

/* ---- The server ------------------------------------------------------------------------------ */

enum { MAX_KEYS = 1024 };

/* What other threads leave for the loop. */
typedef struct mailbox {
    pthread_mutex_t lock;
    gen_event *events, **events_end;
    call *calls;
    int fd; /* an eventfd that wakes the loop */
} mailbox;

struct server {
    server_options options;
    lace_model *model;
    lace_model_info info;
    lace_batcher_stats limits; /* of the batcher, as it began: n_context, kv_tokens */
    char *model_id;
    lace_adapter_info *adapters;   /* [n_adapters] */
    _Atomic float *adapter_scales; /* [n_adapters] of requests that say nothing */
    size_t n_adapters;
    chat_template *chat;
    char *chat_source;  /* its text: the model's own, or a file's; "" for ChatML */
    int64_t started_at; /* seconds since 1970 */
    char **keys;        /* [n_keys] */
    size_t n_keys;
    bool is_loopback; /* listens where only this machine can reach it */
    bool has_socket;  /* options.unix_path is a socket that this server made: socket_id */
    struct {
        uint64_t device, inode;
    } socket_id;

    struct event_base *base;
    struct evconnlistener *listener;
    bool is_deaf; /* the listener could not be turned on again: to be tried at the next tick */
    struct event *mail_event, *tick_event, *term_event, *int_event;
    struct ssl_ctx_st *tls;
    conn *conns;
    int32_t n_conns;
    call *calls;
    int32_t n_calls;
    int32_t n_large;      /* requests with large bodies that are in memory */
    bool has_freed_large; /* since the heap was trimmed */
    uint64_t trimmed_ns;  /* when that was */
    int32_t n_jobs;       /* given to the inference thread and not finished */
    int n_signals;        /* asked to end so often */
    lace_error lost_rank; /* why the server ends by itself; LACE_OK: it does not */
    uint64_t drain_until_ns;
    bool is_cut; /* the time for draining is over */
    mailbox mail;
    workers *workers;
    workers *slow_workers; /* for large bodies, and what has turned out to take long */
    workers *embedding;    /* threads that wait for embeddings; one at a time computes */
    inference *inference;
    struct embedder *embedder;
    struct router *router; /* several models, each elsewhere; NULL: this server has one itself */
    kept_replies *replies; /* NULL: none are kept */
    metrics metrics;
};

/* gen_adapters.c: the model's adapters. The name of one as a model, or NULL; and by it, or -1. */
lace_status adapters_create(server *s, lace_error *err);
const char *adapter_model_name(const server *s, size_t i);
int32_t adapter_by_name(const server *s, const char *name);

/* What a client may call the model, whichever it is. */
#define SERVER_ANY_MODEL "default"

bool server_is_draining(const server *s);
bool server_queue_is_full(const server *s);
void server_accept_again(server *s);       /* after the limit of connections was reached */
void server_post_call(server *s, call *c); /* from a worker */
void server_post_events(server *s, gen_event *list); /* from the inference thread */

/* Whether a request may be served: keys, Host and Origin. 0, or the status to answer. */
int access_check(const server *s, const http_parser *p, const route *r, const char **reason);
/* Which key a request has, from 1; 0: none that is known. A key that is listed twice is one. */
size_t access_key(const server *s, const http_parser *p);
/* Keys from a file, one a line, and from a list with commas; either may be NULL. */
lace_status access_read_keys(server *s, const char *path, const char *list, lace_error *err);
/* Whether this Content-Type (data is NULL: none) may announce JSON to a family of clients. */
bool access_is_json(text content_type, error_style family);
bool access_allows_origin(const server *s, text origin);
void access_free(server *s);

/* ---- Threads --------------------------------------------------------------------------------- */

lace_status workers_create(server *s, int n, bool is_slow, workers **out, lace_error *err);
void workers_free(workers *w); /* waits for them */
void workers_push(workers *w, call *c);

/* What /health wants to know of the inference thread. */
typedef struct inference_state {
    lace_batcher_stats stats;
    bool is_stuck;  /* has work and has not made a step for long */
    bool is_broken; /* the last step failed for a reason that will not go away */
} inference_state;

lace_status inference_create(server *s, inference **out, lace_error *err);
void inference_free(inference *w);
void inference_push(inference *w, gen_job *job);
void inference_cancel(inference *w, gen_job *job);
void inference_read(inference *w, inference_state *out); /* of NULL: nothing runs */

#endif
