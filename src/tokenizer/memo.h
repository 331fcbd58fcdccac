/*
 * Words repeat: within one text, a word that was cut before is looked up instead of cut again. An
 * entry points to where the word stood in the text and where its tokens stand in the output, so
 * nothing is copied but tokens.
 */
#ifndef LACE_TOKENIZER_MEMO_H
#define LACE_TOKENIZER_MEMO_H

#include "base/bytes.h"

typedef struct memo_entry {
    uint32_t begin, n_bytes;  /* the word in the text; n_bytes 0: an empty entry */
    uint32_t first, n_tokens; /* its tokens in the output */
} memo_entry;

typedef struct memo {
    memo_entry *entries; /* NULL while texts were too short for it to pay */
    bool is_on;
} memo;

void memo_deinit(memo *m); /* {0} is an empty memo */

/* Forget everything; a text of n_bytes follows. */
void memo_reset(memo *m, size_t n_bytes);

/* The entry of a word, NULL if it is not kept. Compare with memo_is, then use or fill it. */
memo_entry *memo_find(memo *m, text word);
bool memo_is(const memo_entry *entry, text input, text word);

#endif
