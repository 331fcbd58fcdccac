/*
 * Lines for lace chat: from a keyboard with editing and history (libedit), or from a pipe. The
 * history is kept in $XDG_STATE_HOME/lace/history, readable by its owner alone.
 */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/chat.h"
#include "cli/terminal.h"

enum { HISTORY_LINES = 1000 };

struct chat_input {
    EditLine *edit; /* NULL: no terminal */
    History *history;
    HistEvent event;
    char path[512]; /* of the history; "" if there is none */
    bool has_colour;
    bool is_more; /* a further line of a message is read: another prompt */
};

/*
 * \1 stands around what takes no place on the screen. libedit keeps such a part with the character
 * behind it, and drops one that has none: colours must end before the last character.
 */
static char *show_prompt(EditLine *edit)
{
    static char prompts[2][2][32] = {
        {"> ", ". "},
        {"\1\033[1;36m\1>\1\033[0m\1 ", "\1\033[2m\1.\1\033[0m\1 "},
    };
    chat_input *in;
    el_get(edit, EL_CLIENTDATA, &in);
    return prompts[in->has_colour][in->is_more];
}

/* The folder is made if need be; without a place there is just no history. */
static void find_history(chat_input *in)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char folder[480];
    if (state && state[0] == '/')
        snprintf(folder, sizeof folder, "%s/lace", state);
    else if (home && home[0] == '/')
        snprintf(folder, sizeof folder, "%s/.local/state/lace", home);
    else
        return;
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(folder, 0700);
        *slash = '/';
    }
    mkdir(folder, 0700);
    snprintf(in->path, sizeof in->path, "%s/history", folder);
}

static void open_editor(chat_input *in)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
    in->edit = el_init("lace", stdin, stdout, stderr);
    in->history = history_init();
    if (!in->edit || !in->history)
        return;
    history(in->history, &in->event, H_SETSIZE, HISTORY_LINES);
    history(in->history, &in->event, H_SETUNIQUE, 1);
    find_history(in);
    if (in->path[0])
        history(in->history, &in->event, H_LOAD, in->path);
    el_set(in->edit, EL_CLIENTDATA, in);
    el_set(in->edit, EL_PROMPT_ESC, show_prompt, '\1');
    el_set(in->edit, EL_EDITOR, "emacs");
    el_set(in->edit, EL_HIST, history, in->history);
    el_set(in->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(in->edit, NULL); /* ~/.editrc */
}

lace_status chat_input_create(chat_input **out, lace_error *err)
{
    *out = mem_calloc(1, sizeof **out);
    if (!*out)
        return error_nomem(err, "the keyboard");
    (*out)->has_colour = terminal_has_colour(STDOUT_FILENO);
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
        open_editor(*out);
    return LACE_OK;
}

void chat_input_free(chat_input *in)
{
    if (!in)
        return;
    if (in->history && in->path[0]) {
        mode_t mask = umask(077);
        history(in->history, &in->event, H_SAVE, in->path);
        umask(mask);
    }
    if (in->edit)
        el_end(in->edit);
    if (in->history)
        history_end(in->history);
    mem_free(in);
}

/* One line without its end. False at the end of input, or after Ctrl-C. */
static bool read_line(chat_input *in, buf *out, bool *is_interrupted)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    if (in->edit) {
        int count = 0;
        cli_stop = 0;
        el_set(in->edit, EL_PREP_TERM,
               1); /* before the prompt: keys behind it are for the editor */
        errno = 0;
        const char *edited = el_gets(in->edit, &count);
        *is_interrupted = cli_stop != 0 || (count < 0 && errno == EINTR);
        if (*is_interrupted || !edited || count <= 0)
            return false;
        if (count > 1)
            history(in->history, &in->event, H_ENTER, edited);
        n = count;
        if (edited[n - 1] == '\n')
            n--;
        return buf_append(out, edited, (size_t)n) == LACE_OK;
    }
    n = getline(&line, &capacity, stdin);
    if (n > 0 && line[n - 1] == '\n')
        n--;
    bool is_read = n >= 0 && buf_append(out, line, (size_t)n) == LACE_OK;
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
