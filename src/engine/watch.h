/*
 * A watch over a text on its way: reasoning that takes too long, and text that only repeats itself.
 *
 * Reasoning is what stands between two words, or what the prompt has begun and the second word ends.
 * When it has used up its tokens, or repeats itself, the tokens that close it are forced. A text
 * repeats itself when its last tokens are one passage again and again: 6 times at least, and 256
 * tokens and 4 passages at least. Then it will not stop by itself.
 */
#ifndef LACE_ENGINE_WATCH_H
#define LACE_ENGINE_WATCH_H

#include "base/bytes.h"

enum {
    WATCH_LONGEST = 512, /* tokens of a passage */
    WATCH_WORD = 64,     /* bytes of a word around reasoning */
};

typedef struct watch {
    lace_reasoning reasoning; /* its pointers are the generation's */
    bool breaks_loops;
    bool is_open;      /* inside of reasoning */
    int32_t n_thought; /* tokens of it */
    size_t n_forced;   /* closing tokens that were said; while it closes */
    bool is_closing;
    char tail[WATCH_WORD]; /* the last bytes of the text */
    size_t n_tail;
    uint16_t runs[WATCH_LONGEST + 1]; /* [period] tokens that are what stood a period before */
    lace_cut reasoning_cut, text_cut;
} watch;

void watch_init(watch *w, const lace_reasoning *reasoning, bool breaks_loops);

/* The token that must be next, or -1. */
lace_token watch_forced(const watch *w);

/* How many tokens may surely be chosen freely from here on; INT32_MAX: no limit is known. */
int32_t watch_free(const watch *w);

/*
 * A token was chosen: the last of n that were generated, with the text that it brings. If the text
 * repeats itself outside of reasoning, text_cut says so, and it should end.
 */
void watch_note(watch *w, const lace_token *generated, int32_t n, text piece);

#endif
