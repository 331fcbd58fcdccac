/* What several tests of the tokenizer do: create, encode, decode and compare, with checks. */
#ifndef LACE_TESTS_TOKEN_CHECK_H
#define LACE_TESTS_TOKEN_CHECK_H

#include "base/buf.h"
#include "tokenizer/tokenizer.h"

enum { MEGABYTE = 1 << 20 };

/*
 * More seconds of processor time than anything here takes; a megabyte takes 0.5, in quadratic time
 * hours. By the clock, a busy machine would fail.
 */
#define SLOW_SECONDS 10.0

tokenizer *check_create(const vocab *v);
token_list check_encode(const tokenizer *t, const char *data, size_t n, unsigned flags);
void check_decode(const tokenizer *t, const token_list *list, buf *out);

/* Random valid UTF-8 below a code point decodes to itself. Prints the seed when it does not. */
void check_round_trips(const tokenizer *t, int n_texts, uint32_t n_codes);

/* Megabytes of one character take linear time. */
void check_speed(const tokenizer *t, const char *name);

/* About n bytes: whole units, and a last character of another kind unless it is NUL. free() it. */
char *repeat_text(const char *unit, char last, size_t n, size_t *n_out);

#endif
