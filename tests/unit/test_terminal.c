/*
 * lace chat at a terminal: a pseudo terminal, what the program writes to it byte by byte, and how
 * each character would look on the screen. Runs from the project's root; $LACE_BIN is the program.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "formats/gguf_write.h"
#include "command.h"
#include "tap.h"
#include "tiny_model.h"

enum { MAX_BYTES = 1 << 16, PATIENCE_S = 60 };

/* A program at a terminal, and what it has written until now. */
static struct {
    pid_t pid;
    int fd; /* our end */
    char bytes[MAX_BYTES];
    size_t n_bytes;
    /* The same as a screen has it: characters without codes, and how each one looks. */
    char chars[MAX_BYTES];
    bool is_plain[MAX_BYTES];
    size_t n_chars;
    bool ends_plain; /* what is written next would look plain */
} term;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- The screen ------------------------------------------------------------------------------ */

/* The length of a code ESC [ ... letter, or ESC and one more. */
static size_t code_length(const char *p, size_t n)
{
    size_t i = 1;
    if (i < n && p[i] == '[') {
        i++;
        while (i < n && (unsigned char)p[i] < 0x40)
            i++;
    }
    return i < n ? i + 1 : n;
}

static void read_screen(void)
{
    term.n_chars = 0;
    term.ends_plain = true;
    for (size_t i = 0; i < term.n_bytes;) {
        const char *p = term.bytes + i;
        if (*p == '\033') {
            size_t n = code_length(p, term.n_bytes - i);
            if (p[n - 1] == 'm') /* the look: ESC [ 0 m and ESC [ m are plain */
                term.ends_plain = n == 3 || (n == 4 && p[2] == '0');
            i += n;
            continue;
        }
        if (*p != '\r' && *p != '\b') {
            term.is_plain[term.n_chars] = term.ends_plain;
            term.chars[term.n_chars++] = *p;
        }
        i++;
    }
    term.chars[term.n_chars] = 0;
}

/* Where a text stands on the screen for the last time, or NULL. */
static const char *find_last(const char *what)
{
    const char *found = NULL;
    for (const char *p = term.chars; (p = strstr(p, what)); p++)
        found = p;
    return found;
}

/* Every character from `from` on, n of them, looks plain (or none does). */
static bool looks(const char *from, size_t n, bool is_plain)
{
    for (size_t i = 0; from && i < n; i++)
        if (from[i] != ' ' && from[i] != '\n' && term.is_plain[from - term.chars + i] != is_plain)
            return false;
    return from != NULL;
}

/* ---- The program ----------------------------------------------------------------------------- */

