/* What the files that read a tokenizer.json share. */
#ifndef LACE_VOCAB_TOKENIZER_JSON_IMPL_H
#define LACE_VOCAB_TOKENIZER_JSON_IMPL_H

#include "base/hash.h"
#include "vocab/tokenizer_json.h"

enum { MAX_REGEXES = 32 };

typedef struct json_reader {
    arena *memory;
    lace_error *err;
    hf_vocab *out;
    vocab *v; /* out->v */

    map ids;        /* the text of a token to its id */
    text *tokens;   /* [n_tokens]; data is NULL where no token has this id */
    int32_t *types; /* [n_tokens] */
    uint8_t *flags; /* [n_tokens] */
    float *scores;  /* [n_tokens]; unigram only */
    size_t n_tokens;
    bool has_bytes; /* <0x00> to <0xFF> stand for bytes */

    /* Of the normalizer and the pre-tokenizer. */
    text regexes[MAX_REGEXES];
    bool has_byte_level; /* bytes are written as GPT-2 does */
    bool replaces_space; /* by U+2581 */
} json_reader;

/* LACE_E_VOCAB: "tokenizer.json: where: ..." */
__attribute__((format(printf, 3, 4))) lace_status json_fail(json_reader *r, const char *where,
                                                            const char *format, ...);

/* The same for a member that is not understood, with its value. */
lace_status json_refuse(json_reader *r, const char *where, const char *key, const json_t *value);

/* Optional members: *out stays as it is when the key is absent or null. */
lace_status json_get_bool(json_reader *r, const json_t *object, const char *where, const char *key,
                          bool *out);
lace_status json_get_text(json_reader *r, const json_t *object, const char *where, const char *key,
                          text *out);

/* tokenizer_rules.c; each takes NULL: the file has none. */
lace_status rules_read_normalizer(json_reader *r, const json_t *normalizer);
lace_status rules_read_pre_tokenizer(json_reader *r, const json_t *object);

/* tokenizer_post.c */
lace_status rules_read_post_processor(json_reader *r, const json_t *post_processor);

#endif
