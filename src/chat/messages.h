/* Messages in OpenAI's form, brought into the form that a template takes. Inside src/chat only. */
#ifndef LACE_CHAT_MESSAGES_H
#define LACE_CHAT_MESSAGES_H

#include "chat/chat.h"

typedef struct message_rules {
    const chat_caps *caps;
    bool keeps_developer; /* the template knows the role "developer" */
    bool wants_thinking;  /* earlier reasoning is read from "thinking" */
} message_rules;

/* A new array, to be freed with json_decref. LACE_E_ARG, LACE_E_UNSUPPORTED, LACE_E_NOMEM. */
lace_status messages_adapt(const json_t *messages, const message_rules *rules, json_t **out,
                           lace_error *err);

/* Append the text of a message's content: a string, text parts joined by line ends, or nothing. */
lace_status message_text(const json_t *content, size_t message, buf *out, lace_error *err);

/*
 * Append a content to a list of parts: an image is a part, and texts between images are one, joined
 * by line ends. `chars` has the text that is not yet a part, which message_end_part makes one.
 */
lace_status message_parts(const json_t *content, size_t message, buf *chars, json_t *parts,
                          lace_error *err);
lace_status message_end_part(buf *chars, json_t *parts);
bool message_has_image(const json_t *message);
bool message_is_result(const json_t *message);

/*
 * described_tools.c: a new array in which the system message describes tools that the template has
 * no place for, and calls and results are plain messages where it shows none. A template that shows
 * tools and no calls gets the calls as its model writes them.
 */
lace_status messages_describe_tools(const json_t *messages, const json_t *tools,
                                    const chat_caps *caps, const reply_format *format, json_t **out,
                                    lace_error *err);

/* Whether calls of described tools are asked for as the template shows them. */
bool described_in_own_form(const chat_caps *caps, const reply_format *format);

/* split_calls.c: a new array in which every message has one call at most, its result behind it. */
lace_status messages_split_calls(const json_t *messages, json_t **out, lace_error *err);

/*
 * result_images.c: a new array in which images of results stand in messages of the user, behind the
 * results; NULL: there are none.
 */
lace_status messages_move_images(const json_t *messages, json_t **out, lace_error *err);

/*
 * continuation.c: whether the last message is one of the assistant's that can be continued, behind
 * others; and its text, put behind a prompt that opens a reply. *opening is what a parser of the
 * reply must have read before, "" or static.
 */
bool message_is_continued(const json_t *messages);
lace_status reply_close_thinking(const reply_format *f, buf *out, buf *marks);
lace_status message_continue(const json_t *messages, const reply_format *f, buf *out, buf *marks,
                             const char **opening, lace_error *err);

#endif
