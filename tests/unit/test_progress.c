/* Progress bars and lines, at moments made up by the test: no case waits. */
#define _DEFAULT_SOURCE
#include "cli/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/terminal.h"
#include "tap.h"

static char text[PROGRESS_MAX_TEXT]; /* what the last step wrote */

static progress begin(bool is_terminal)
{
    return (progress){.is_terminal = is_terminal};
}

static const char *step_at(progress *p, double seconds, double done)
{
    progress_step(p, "working", done, (uint64_t)(seconds * 1e9), 80, text);
    return text;
}

static void short_work_has_a_bar_and_no_time(void)
{
    progress p = begin(true);
    CHECK(step_at(&p, 0.05, 0.01)[0] == 0); /* it may be over before anyone looks */
    CHECK(strstr(step_at(&p, 0.2, 0.1), "working [####") != NULL);
    CHECK(strstr(text, "10%") != NULL);
    CHECK(step_at(&p, 0.21, 0.12)[0] == 0);              /* no faster than the eye */
    CHECK(strstr(step_at(&p, 3, 0.5), " left") == NULL); /* 6 s in all */
}

static void long_work_says_how_long_it_will_take(void)
{
    progress p = begin(true);
    CHECK(strstr(step_at(&p, 1, 0.01), " left") == NULL); /* too early to know */
    CHECK(strstr(step_at(&p, 10, 0.1), " 10% 1:30 left") != NULL);
    CHECK(strstr(step_at(&p, 20, 0.1), "3:00 left") != NULL); /* it became slower */
    CHECK(strstr(step_at(&p, 100, 0.01), "left") == NULL);    /* another part begins */
    CHECK(strstr(step_at(&p, 200, 0.02), "2:43:20 left") != NULL);
    CHECK(strstr(step_at(&p, 300, 1), "0:00 left") != NULL);
}

static void very_long_work_says_so_after_some_seconds(void)
{
    progress p = begin(true);
    CHECK(strstr(step_at(&p, 9, 0.001), " left") == NULL); /* a guess by so little is wild */
    CHECK(strstr(step_at(&p, 12, 0.001), "3:19:48 left") != NULL);
    progress idle = begin(true);
    CHECK(strstr(step_at(&idle, 60, 0), " left") == NULL);
}

static void bar_with_time_fits_its_line(void)
{
    progress p = begin(true);
    for (int width = 1; width < 100; width++) {
        progress_step(&p, "working", 0.1, (uint64_t)(60e9 + width * 1e9), width, text);
        const char *last = strrchr(text, '\r');
        if (CHECK(last != NULL))
            CHECK((int)strlen(last + 1) <= (width > 3 ? width - 3 : 0));
    }
}

static void logs_get_a_line_now_and_then(void)
{
    progress p = begin(false);
    int n_lines = 0;
    for (int s = 0; s <= 300; s++) {
        step_at(&p, s, s / 600.0);
        if (text[0]) {
            n_lines++;
            CHECK(strncmp(text, "lace: working ", 14) == 0);
            CHECK(strchr(text, '\n') == text + strlen(text) - 1 && !strchr(text, '\r'));
        }
    }
    CHECK(n_lines == 10); /* one each 30 s */
    CHECK(strcmp(text, "lace: working 50%, 5:00 left\n") == 0);
    progress quick = begin(false);
    CHECK(step_at(&quick, 29, 0.9)[0] == 0);
}

static void shares_that_are_no_numbers_do_no_harm(void)
{
    progress p = begin(true);
    static const double bad[] = {-1, NAN, INFINITY, 2, -INFINITY};
    for (int i = 0; i < 5; i++) {
        CHECK(strchr(step_at(&p, 20 + i, bad[i]), '%') != NULL);
        CHECK(strstr(text, "-") == NULL && strstr(text, "nan") == NULL);
    }
}

/* Whatever the terminal outside is. */
static void files_have_neither_bars_nor_colours(void)
{
    FILE *f = tmpfile();
    if (!CHECK(f != NULL))
        return;
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    CHECK(!terminal_can_draw(fileno(f)) && !terminal_has_colour(fileno(f)));
    fclose(f);
}

int main(void)
{
    CASE(short_work_has_a_bar_and_no_time);
    CASE(long_work_says_how_long_it_will_take);
    CASE(very_long_work_says_so_after_some_seconds);
    CASE(bar_with_time_fits_its_line);
    CASE(logs_get_a_line_now_and_then);
    CASE(shares_that_are_no_numbers_do_no_harm);
    CASE(files_have_neither_bars_nor_colours);
    return tap_end();
}
