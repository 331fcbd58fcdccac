/*
 * A model's reply, taken apart while it streams: reasoning, content and tool calls.
 *
 * Models write these in the format that their chat template shows them. The formats are rows of
 * tables (reply_formats.c): which words begin and end reasoning, which begin and end a call, and
 * how name and arguments stand between them. The row is chosen by words in the template.
 *
 *     reply_format format = reply_format_choose(template_text);
 *     options.is_thinking = reply_opens_thinking(&format, prompt);
 *     TRY(reply_parser_create(&format, &options, sink, arg, &parser, err));
 *     ... TRY(reply_parser_feed(parser, piece, err)); for each piece ...
 *     TRY(reply_parser_finish(parser, err));
 *
 * Where the text is cut into pieces makes no difference to what comes out, but for where the deltas
 * are cut. What looks like a call and turns out to be none is content; nothing a model writes is an
 * error.
 */
#ifndef LACE_CHAT_PARSE_REPLY_H
#define LACE_CHAT_PARSE_REPLY_H

#include <jansson.h>

#include "base/bytes.h"

/* ---- Formats --------------------------------------------------------------------------------- */

typedef struct reply_calls reply_calls;
typedef struct reply_thinking reply_thinking;
typedef struct reply_answer reply_answer;

typedef struct reply_format {
    const reply_calls *calls;       /* how calls are written */
    const reply_thinking *thinking; /* how reasoning is; NULL: there is none */
    const reply_answer *answer;     /* words around what is said; NULL: there are none */
} reply_format;

/* By what the chat template says; an unknown one gets the most common format. */
reply_format reply_format_choose(text template_source);
reply_format reply_format_by_name(const char *name); /* calls is NULL if there is none such */
/* The same reasoning, and calls as a model writes them that only the system message told how. */
reply_format reply_format_described(const reply_format *f);
const char *reply_format_name(const reply_format *f); /* "hermes", "mistral", ... */

/* The words around reasoning; false: the format has none. */
bool reply_thinking_words(const reply_format *f, const char **begin, const char **end);

/* Whether a prompt ends inside of reasoning, so that the reply begins there. */
bool reply_opens_thinking(const reply_format *f, text prompt);

/* ---- Events ---------------------------------------------------------------------------------- */

typedef enum reply_event_kind {
    REPLY_CONTENT,    /* chars: a piece of it */
    REPLY_REASONING,  /* chars: a piece of it */
    REPLY_CALL_BEGIN, /* chars: the function's name; id: what the model called it, or empty */
    REPLY_CALL_ARGS,  /* chars: a piece of the JSON of its arguments */
    REPLY_CALL_END,   /* is_complete: the call was written to its end */
} reply_event_kind;

typedef struct reply_event {
    reply_event_kind kind;
    text chars, id; /* valid during the call */
    int call;       /* number of the call, from 0 */
    bool is_complete;
} reply_event;

/* A failure it returns stops the parser and is returned from feed or finish. */
typedef lace_status (*reply_sink)(void *arg, const reply_event *event);

/* ---- The parser ------------------------------------------------------------------------------ */

typedef struct reply_options {
    bool is_thinking;    /* the reply begins inside of reasoning */
    bool keeps_thinking; /* do not split reasoning off */
    bool keeps_calls;    /* do not look for calls */
    const char *opening; /* "" or NULL, or words that the reply goes on behind (chat_prompt) */
    const json_t *tools; /* as in the request (borrowed), for the types of arguments; may be NULL */
} reply_options;

typedef struct reply_parser reply_parser;

enum { REPLY_MAX_HELD = 16 << 20 }; /* bytes held back for a call that is not understood yet */

lace_status reply_parser_create(const reply_format *f, const reply_options *options,
                                reply_sink sink, void *arg, reply_parser **out, lace_error *err);
void reply_parser_free(reply_parser *p);

/* LACE_E_NOMEM, LACE_E_LIMIT, or what the sink returned. */
lace_status reply_parser_feed(reply_parser *p, text piece, lace_error *err);

/* The reply is over: gives out what was held back. Nothing may be fed after it. */
lace_status reply_parser_finish(reply_parser *p, lace_error *err);

#endif
