/*
 * One reply on its way to a client whose API shows its parts one by one: content, reasoning and
 * calls. What the state of each such API begins with, and what is the same for all of them.
 *
 *     typedef struct message_reply { reply_state base; json_out inside; ... } message_reply;
 *     static const size_t outs[] = {offsetof(message_reply, inside)};
 *     static const reply_kind kind = {sizeof(message_reply), outs, 1, on_part, begin, NULL};
 *
 * Belongs to the event loop, as all that sinks do.
 */
#ifndef LACE_SERVER_REPLY_H
#define LACE_SERVER_REPLY_H

#include "server/generate.h"

enum { REPLY_MAX_BYTES = 256 << 20 };

typedef struct reply_state {
    call *c;
    reply_parser *parser;
    json_out out;    /* what is to be sent next */
    bool has_failed; /* memory is out */
    lace_finish finish;
    const char *stop; /* the stop that was found, or NULL */
    lace_generation_stats stats;
} reply_state;

/* What an API does differently. */
typedef struct reply_kind {
    size_t size;        /* of its state, which begins with a reply_state */
    const size_t *outs; /* [n_outs] where in it further json_outs are */
    size_t n_outs;
    reply_sink on_part;        /* gets the state */
    void (*begin)(void *);     /* before a stream's first part, and again before every other */
    void (*end_parts)(void *); /* behind the last part; may be NULL */
} reply_kind;

/* The state of a call, made at the first question; NULL: memory is out. */
void *reply_state_of(call *c, const reply_kind *kind);
void reply_free(call *c, const reply_kind *kind);

/* Takes an event apart, and sends what became of it if the reply is a stream. */
void reply_on_event(call *c, const gen_event *e, const reply_kind *kind);

/* At the end: the state, or NULL if there is no reply; the call has then been answered. */
void *reply_finished(call *c, const reply_kind *kind);

/* A line of a stream that says nothing, so that nobody takes it for dead. */
void reply_ping(call *c, const char *line);

#endif
