/* What the terminal can do and its user wants: the one place that decides about colours. */
#ifndef LACE_CLI_TERMINAL_H
#define LACE_CLI_TERMINAL_H

#include <stdbool.h>

/* Lines on it can be drawn over: a terminal, and TERM is neither missing nor "dumb". */
bool terminal_can_draw(int fd);

/* The same, and colours are wanted: NO_COLOR is missing or empty (no-color.org). */
bool terminal_has_colour(int fd);

/* Its columns; 0 if it is none, or does not say. */
int terminal_columns(int fd);

#endif
