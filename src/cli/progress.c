/* A progress bar on standard error, for people only. */
#define _DEFAULT_SOURCE
#include "cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    DELAY_NS = 100 * 1000 * 1000, /* what takes less needs no bar */
    REDRAW_NS = 50 * 1000 * 1000, /* no faster than the eye */
    MAX_WIDTH = 120,
    N_ECHO = 2, /* columns of "^C", which the terminal writes behind the bar */
};

void progress_init(progress *p, const volatile int *stop)
{
    *p = (progress){.begun_ns = clock_ns(), .is_terminal = isatty(STDERR_FILENO), .stop = stop};
}

static int terminal_width(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return 80;
    return size.ws_col < MAX_WIDTH ? size.ws_col : MAX_WIDTH;
}

/* The line to draw, at most `width` columns: "packing weights [####      ] 42%". Returns out. */
static char *format_bar(char *out, size_t n_out, const char *what, double done, int width)
{
    done = done >= 0 ? (done <= 1 ? done : 1) : 0; /* NaN too becomes 0 */
    int n_what = (int)strlen(what);
    int n_bar = width - n_what - (int)sizeof " [] 100%" + 1;
    if (n_bar < 5) { /* too narrow for a bar: as much of the text as fits */
        snprintf(out, n_out, "%.*s", width > 0 ? width : 0, what);
        return out;
    }
    if (n_bar > 40)
        n_bar = 40;
    char bar[41];
    int n_full = (int)(done * n_bar);
    memset(bar, ' ', (size_t)n_bar);
    memset(bar, '#', (size_t)n_full);
    snprintf(out, n_out, "%s [%.*s] %3d%%", what, n_bar, bar, (int)(done * 100));
    return out;
}

/* Carriage return and spaces, no escape codes: this works on every terminal. */
static void draw(progress *p, const char *line)
{
    int n = (int)strlen(line);
    fprintf(stderr, "\r%s%*s\r%s", line, p->n_drawn > n ? p->n_drawn - n : 0, "", line);
    fflush(stderr);
    p->n_drawn = n;
}

bool progress_report(void *user, const char *what, double done)
{
    progress *p = user;
    if (p->stop && *p->stop)
        return false;
    uint64_t now = clock_ns();
    if (!p->is_terminal || now - p->begun_ns < DELAY_NS || now - p->drawn_ns < REDRAW_NS)
        return true;
    char line[2 * MAX_WIDTH];
    draw(p, format_bar(line, sizeof line, what, done, terminal_width() - 1 - N_ECHO));
    p->drawn_ns = now;
    return true;
}

void progress_show(progress *p, const char *what)
{
    char line[2 * MAX_WIDTH];
    if (!p->is_terminal)
        return;
    snprintf(line, sizeof line, "%.*s ...", terminal_width() - 5 - N_ECHO, what);
    draw(p, line);
}

void progress_end(progress *p)
{
    if (p->n_drawn > 0) {
        fprintf(stderr, "\r%*s\r", p->n_drawn + N_ECHO, "");
        fflush(stderr);
    }
    p->n_drawn = 0;
}
