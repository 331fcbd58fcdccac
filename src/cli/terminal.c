/* What the terminal can do and its user wants. */
#define _DEFAULT_SOURCE
#include "cli/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool terminal_can_draw(int fd)
{
    const char *kind = getenv("TERM");
    return isatty(fd) && kind && kind[0] && strcmp(kind, "dumb") != 0;
}

bool terminal_has_colour(int fd)
{
    const char *none = getenv("NO_COLOR");
    return terminal_can_draw(fd) && !(none && none[0]);
}

int terminal_columns(int fd)
{
    struct winsize size;
    return isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}
