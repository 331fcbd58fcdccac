/*
 * The state of a reply's parser, shared by its files. Inside src/chat only.
 *
 * Everything is driven by single bytes, so that it cannot matter how the text was cut. In the
 * states that look for markers, bytes that may begin one wait in `held`; the states of a call read
 * byte by byte and keep what they have seen in `raw`, to give it back as content if it is no call.
 */
#ifndef LACE_CHAT_REPLY_PARSER_H
#define LACE_CHAT_REPLY_PARSER_H

#include "base/buf.h"
#include "chat/reply_formats.h"

typedef enum reply_state {
    /* Looking for markers */
    STATE_CONTENT,
    STATE_THINKING,
    STATE_SECTION, /* behind section_begin: a call is to come */
    STATE_AFTER,   /* behind a call: its end is to come */
    STATE_HEADER,  /* harmony: before <|message|> */
    STATE_BODY,    /* harmony: behind it */
    /* Reading a call */
    STATE_JSON,
    STATE_NAME,
    STATE_ARGS, /* the JSON of CALL_NAME_JSON */
    STATE_TAGGED,
    STATE_WHOLE, /* of CALL_PYTHON and CALL_XML: up to its end, then it is read */
} reply_state;

typedef enum marker {
    MARK_THINK_BEGIN,
    MARK_THINK_END,
    MARK_SAY_BEGIN,
    MARK_SAY_END,
    MARK_TRAILER,
    MARK_SECTION_BEGIN,
    MARK_SECTION_END,
    MARK_CALL_BEGIN,
    MARK_CALL_END,
    MARK_MESSAGE,
    MARK_END,
    MARK_RETURN,
    MARK_CALL,
    MARK_START,
    MARK_CHANNEL,
    N_MARKERS,
} marker;

/* A JSON value seen byte by byte: where it ends. */
typedef struct json_scan {
    int depth;
    bool is_begun, is_text, is_escape, is_scalar;
} json_scan;

typedef enum json_place {
    PLACE_START, /* before an object */
    PLACE_KEY,
    PLACE_IN_KEY,
    PLACE_COLON,
    PLACE_VALUE,
    PLACE_IN_VALUE,
    PLACE_COMMA,
} json_place;

typedef enum json_role { ROLE_OTHER, ROLE_NAME, ROLE_ARGS, ROLE_ID } json_role;

typedef enum tagged_place {
    TAGGED_NAME,
    TAGGED_BODY, /* between arguments */
    TAGGED_KEY,
    TAGGED_VALUE_BEGIN,
    TAGGED_VALUE,
} tagged_place;

/* The call that is being read. */
typedef struct reply_call {
    bool is_begun;  /* REPLY_CALL_BEGIN was given out */
    bool is_escape; /* in a key */
    buf name, id, key, args;
    json_place place;
    json_role role;
    int n_wrappers; /* objects around: {"function": {...}} */
    bool is_list, has_args;
    int n_done; /* calls completed since the marker */
    json_scan scan;
    tagged_place tagged;
    int n_args;
} reply_call;

struct reply_parser {
    reply_format format;
    reply_options options;
    reply_sink sink;
    void *sink_arg;

    text markers[N_MARKERS]; /* size 0: not in this format */
    reply_state state;
    buf held;

    /* What is given out next: text of one kind, and the white space behind it. */
    reply_event_kind kind;
    buf out, space;
    bool skips_space; /* nothing of this stretch was given out, and white space is not wanted */
    bool is_at_start; /* nothing but white space was seen */
    bool is_saying;   /* between the words around what is said */

    buf raw;             /* of the call, from its marker on */
    size_t n_raw_marker; /* bytes of it that are the marker */
    buf word;            /* what is being read: a name, a value, a header */
    reply_call call;
    int n_calls;
    bool ends_with_section; /* the call's end is the section's */
};

/* Output: text of a kind, and events. */
lace_status reply_begin_call(reply_parser *p);
lace_status reply_put_args(reply_parser *p, const char *data, size_t n);
lace_status reply_end_call(reply_parser *p, bool is_complete);

/* One byte in the current state. */
lace_status reply_step(reply_parser *p, char c);
/* The call is over: look for its end. */
lace_status reply_leave_call(reply_parser *p);
/* What was read is no call after all; it becomes content. */
lace_status reply_give_up(reply_parser *p);

lace_status reply_step_json(reply_parser *p, char c);
lace_status reply_step_name(reply_parser *p, char c);
lace_status reply_step_args(reply_parser *p, char c);
lace_status reply_step_tagged(reply_parser *p, char c);
lace_status reply_step_whole(reply_parser *p, char c);
/* Whatever is left of a call when the reply ends inside of it. */
lace_status reply_finish_call(reply_parser *p);

/* Whether one of the request's tools has this name; true if there are none. */
bool reply_knows_tool(const reply_parser *p, text name);
bool reply_has_args(const reply_call *c); /* read to their end */
bool reply_is_space(char c);
bool reply_ends_with(const buf *b, const char *end);

lace_status reply_put_string(reply_parser *p, text chars); /* as JSON, into the arguments */
/* The calls of CALL_PYTHON, all of them; *is_valid is false if it is something else. */
lace_status reply_read_python(reply_parser *p, text source, bool *is_valid);
/* A value of Python as JSON, into the arguments; nothing if it is none. */
bool reply_begins_python(text source); /* it may become a list of calls: [name( */
lace_status reply_put_python(reply_parser *p, text value, bool *is_valid);
/* The call of CALL_XML behind call_begin, in the same way. */
lace_status reply_read_xml(reply_parser *p, text source, bool *is_valid);

#endif
