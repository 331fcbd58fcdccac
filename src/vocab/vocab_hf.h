/*
 * The vocabulary of a Hugging Face directory: tokenizer.json, or tokenizer.model where there is
 * none, and what tokenizer_config.json, generation_config.json and config.json say of special
 * tokens.
 */
#ifndef LACE_VOCAB_VOCAB_HF_H
#define LACE_VOCAB_VOCAB_HF_H

#include "formats/gguf_write.h"
#include "vocab/tokenizer_json.h"

/* The files of one directory, open. */
typedef struct hf_tokenizer hf_tokenizer;

/*
 * Read the files. `config` is config.json, or NULL. A directory without a tokenizer gives LACE_OK
 * and NULL. LACE_E_VOCAB names the file, the field and the value that cannot be.
 */
lace_status hf_tokenizer_open(const char *directory, const json_t *config, hf_tokenizer **out,
                              lace_error *err);
void hf_tokenizer_close(hf_tokenizer *t);

/* What the files say; valid until the tokenizer is closed. */
const hf_vocab *hf_tokenizer_vocab(const hf_tokenizer *t);

/*
 * Write the vocabulary as the metadata of a GGUF file, filled up to n_vocab tokens.
 * LACE_E_VOCAB if it has more, or if no such file can say how it cuts words.
 */
lace_status hf_tokenizer_to_gguf(const hf_tokenizer *t, size_t n_vocab, gguf_writer *w,
                                 lace_error *err);

#endif
