/*
 * The vocabulary in the metadata of a GGUF file (the keys "tokenizer.ggml.*").
 *
 * One rule for what is wrong: LACE_E_VOCAB with the key and the value. A special id that is absent,
 * -1 or 2^32 - 1 means that the model has no such token.
 */
#ifndef LACE_VOCAB_VOCAB_GGUF_H
#define LACE_VOCAB_VOCAB_GGUF_H

#include "base/arena.h"
#include "formats/gguf.h"
#include "tokenizer/tokenizer.h"

/* Describe the vocabulary. It points into the file's bytes and into `memory`. */
lace_status vocab_gguf_read(const gguf *g, arena *memory, vocab *out, lace_error *err);

/*
 * Read it and create the tokenizer, which does not need the file afterwards. A file that says it
 * has no vocabulary (tokenizer.ggml.model is "none" or "no_vocab") gives LACE_OK and NULL.
 */
lace_status vocab_gguf_open(const gguf *g, tokenizer **out, lace_error *err);

#endif
