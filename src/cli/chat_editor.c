/*
 * Lines for lace chat with editing and history, by libedit. The history is kept in
 * $XDG_STATE_HOME/lace/history, readable by its owner alone.
 */
#define _DEFAULT_SOURCE
#include "cli/chat_editor.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "cli/cli.h"

enum { HISTORY_LINES = 1000 };

struct chat_editor {
    EditLine *edit;
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
    chat_editor *e;
    el_get(edit, EL_CLIENTDATA, &e);
    return prompts[e->has_colour][e->is_more];
}

/* The folder is made if need be; without a place there is just no history. */
static void find_history(chat_editor *e)
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
    snprintf(e->path, sizeof e->path, "%s/history", folder);
}

static void start(chat_editor *e)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
    e->edit = el_init("lace", stdin, stdout, stderr);
    e->history = history_init();
    if (!e->edit || !e->history)
        return;
    history(e->history, &e->event, H_SETSIZE, HISTORY_LINES);
    history(e->history, &e->event, H_SETUNIQUE, 1);
    find_history(e);
    if (e->path[0])
        history(e->history, &e->event, H_LOAD, e->path);
    el_set(e->edit, EL_CLIENTDATA, e);
    el_set(e->edit, EL_PROMPT_ESC, show_prompt, '\1');
    el_set(e->edit, EL_EDITOR, "emacs");
    el_set(e->edit, EL_HIST, history, e->history);
    el_set(e->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(e->edit, NULL); /* ~/.editrc */
}

chat_editor *chat_editor_open(bool has_colour)
{
    chat_editor *e = mem_calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->has_colour = has_colour;
    start(e);
    if (e->edit && e->history)
        return e;
    chat_editor_close(e);
    return NULL;
}

void chat_editor_close(chat_editor *e)
{
    if (!e)
        return;
    if (e->history && e->path[0]) {
        mode_t mask = umask(077);
        history(e->history, &e->event, H_SAVE, e->path);
        umask(mask);
    }
    if (e->edit)
        el_end(e->edit);
    if (e->history)
        history_end(e->history);
    mem_free(e);
}

bool chat_editor_read(chat_editor *e, bool is_more, buf *out, bool *is_interrupted)
{
    int count = 0;
    e->is_more = is_more;
    cli_stop = 0;
    el_set(e->edit, EL_PREP_TERM, 1); /* before the prompt: keys behind it are for the editor */
    errno = 0;
    const char *edited = el_gets(e->edit, &count);
    *is_interrupted = cli_stop != 0 || (count < 0 && errno == EINTR);
    if (*is_interrupted || !edited || count <= 0)
        return false;
    if (count > 1)
        history(e->history, &e->event, H_ENTER, edited);
    size_t n = (size_t)count;
    if (edited[n - 1] == '\n')
        n--;
    return buf_append(out, edited, n) == LACE_OK;
}
