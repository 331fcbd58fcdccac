/* What the files of the tokenizer share: its tables, and the scratch memory of one encoding. */
#ifndef LACE_TOKENIZER_TOKENIZER_IMPL_H
#define LACE_TOKENIZER_TOKENIZER_IMPL_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/hash.h"
#include "tokenizer/memo.h"
#include "tokenizer/merge.h"
#include "tokenizer/scan.h"
#include "tokenizer/split.h"
#include "tokenizer/tokenizer.h"

/* Besides TOKEN_LSTRIP and its like, in tokenizer.flags. */
enum {
    TOKEN_IS_END = 16,
    TOKEN_IS_PRINTED = 32, /* a control token whose name is part of the text for its reader */
};

/* A merge of two symbols, in a table with open addressing; rank UINT32_MAX marks an empty slot. */
typedef struct merge_rule {
    int32_t left, right;
    int32_t id; /* of the two together */
    uint32_t rank;
} merge_rule;

struct tokenizer {
    arena memory; /* everything below that has no other owner */
    vocab_kind kind;
    vocab rules; /* ids and flags; its pointers are NULL */

    size_t n_tokens;
    text *bytes;    /* [n_tokens] what each token stands for */
    uint8_t *types; /* [n_tokens] */
    uint8_t *flags; /* [n_tokens] */
    float *scores;  /* [n_tokens] or NULL */

    /*
     * Bytes to id, of the tokens that ordinary text may become: not control, unknown and byte
     * tokens, so that no text can forge them. Of equal tokens the first one counts. For BPE, ids
     * from n_tokens on are texts that occur in merges only.
     */
    map ids;
    size_t max_token_bytes; /* the longest key of ids */
    int32_t byte_ids[256];  /* the token for a byte, or -1 */

    scan_index specials; /* control, unknown and user-defined tokens, read from the back */

    splitter *splitter; /* BPE */
    merge_rule *merges; /* BPE: [n_merge_slots], a power of two */
    size_t n_merge_slots;
    text *symbols; /* BPE: bytes of the ids from n_tokens on */
    size_t n_symbols;

    bool has_inner_spaces; /* SPM: some token goes on behind a space
                            * that follows another character */

    scan_index pieces;   /* unigram and WordPiece: what ids holds */
    float unknown_score; /* unigram */
    uint32_t *charsmap;  /* unigram: the double array, [n_charsmap] */
    size_t n_charsmap;
    text charsmap_texts; /* unigram: replacements, each ended by NUL; the last byte is NUL */
};

/* A special token in a text. */
typedef struct special_place {
    size_t begin;
    lace_token id;
} special_place;

/* Scratch memory of one call of tokenizer_encode. */
typedef struct encoding {
    const tokenizer *t;
    token_list *out;
    const lace_range *contents; /* [n_contents], where no control token is found */
    size_t n_contents;
    buf text; /* ordinary text, prepared */
    buf form; /* ordinary text in its normal form */
    merger merger;
    memo memo;
    split_scratch split;
    special_place *specials; /* of special_scan */
    size_t n_specials, specials_capacity;
    bool after_special; /* at the start, or the last token was special */
    bool at_start;      /* nothing of the text was encoded yet */
} encoding;

/* The kinds: prepare the tables, and cut a stretch of ordinary text (valid UTF-8, not empty). */
lace_status bpe_init(tokenizer *t, const vocab *v, lace_error *err);
lace_status bpe_encode(encoding *e, text input, lace_error *err);
void spm_init(tokenizer *t);
lace_status spm_encode(encoding *e, text input, lace_error *err);
lace_status wordpiece_encode(encoding *e, text input, lace_error *err);
lace_status unigram_init(tokenizer *t, const vocab *v, lace_error *err);
lace_status unigram_encode(encoding *e, text input, lace_error *err);

/* special.c: set the types and flags of tokens that are known by name; then
 * index the special ones. */
void special_correct(tokenizer *t, const vocab *v);
lace_status special_init(tokenizer *t, lace_error *err);

/*
 * The longest special token at each place of a text where one begins, in e->specials, from the back
 * to the front.
 */
lace_status special_scan(encoding *e, text input, bool is_parsed);

/* normalize.c: input in t's normal form: itself, or a text in e->form. */
lace_status normalize_text(encoding *e, text *input, lace_error *err);

/* U+2581 becomes a space; `out` may be the input's own storage. Returns how
 * many bytes there are. */
size_t normalize_spaces(text input, char *out);

bool code_is_space(uint32_t code); /* White_Space of Unicode */
bool code_is_word(uint32_t code);  /* letters, marks, numbers, connectors such as _ */

/* tokenizer.c: ordinary text gets a space in front. */
bool encoding_wants_prefix(const encoding *e, text input);

/* tokenizer.c: the tokens for one character that the vocabulary does not have. */
lace_status encoding_add_bytes(encoding *e, text character);

/* bpe.c: GPT-2's characters to bytes; false if a character stands for none. */
bool bpe_decode_text(text encoded, char *out, size_t *n_out);

/*
 * tokenizer.c: cut the word input[begin, end), by fn or as it was cut before. e->memo was reset for
 * the input.
 */
typedef lace_status (*word_fn)(encoding *e, text word);
lace_status encoding_add_word(encoding *e, text input, size_t begin, size_t end, word_fn fn);

/* tokenizer.c: the id of a text that ordinary text may become, or -1. */
int32_t tokenizer_find(const tokenizer *t, text bytes);

#endif
