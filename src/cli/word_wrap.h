/*
 * Text as it comes, in lines that end between words: a terminal by itself cuts them anywhere.
 *
 * A word is held back until it is complete, since only then is it known whether it still fits. Lines
 * of code (between ``` and ```) stay as they are, so that they can be copied.
 */
#ifndef LACE_CLI_WORD_WRAP_H
#define LACE_CLI_WORD_WRAP_H

#include <stdbool.h>

#include "base/buf.h"

typedef struct word_wrap {
    int n_columns; /* of the terminal; 0: nothing is changed */
    int column;    /* where the next character goes */
    int n_spaces;  /* before the word that is held back */
    int n_width;   /* its columns */
    int n_ticks;   /* "`" at the beginning of this line; -1: something else stood before */
    bool is_code;
    buf word;
} word_wrap;

void word_wrap_init(word_wrap *w, int n_columns);
void word_wrap_deinit(word_wrap *w);

/* Append to out what can be shown after these n bytes more: whole characters, of UTF-8. */
lace_status word_wrap_push(word_wrap *w, const char *chars, size_t n, buf *out);

/* And what was held back; a new text begins. */
lace_status word_wrap_end(word_wrap *w, buf *out);

#endif
