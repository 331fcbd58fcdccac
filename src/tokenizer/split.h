/*
 * Cutting text into words with the models' own regexes, run by PCRE2.
 *
 * Regexes are applied in sequence, each to the pieces that the one before left: a match becomes a
 * piece, and so does what lies between matches. A regex sees its piece only.
 */
#ifndef LACE_TOKENIZER_SPLIT_H
#define LACE_TOKENIZER_SPLIT_H

#include "base/bytes.h"

typedef struct splitter splitter;

/* LACE_E_VOCAB if a regex does not compile. */
lace_status splitter_create(const text *regexes, size_t n_regexes, splitter **out, lace_error *err);
void splitter_free(splitter *s);

/* Scratch memory and the result. {0} is empty; one thread at a time uses it. */
typedef struct split_scratch {
    uint32_t *ends; /* where each piece ends; the first begins at 0 */
    size_t n_ends;
    size_t ends_capacity;
    uint32_t *previous; /* the pieces before the current regex */
    size_t previous_capacity;
    void *match_data, *match_context, *jit_stack; /* PCRE2's */
} split_scratch;

void split_scratch_deinit(split_scratch *scratch);

/*
 * Cut valid UTF-8 into pieces; the result is scratch->ends[n_ends]. LACE_E_LIMIT if a regex exceeds
 * its limits of steps or memory.
 */
lace_status splitter_run(const splitter *s, split_scratch *scratch, text input, lace_error *err);

#endif
