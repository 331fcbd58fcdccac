/*
 * Calls as a model writes them, for conversations whose template shows none. Inside src/chat only.
 *
 *     for each call: TRY(reply_write_call(f, is_first, name, arguments, out));
 *     TRY(reply_write_calls_end(f, out));
 *
 * The words around calls are control tokens, which nothing in a message ever becomes. So they stand
 * between two bytes that no message has, on their way through the template; these are then taken
 * out, and the words between them count as the template's.
 */
#ifndef LACE_CHAT_REPLY_WRITER_H
#define LACE_CHAT_REPLY_WRITER_H

#include "base/buf.h"
#include "chat/reply_formats.h"

/* Whether calls of this format can be written: lists of JSON objects, and Python. */
bool reply_can_write(const reply_format *f);
lace_status reply_write_call(const reply_format *f, bool is_first, const json_t *name,
                             const json_t *arguments, buf *out);
lace_status reply_write_calls_end(const reply_format *f, buf *out);

/* Take the bytes out of a prompt, from `from` on. marks may be NULL: nobody asks whose a byte is. */
void reply_settle_words(buf *prompt, buf *marks, size_t from);

/* JSON in the form in which templates write it: {"a": 1, "b": [true]}. */
lace_status reply_write_json(const json_t *value, buf *out);
/* The same, as compact as jansson's flags say. */
lace_status reply_dump_json(const json_t *value, size_t flags, buf *out);

#endif
