/*
 * Small vocabularies of every kind, made on the spot, for tests and fuzzing. All have a few merged
 * words and special tokens, which the enumeration names by their ids.
 */
#ifndef LACE_TESTS_TINY_VOCAB_H
#define LACE_TESTS_TINY_VOCAB_H

#include "base/arena.h"
#include "tokenizer/tokenizer.h"

typedef enum tiny_vocab_kind {
    TINY_BYTE_BPE, /* all bytes, pre-tokenizer gpt-2 */
    TINY_LLAMA3,   /* the same, pre-tokenizer llama-bpe, ignoring merges */
    TINY_RAW_BPE,  /* characters, spaces as U+2581, bytes as <0xXX> */
    TINY_SPM,      /* with byte tokens */
    TINY_SPM_BARE, /* without: what it does not know is <unk> */
    TINY_WORDPIECE,
    TINY_UNIGRAM, /* with a charsmap: "A" becomes "a", U+00DF "ss" */
    TINY_N_KINDS
} tiny_vocab_kind;

/* In every tiny vocabulary. */
enum {
    TINY_UNK,
    TINY_BOS,
    TINY_EOS,
    TINY_IM_END, /* "<|im_end|>", control */
    TINY_IM,     /* "<|im", control: the start of the one above */
    TINY_TOOL,   /* "[TOOL]", user-defined */
    TINY_LEFT,   /* "<L>", user-defined, takes white space before it */
    TINY_RIGHT,  /* "<R>", user-defined, takes white space after it */
    TINY_ALONE,  /* "cat", user-defined, not inside a word */
    TINY_N_SPECIAL
};

/* The arrays live in `memory`; aborts without memory. */
vocab tiny_vocab(tiny_vocab_kind kind, arena *memory);

/* Whether decoding gives back any valid UTF-8 that does not name special tokens. */
bool tiny_vocab_is_lossless(tiny_vocab_kind kind);

#endif
