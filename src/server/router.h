/*
 * Several models behind one port. The router is a server without a model: the same loop, parser,
 * checks and limits (core.h), but a request that names a model goes to a process that has it.
 *
 *   client --HTTP--> router (this process) --Unix socket--> lace serve MODEL   (one for each)
 *
 * A model is loaded when a request names it. All loaded ones share a budget of memory; if the next
 * one does not fit, those go first that were used longest ago. Nothing is shared with a child but a
 * socket and three pipes, so one that crashes or is unloaded touches no other.
 *
 *   UNLOADED -> QUEUED -> STARTING -> FITTING -> LOADING -> READY -> STOPPING -> UNLOADED
 *                         says what   until it   packs               SIGTERM
 *                         it needs    has room   weights
 *
 * All of it belongs to the event loop, but router_run, which workers call.
 */
#ifndef LACE_SERVER_ROUTER_H
#define LACE_SERVER_ROUTER_H

#include <sys/types.h>

#include "server/core.h"

typedef struct router router;
typedef struct forward forward;

typedef enum model_state {
    MODEL_UNLOADED,
    MODEL_QUEUED,
    MODEL_STARTING,
    MODEL_FITTING,
    MODEL_LOADING,
    MODEL_READY,
    MODEL_STOPPING,
} model_state;

enum { ROUTER_MAX_LINE = 400 };

typedef struct router_model {
    const router_entry *entry;
    router *r;
    size_t index;
    model_state state;
    bool is_leaving;      /* READY, but takes no more requests: another model needs its room */
    uint64_t n_bytes;     /* of memory, as the child has said; 0: not known yet */
    uint64_t queued_ns;   /* since when it is QUEUED; they are loaded in this order */
    uint64_t started_ns;  /* when its child was */
    uint64_t used_ns;     /* when its last request ended */
    uint64_t stop_ns;     /* STOPPING: when it is killed */
    int64_t keep_alive_s; /* as the last request wanted it; negative: for ever */
    int n_active;         /* requests that its child has */
    forward *waiting, **waiting_end; /* in the order in which they came */

    pid_t pid; /* 0: no child */
    int in_fd; /* its standard input: a line lets it load */
    struct bufferevent *out, *err;
    char socket[108];
    char last_line[ROUTER_MAX_LINE]; /* of its standard error */
} router_model;

struct router {
    server *s;
    const router_options *options;
    router_model *models;  /* [options->n_entries] */
    router_model *loading; /* STARTING, FITTING or LOADING; NULL: none */
    int n_waiting;
    char folder[80]; /* of the sockets */
    struct event *child_event;
    bool is_ending;
};

/* What a call wants of a model. */
typedef enum forward_kind { FORWARD_REQUEST, FORWARD_LOAD, FORWARD_UNLOAD } forward_kind;

struct forward {
    forward *next; /* of those that wait */
    call *c;
    router_model *model;
    forward_kind kind;
    bool is_glance; /* the model is only looked at: it is not kept longer for it */
    bool has_keep_alive;
    int64_t keep_alive_s;
    uint64_t deadline_ns; /* while it waits */
    bool is_waiting, is_active;
    bool was_cut; /* its child ended under it, once */

    struct bufferevent *bev; /* to the child */
    int status;
    bool has_head, is_chunked;
    uint64_t n_left; /* bytes of the body, or of a chunk; */
    bool in_chunk;   /* or a chunk's size comes next */
    char type[128];
};

/* ---- router.c -------------------------------------------------------------------------------- */

lace_status router_create(server *s, const router_options *options, router **out, lace_error *err);
void router_free(router *r); /* ends all children; NULL is fine */
void router_tick(router *r, uint64_t now);
bool router_queue_is_full(const router *r);

/* The model of a name; without one, or for "default", the default one. A server of one model has it
 * under any name, unless it is strict. NULL: there is none. */
router_model *router_find(router *r, const char *name);
uint64_t router_bytes_used(const router *r);
const char *router_state_word(const router_model *m);

/* A call whose worker has made c->forward. */
void router_submit(call *c);
/* The call needs no answer any more. */
void router_cancel(call *c);
/* A request has left its child. */
void router_leave(forward *f);
void router_wait(forward *f); /* until the model is READY */

/* From router_child.c: what a child says, and that it has ended. */
void router_on_needs(router_model *m, uint64_t n_bytes);
void router_on_ready(router_model *m);
void router_on_exit(router_model *m, int status);

/* ---- router_child.c -------------------------------------------------------------------------- */

lace_status child_start(router_model *m, lace_error *err);
void child_go(router_model *m);                 /* it may load */
void child_end(router_model *m, int signal_no); /* SIGTERM or SIGKILL */
void child_reap(router *r);                     /* those that have ended */
void child_forget(router_model *m);             /* pipes and socket of one that has ended */

/* ---- router_forward.c ------------------------------------------------------------------------ */

void forward_send(forward *f);  /* to the child's socket */
void forward_close(forward *f); /* the connection to the child */

/* ---- router_api.c ---------------------------------------------------------------------------- */

/* In the place of a route's own function. */
void router_run(call *c);
/* Answers that the router gives by itself, for FORWARD_LOAD and FORWARD_UNLOAD. */
void router_reply_done(forward *f);

#endif
