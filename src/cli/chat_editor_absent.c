/* In the place of libedit. */
#include "cli/chat_editor.h"

chat_editor *chat_editor_open(bool has_colour)
{
    return NULL;
}

void chat_editor_close(chat_editor *e)
{
}

bool chat_editor_read(chat_editor *e, bool is_more, buf *out, bool *is_interrupted)
{
    return false;
}
