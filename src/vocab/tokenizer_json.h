/*
 * The vocabulary in a Hugging Face tokenizer.json.
 *
 * What a file asks for and lace cannot do is LACE_E_VOCAB with the field and its value: no text is
 * ever cut in another way than the file says.
 */
#ifndef LACE_VOCAB_TOKENIZER_JSON_H
#define LACE_VOCAB_TOKENIZER_JSON_H

#include <jansson.h>

#include "base/arena.h"
#include "tokenizer/tokenizer.h"

/* A vocabulary, and what else the files of a directory say of it. */
typedef struct hf_vocab {
    vocab v;
    text chat_template;  /* empty: none */
    bool says_add_eos;   /* v.add_eos is given, not assumed */
    int32_t first, last; /* what the post-processor puts before and behind a text; -1: nothing */
} hf_vocab;

enum { HF_VOCAB_MAX_TOKENS = 1 << 21 };

/*
 * Describe the vocabulary. It points into the JSON and into `memory`. Ids of special tokens, but
 * for `unk`, are not in this file and stay -1.
 */
lace_status tokenizer_json_read(const json_t *root, arena *memory, hf_vocab *out, lace_error *err);

/* The token of exactly this text, or -1. */
int32_t hf_vocab_find(const vocab *v, text token);

/* Names of tokens that are special even if a file says that they are not. */
bool hf_vocab_looks_special(text token);

#endif
