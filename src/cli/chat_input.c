/* Lines for lace chat: from a keyboard, edited where that can be (chat_editor.h), or from a pipe. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/chat.h"
#include "cli/chat_editor.h"
#include "cli/cli.h"
#include "cli/terminal.h"

struct chat_input {
    chat_editor *editor; /* NULL: no terminal, or no editor */
    bool is_terminal;
    bool is_more; /* a further line of a message is read: another prompt */
};

lace_status chat_input_create(chat_input **out, lace_error *err)
{
    *out = mem_calloc(1, sizeof **out);
    if (!*out)
        return error_nomem(err, "the keyboard");
    (*out)->is_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    if ((*out)->is_terminal)
        (*out)->editor = chat_editor_open(terminal_has_colour(STDOUT_FILENO));
    return LACE_OK;
}

void chat_input_free(chat_input *in)
{
    if (in)
        chat_editor_close(in->editor);
    mem_free(in);
}

/* One line without its end. False at the end of input, or after Ctrl-C. */
static bool read_line(chat_input *in, buf *out, bool *is_interrupted)
{
    char *line = NULL;
    size_t capacity = 0;
    if (in->editor)
        return chat_editor_read(in->editor, in->is_more, out, is_interrupted);
    if (in->is_terminal) {
        cli_stop = 0;
        fputs(in->is_more ? ". " : "> ", stdout);
        fflush(stdout);
    }
    ssize_t n = getline(&line, &capacity, stdin);
    *is_interrupted = in->is_terminal && cli_stop != 0;
    if (*is_interrupted)
        clearerr(stdin);
    if (n > 0 && line[n - 1] == '\n')
        n--;
    bool is_read = n >= 0 && !*is_interrupted && buf_append(out, line, (size_t)n) == LACE_OK;
    free(line); /* getline's own */
    return is_read;
}

static bool ends_with(const buf *b, size_t from, const char *mark)
{
    size_t n = strlen(mark);
    return b->size >= from + n && memcmp(b->data + b->size - n, mark, n) == 0;
}

/* The lines up to the one that ends with three quotes. */
static bool read_block(chat_input *in, buf *out, bool *is_interrupted)
{
    memmove(out->data, out->data + 3, out->size - 3);
    out->size -= 3;
    while (!ends_with(out, 0, "\"\"\"")) {
        if (out->size && buf_append(out, "\n", 1) != LACE_OK)
            return false;
        if (!read_line(in, out, is_interrupted))
            return false;
    }
    out->size -= 3;
    if (out->size && out->data[out->size - 1] == '\n')
        out->size--;
    return true;
}

bool chat_input_read(chat_input *in, buf *out, bool *is_interrupted)
{
    *is_interrupted = false;
    buf_clear(out);
    in->is_more = false;
    bool is_read = read_line(in, out, is_interrupted);
    in->is_more = true;
    if (is_read && out->size >= 3 && memcmp(out->data, "\"\"\"", 3) == 0) {
        is_read = read_block(in, out, is_interrupted);
    } else {
        while (is_read && ends_with(out, 0, "\\")) {
            out->data[out->size - 1] = '\n';
            is_read = read_line(in, out, is_interrupted);
        }
    }
    if (is_read && out->size)
        out->data[out->size] = 0;
    return is_read;
}
