/* Grammars for tests: compiled over a small vocabulary, asked whether a text matches. */
#ifndef LACE_TESTS_GRAMMAR_KIT_H
#define LACE_TESTS_GRAMMAR_KIT_H

#include "grammar/grammar_match.h"

/*
 * Bytes 0 to 255 are tokens of the same number; then words; then a control token; then the end;
 * then the mark "<mark>".
 */
grammar_vocab *kit_vocab(void);
enum { KIT_N_BYTES = 256 };
lace_token kit_end(void);
lace_token kit_control(void);
lace_token kit_mark(void);

/* A matcher, or NULL and the reason in *err. */
grammar_matcher *kit_compile(lace_grammar_kind kind, const char *source, lace_error *err);

/* Whether the whole text matches. A grammar that does not compile fails the case. */
bool kit_matches(lace_grammar_kind kind, const char *source, const char *text);

/* Whether the grammar is refused with LACE_E_GRAMMAR (or another status given) and these words. */
bool kit_refuses(lace_grammar_kind kind, const char *source, const char *words);
bool kit_refuses_n(lace_grammar_kind kind, const char *source, size_t n_bytes, const char *words);

/* For fuzzing: compile, and follow the grammar along allowed tokens. Aborts if something is odd. */
void kit_fuzz(lace_grammar_kind kind, const uint8_t *data, size_t size);

#endif
