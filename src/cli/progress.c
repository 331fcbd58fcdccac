/* Progress on standard error: a bar for people, a line now and then for logs. */
#define _DEFAULT_SOURCE
#include "cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/terminal.h"

#define SECOND_NS UINT64_C(1000000000)

enum {
    MAX_WIDTH = 120,
    N_ECHO = 2, /* columns of "^C", which the terminal writes behind the bar */
    N_TIME = 24,
};

static const uint64_t DELAY_NS = SECOND_NS / 10;  /* what takes less needs no bar */
static const uint64_t REDRAW_NS = SECOND_NS / 20; /* no faster than the eye */
static const uint64_t LINE_NS = 30 * SECOND_NS;   /* between lines in a log */
static const uint64_t LONG_NS = 10 * SECOND_NS;   /* what takes less needs no time left */
static const uint64_t KNOWN_NS = 2 * SECOND_NS;   /* before that nobody can know it */

void progress_init(progress *p, const volatile int *stop)
{
    uint64_t now = clock_ns();
    *p = (progress){.begun_ns = now,
                    .shown_ns = now,
                    .part_ns = now,
                    .is_terminal = terminal_can_draw(STDERR_FILENO),
                    .stop = stop};
}

static int terminal_width(void)
{
    int n_columns = terminal_columns(STDERR_FILENO);
    if (n_columns == 0)
        return 80;
    return n_columns < MAX_WIDTH ? n_columns : MAX_WIDTH;
}

/* " 3:20 left", by how quickly this part went until now; "" if it is short or unknown. */
static void format_left(const progress *p, uint64_t now, char out[N_TIME])
{
    double spent = (double)(now - p->part_ns), made = p->done - p->part_from;
    out[0] = 0;
    if (now - p->part_ns < (made > 0.005 ? KNOWN_NS : LONG_NS) || !(made > 0))
        return;
    double left = spent * (1 - p->done) / made;
    if (spent + left < (double)LONG_NS || left > 1e6 * (double)SECOND_NS)
        return;
    unsigned s = (unsigned)(left / (double)SECOND_NS + 0.5);
    if (s >= 3600)
        snprintf(out, N_TIME, " %u:%02u:%02u left", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, N_TIME, " %u:%02u left", s / 60, s % 60);
}

/* At most `width` columns: "packing weights [####      ]  42% 0:31 left". */
static void format_bar(char out[PROGRESS_MAX_TEXT], const char *what, double done, const char *left,
                       int width)
{
    int n_bar = width - (int)strlen(what) - (int)strlen(left) - (int)sizeof " [] 100%" + 1;
    if (n_bar < 5) { /* too narrow for a bar: as much of the text as fits */
        snprintf(out, PROGRESS_MAX_TEXT, "%.*s", width > 0 ? width : 0, what);
        return;
    }
    if (n_bar > 40)
        n_bar = 40;
    char bar[41];
    int n_full = (int)(done * n_bar);
    memset(bar, ' ', (size_t)n_bar);
    memset(bar, '#', (size_t)n_full);
    snprintf(out, PROGRESS_MAX_TEXT, "%s [%.*s] %3d%%%s", what, n_bar, bar, (int)(done * 100),
             left);
}

/* Over the line before. Carriage return and spaces, no escape codes: every terminal knows them. */
static void draw_over(progress *p, const char *line, char out[PROGRESS_MAX_TEXT])
{
    static const char blanks[MAX_WIDTH + 1] =
        "                                                            "
        "                                                            ";
    int n = (int)strlen(line), n_wiped = p->n_drawn > n ? p->n_drawn - n : 0;
    snprintf(out, PROGRESS_MAX_TEXT, "\r%.*s%.*s\r%.*s", MAX_WIDTH, line, n_wiped, blanks,
             MAX_WIDTH, line);
    p->n_drawn = n;
}

void progress_step(progress *p, const char *what, double done, uint64_t now_ns, int n_columns,
                   char out[PROGRESS_MAX_TEXT])
{
    out[0] = 0;
    done = done >= 0 ? (done <= 1 ? done : 1) : 0; /* NaN too becomes 0 */
    if (done < p->done) {
        p->part_ns = now_ns;
        p->part_from = done;
    }
    p->done = done;
    bool is_early = p->n_drawn == 0 && now_ns - p->begun_ns < DELAY_NS;
    if (now_ns - p->shown_ns < (p->is_terminal ? REDRAW_NS : LINE_NS) || is_early)
        return;
    p->shown_ns = now_ns;
    char left[N_TIME], line[PROGRESS_MAX_TEXT];
    format_left(p, now_ns, left);
    if (!p->is_terminal) {
        snprintf(out, PROGRESS_MAX_TEXT, "lace: %.*s %d%%%s%s\n", MAX_WIDTH, what,
                 (int)(done * 100), left[0] ? "," : "", left);
        return;
    }
    format_bar(line, what, done, left, n_columns - 1 - N_ECHO);
    draw_over(p, line, out);
}

bool progress_report(void *user, const char *what, double done)
{
    progress *p = user;
    char text[PROGRESS_MAX_TEXT];
    if (p->stop && *p->stop)
        return false;
    progress_step(p, what, done, clock_ns(), p->is_terminal ? terminal_width() : 0, text);
    if (text[0]) {
        fputs(text, stderr);
        fflush(stderr);
    }
    return true;
}

void progress_show(progress *p, const char *what)
{
    char line[2 * MAX_WIDTH], text[PROGRESS_MAX_TEXT];
    if (!p->is_terminal)
        return;
    snprintf(line, sizeof line, "%.*s ...", terminal_width() - 5 - N_ECHO, what);
    draw_over(p, line, text);
    fputs(text, stderr);
    fflush(stderr);
}

void progress_end(progress *p)
{
    if (p->n_drawn > 0) {
        fprintf(stderr, "\r%*s\r", p->n_drawn + N_ECHO, "");
        fflush(stderr);
    }
    p->n_drawn = 0;
}