/* Start lace chat with arguments for a shell, and settings of the environment before it. */
static bool start(const char *settings, const char *arguments)
{
    char command[1024];
    snprintf(command, sizeof command, "exec env %s \"$lace\" chat %s", settings, arguments);
    memset(&term, 0, sizeof term);
    term.fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (!CHECK(term.fd >= 0 && grantpt(term.fd) == 0 && unlockpt(term.fd) == 0))
        return false;
    const char *name = ptsname(term.fd);
    struct winsize size = {.ws_row = 40, .ws_col = 90};
    ioctl(term.fd, TIOCSWINSZ, &size);
    setenv("XDG_STATE_HOME", command_path("state"), 1);
    setenv("TERM", "xterm-256color", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    unsetenv("NO_COLOR");
    term.pid = fork();
    if (term.pid == 0) {
        setsid();
        int end = open(name, O_RDWR); /* the terminal of the new session */
        for (int fd = 0; fd < 3; fd++)
            dup2(end, fd);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return CHECK(term.pid > 0);
}

/*
 * Read until a text is on the screen behind the n-th character, or (NULL) the program has ended.
 * False if that does not come.
 */
static bool wait_behind(size_t n, const char *what)
{
    double end = now_s() + PATIENCE_S;
    bool has_ended = false;
    while (now_s() < end && term.n_bytes < MAX_BYTES - 1) {
        read_screen();
        if (what && n <= term.n_chars && strstr(term.chars + n, what))
            return true;
        struct pollfd p = {.fd = term.fd, .events = POLLIN};
        if (poll(&p, 1, 200) <= 0)
            continue;
        ssize_t got = read(term.fd, term.bytes + term.n_bytes, MAX_BYTES - 1 - term.n_bytes);
        if (got <= 0) {
            has_ended = true;
            break;
        }
        term.n_bytes += (size_t)got;
    }
    read_screen();
    bool ok = what ? n <= term.n_chars && strstr(term.chars + n, what) : has_ended;
    if (!CHECK(ok))
        tap_note("no %s in: %.2000s", what ? what : "end", term.chars);
    return ok;
}

static bool wait_for(const char *what)
{
    return wait_behind(0, what);
}

static void type(const char *keys)
{
    CHECK(write(term.fd, keys, strlen(keys)) == (ssize_t)strlen(keys));
}

/* Read what is left, and wait. Returns the exit code, 128 and more for a signal. */
static int finish(void)
{
    int status = 0;
    if (!wait_behind(0, NULL))
        kill(term.pid, SIGKILL);
    close(term.fd);
    if (waitpid(term.pid, &status, 0) != term.pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool has_colours(void)
{
    for (size_t i = 0; i < term.n_bytes; i++)
        if (term.bytes[i] == '\033') {
            size_t n = code_length(term.bytes + i, term.n_bytes - i);
            if (term.bytes[i + n - 1] == 'm')
                return true;
        }
    return false;
}

/*
 * A model whose answers begin inside of reasoning, at command_path("think.gguf"). Large enough that
 * 4,000 tokens take a while.
 */
static bool write_thinker(void)
{
    static const char chat[] = "{% for m in messages %}{{ m.content }}{% endfor %}<think>\n";
    tiny_options o = tiny_options_default();
    gguf_writer *w = NULL;
    o.n_context = 4096;
    o.n_layers = 6;
    o.n_embd = 256;
    o.n_ff = 1024;
    bool ok = tiny_model_create(&o, &w, NULL) == LACE_OK &&
              gguf_writer_add_text(w, "tokenizer.chat_template", text_of(chat), NULL) == LACE_OK &&
              gguf_writer_to_file(w, command_path("think.gguf"), NULL, NULL, NULL) == LACE_OK;
    gguf_writer_free(w);
    return CHECK(ok);
}

/* ---- Cases ----------------------------------------------------------------------------------- */

/* An answer has ended, and the next line is asked for; keys that come before are the kernel's. */
#define NOTE  "[cut; -n says how long]"
#define CUT   NOTE "\n> "
#define STORY "models/tales-4m.gguf -n 5 --seed 1 -t 1"

static void prompt_has_a_colour_and_what_is_typed_has_none(void)
{
    if (!start("", STORY) || !wait_for("> "))
        return;
    type("hello\r");
    if (!wait_for(CUT))
        return;
    size_t n = term.n_chars;
    type("/stats\r");
    wait_behind(n, "of the context used\n> ");
    type("ab\\\r");
    wait_for(". ");
    type("cd\r");
    wait_behind(n + 100, CUT);
    type("\004");
    CHECK(finish() == 0);
    const char *line = find_last("> hello");
    CHECK(line && looks(line, 1, false) && looks(line + 2, 5, true));
    CHECK(looks(find_last("/stats"), 6, true));
    CHECK(looks(find_last(". cd"), 1, false) && looks(find_last("cd"), 2, true));
    const char *note = strstr(term.chars, NOTE);
    CHECK(looks(note, 5, false)); /* a note is dimmed */
    if (line && note)             /* the answer is between the two */
        CHECK(note - line > 10 && looks(line + 7, (size_t)(note - line) - 7, true));
    CHECK(term.ends_plain);
}

static void editing_a_line_keeps_it_plain(void)
{
    if (!start("", STORY) || !wait_for("> "))
        return;
    type("wrold\002\002\002\b\b\014"); /* back, delete, and draw the screen again */
    type("\001wor\005\025");
    type("again\r");
    wait_for(CUT);
    type("/quit\r");
    CHECK(finish() == 0);
    CHECK(looks(find_last("again"), 5, true));
    CHECK(term.ends_plain);
}

static void no_color_and_dumb_terminals_get_none(void)
{
    static const char *const settings[] = {"NO_COLOR=1", "TERM=dumb", "-u TERM"};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        if (!start(settings[i], STORY) || !wait_for("> "))
            continue;
        type("hello\r");
        wait_for(CUT);
        type("\004");
        CHECK(finish() == 0);
        if (!CHECK(!has_colours()))
            tap_note("%s", settings[i]);
        CHECK(find_last("hello") != NULL);
    }
    if (start("NO_COLOR=", STORY) && wait_for("> ")) { /* empty is as if it were not there */
        type("\004");
        CHECK(finish() == 0);
        CHECK(has_colours());
    }
}

static void reasoning_is_dimmed_or_named(void)
{
    char arguments[512];
    if (!write_thinker())
        return;
    snprintf(arguments, sizeof arguments, "%s -n 8 --temp 0 -t 1", command_path("think.gguf"));
    if (start("", arguments) && wait_for("> ")) {
        type("hello\r");
        wait_for(CUT);
        type("\004");
        CHECK(finish() == 0);
        const char *line = find_last("hello\n"), *note = find_last(NOTE);
        const char *bar = find_last("100%"); /* on a busy machine it is drawn and wiped out */
        if (CHECK(line && note && note - line > 7)) {
            const char *answer = bar && bar > line ? bar + 4 + strspn(bar + 4, " ") : line + 6;
            CHECK(looks(answer, (size_t)(note - answer), false));
        }
        CHECK(term.ends_plain);
    }
    if (start("NO_COLOR=1", arguments) && wait_for("> ")) {
        type("hello\r");
        wait_for(CUT);
        type("\004");
        CHECK(finish() == 0);
        CHECK(strstr(term.chars, "[reasoning]\n") != NULL && !has_colours());
    }
}

/* Whoever ends the program finds the terminal as it was: plain, lines edited by the kernel. */
static void a_signal_leaves_the_terminal_as_it_was(void)
{
    char arguments[512];
    struct termios before, after;
    if (!write_thinker())
        return;
    snprintf(arguments, sizeof arguments, "%s -n 4000 --temp 0 -t 1", command_path("think.gguf"));
    for (int is_answering = 0; is_answering < 2; is_answering++) {
        if (!start("", arguments))
            return;
        CHECK(tcgetattr(term.fd, &before) == 0);
        wait_for("> ");
        if (is_answering) {
            type("hello\r");
            wait_behind(term.n_chars + 40, "");
            CHECK(!term.ends_plain);
        }
        kill(term.pid, SIGTERM);
        wait_behind(0, NULL);
        CHECK(tcgetattr(term.fd, &after) == 0);
        CHECK(finish() == 143);
        CHECK(term.ends_plain);
        CHECK((after.c_lflag & (ICANON | ECHO)) == (before.c_lflag & (ICANON | ECHO)));
    }
}

int main(void)
{
    if (!command_begin())
        return 1;
    CASE(prompt_has_a_colour_and_what_is_typed_has_none);
    CASE(editing_a_line_keeps_it_plain);
    CASE(no_color_and_dumb_terminals_get_none);
    CASE(reasoning_is_dimmed_or_named);
    CASE(a_signal_leaves_the_terminal_as_it_was);
    command_end();
    return tap_end();
}
