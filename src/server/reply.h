/*
 * One reply on its way to a client whose API shows its parts one by one: content, reasoning and
 * calls. What the state of each such API begins with, and what is the same for all of them.
 *
 *     typedef struct message_reply { reply_state base; json_out inside; ... } message_reply;
 *     static const size_t outs[] = {offsetof(message_reply, inside)};
 *     static const reply_kind kind = {.size = sizeof(message_reply), .outs = outs, .n_outs = 1, ...};
 *     static const gen_sink sink = {.reply = &kind, .on_end = on_end};
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

/* What an API does differently; all functions get the state. */
typedef struct reply_kind {
    size_t size;        /* of its state, which begins with a reply_state */
    const size_t *outs; /* [n_outs] where in it further json_outs are */
    size_t n_outs;
    reply_sink on_part;
    /* The rest may be NULL. */
    const char *ping; /* a line of a stream that says nothing, so that nobody takes it for dead */
    void (*begin)(void *); /* before a stream's first part, and again before every other */
    void (*on_token)(void *, const gen_event *); /* before the parts of its text */
    void (*end_parts)(void *);                   /* behind the last part */
    void (*end_event)(void *); /* behind the parts of an event of a stream, before it is sent */
} reply_kind;

/* The state of a call, made at the first question; NULL: memory is out. */
void *reply_state_of(call *c);

/* Take an event apart and send what became of it if the reply is a stream; or on_event of choices. */
void reply_take(call *c, const gen_event *e);
void reply_free(call *c); /* the state, if there is one */
void reply_ping(call *c); /* a stream was silent for long */

/* At the end: the state, or NULL if there is no reply; the call has then been answered. */
void *reply_finished(call *c);

/* The arguments of a call: JSON already, unless the model broke off; then they are {}. */
void reply_write_arguments(json_out *out, const buf *arguments);

/*
 * The state of an API whose replies have several choices: a struct, and behind it a choice for each.
 * Both may have json_outs in them.
 */
typedef struct choices_kind {
    size_t size; /* offsetof its choices */
    size_t choice_size;
    const size_t *outs; /* [n_outs] where in the struct */
    size_t n_outs;
    const size_t *choice_outs; /* [n_choice_outs] where in a choice */
    size_t n_choice_outs;
    const char *ping;                    /* as of a reply_kind */
    void (*begin)(call *c, void *state); /* more of a new state; may be NULL */
    void (*end)(void *state);            /* undoes begin; may be NULL */
} choices_kind;

/* A choices_kind of a struct that ends with `choices`, and of arrays of offsets; more: its begin and
 * end. */
#define CHOICES_KIND(state, choice, state_outs, outs_of_choice, ...)                               \
    {                                                                                              \
        .size = offsetof(state, choices), .choice_size = sizeof(choice), .outs = (state_outs),     \
        .n_outs = sizeof(state_outs) / sizeof(size_t), .choice_outs = (outs_of_choice),            \
        .n_choice_outs = sizeof(outs_of_choice) / sizeof(size_t), .ping = ": waiting\n\n",         \
        __VA_ARGS__                                                                                \
    }

/* The state of a call, made at the first question by its sink's choices; NULL: memory is out. */
void *choices_of(call *c);

#endif
