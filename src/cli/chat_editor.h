/*
 * A line that is typed, with editing and history: libedit (chat_editor.c), or nothing where the build
 * has no libedit (chat_editor_absent.c). Lines are then read as they come.
 */
#ifndef LACE_CLI_CHAT_EDITOR_H
#define LACE_CLI_CHAT_EDITOR_H

#include <stdbool.h>

#include "base/buf.h"

typedef struct chat_editor chat_editor;

/* For the terminal; NULL: there is none. */
chat_editor *chat_editor_open(bool has_colour);
void chat_editor_close(chat_editor *e); /* NULL is fine */

/* One line without its end; is_more: a further one of a message. False at the end of input, or after
 * Ctrl-C. */
bool chat_editor_read(chat_editor *e, bool is_more, buf *out, bool *is_interrupted);

#endif
