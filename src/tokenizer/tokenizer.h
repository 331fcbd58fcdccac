/*
 * Text to tokens and back.
 *
 * A vocabulary, whatever file it comes from, is described by a `vocab`: tokens, merges, special ids
 * and rules. tokenizer_create checks it and copies what it needs; the tokenizer is then read-only
 * and may be used by many threads at once.
 *
 *     vocab v = vocab_default(VOCAB_BPE);
 *     v.tokens = ..., v.n_tokens = ..., v.merges = ..., v.n_merges = ..., v.pre = text_of("qwen2");
 *     TRY(tokenizer_create(&v, &t, err));
 *     TRY(tokenizer_encode(t, "Hello", 5, LACE_TOKENIZE_ADD_SPECIAL, &list, err));
 *
 * Four kinds of vocabulary differ in how a stretch of ordinary text is cut. Special tokens are
 * found first, in the text itself, longest first; what lies between them is ordinary text.
 */
#ifndef LACE_TOKENIZER_TOKENIZER_H
#define LACE_TOKENIZER_TOKENIZER_H

#include "base/bytes.h"

typedef enum vocab_kind {
    VOCAB_BPE,       /* words by regex, then ranked merges; bytes are written as GPT-2 characters */
    VOCAB_SPM,       /* SentencePiece BPE: the whole text, best score merges first */
    VOCAB_WORDPIECE, /* BERT: words, each cut into the longest tokens from the left */
    VOCAB_UNIGRAM,   /* SentencePiece unigram: the cut with the highest sum of scores */
} vocab_kind;

typedef enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2, /* stands for what the vocabulary cannot say; prints nothing */
    TOKEN_CONTROL = 3, /* found in text only with LACE_TOKENIZE_PARSE_SPECIAL; prints nothing */
    TOKEN_USER_DEFINED = 4, /* always found in text, before anything else */
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6, /* "<0x0A>": one byte */
} token_type;

/* How a special token is found in text (the flags of a tokenizer.json's added tokens). */
enum {
    TOKEN_LSTRIP = 1,      /* takes the white space before it along */
    TOKEN_RSTRIP = 2,      /* and after it */
    TOKEN_SINGLE_WORD = 4, /* not inside a word */
};

/* A Unicode normal form that ordinary text is brought into first. */
typedef enum normal_form { FORM_NONE, FORM_NFC, FORM_NFD, FORM_NFKC, FORM_NFKD } normal_form;

/*
 * The description of a vocabulary. Everything is borrowed and need not outlive tokenizer_create.
 * U+2581 in the tokens of VOCAB_SPM, VOCAB_UNIGRAM, VOCAB_WORDPIECE and of a BPE that is not
 * byte-level stands for a space. WordPiece tokens that begin a word begin with it; others carry no
 * mark.
 */
typedef struct vocab {
    vocab_kind kind;

    size_t n_tokens;
    const text *tokens;   /* [n_tokens] */
    const float *scores;  /* [n_tokens]; NULL for BPE and WordPiece */
    const int32_t *types; /* [n_tokens] of token_type; NULL: all normal */
    const uint8_t *flags; /* [n_tokens] of TOKEN_LSTRIP...; NULL: none */
    size_t n_merges;
    const text *merges; /* [n_merges] "left right", best first; BPE only */

    int32_t bos, eos, eot, unk, sep, pad, cls, mask; /* ids; -1: none */
    const int32_t *ends; /* [n_ends] further ids that end a generation */
    size_t n_ends;

    bool add_bos, add_eos, add_sep; /* with LACE_TOKENIZE_ADD_SPECIAL; default false */

    /* BPE: the words. `pre` names a row of the table of pre-tokenizers; regexes replace it. */
    text pre;
    const text *regexes; /* [n_regexes], each cuts the pieces of the one before */
    size_t n_regexes;
    bool is_byte_level; /* default true; false: characters, and <0xXX> for those unknown */
    bool ignore_merges; /* a word that is a token is that token, whatever the merges say */

    /* SPM, unigram and BPE */
    bool add_space_prefix;    /* at the start, and after a special token */
    bool prefix_unless_space; /* but not before a text that begins with a space */
    bool prefix_first_only;   /* and not after a special token */

    /* Unigram */
    bool remove_extra_whitespaces;   /* runs of spaces become one */
    bool treat_whitespace_as_suffix; /* the space goes to the end */
    span precompiled_charsmap;       /* SentencePiece's normalization, or empty */

    normal_form form;
    bool lowercase, strip_accents; /* WordPiece; default true */
} vocab;

/* Empty but for the kind, with the defaults above and all ids -1. */
vocab vocab_default(vocab_kind kind);

/* What the name of a pre-tokenizer ("llama-bpe") stands for. */
typedef struct pre_tokenizer {
    const char *names;           /* all its names, between blanks: " llama3 llama-bpe " */
    const char *const *regexes;  /* NULL-terminated */
    bool ignore_merges, add_bos; /* what holds unless the file says otherwise */
    bool is_raw;                 /* not byte-level: see vocab.is_byte_level */
} pre_tokenizer;

const pre_tokenizer *pre_tokenizer_find(text name); /* NULL if unknown; "" is "default" */

/* ---- The tokenizer --------------------------------------------------------------------------- */

typedef struct tokenizer tokenizer;

/* LACE_E_VOCAB says which part of the vocabulary is impossible. */
lace_status tokenizer_create(const vocab *v, tokenizer **out, lace_error *err);
void tokenizer_free(tokenizer *t);

enum { TOKENIZER_MAX_TEXT = 1 << 28 }; /* bytes that one call may encode */

/* Tokens, growing. Starts as {0}; freed by token_list_deinit. */
typedef struct token_list {
    lace_token *data;
    size_t size, capacity;
} token_list;

lace_status token_list_add(token_list *list, lace_token token);
void token_list_deinit(token_list *list);

/*
 * Append the tokens of a text to `out`. `flags` are LACE_TOKENIZE_ADD_SPECIAL and _PARSE_SPECIAL.
 * Malformed UTF-8 is read as U+FFFD. On failure `out` is as before: LACE_E_LIMIT for a text that is
 * too long or a regex that gives up, LACE_E_NOMEM.
 */
lace_status tokenizer_encode(const tokenizer *t, const char *text, size_t n_bytes, unsigned flags,
                             token_list *out, lace_error *err);
/* And with contents, as lace_tokenize_contents has them: control tokens touch none of these. */
lace_status tokenizer_encode_contents(const tokenizer *t, text input, const lace_range *contents,
                                      size_t n_contents, unsigned flags, token_list *out,
                                      lace_error *err);

/* What LACE_TOKENIZE_ADD_SPECIAL puts before and behind a text; -1: nothing. */
lace_token tokenizer_first(const tokenizer *t);
lace_token tokenizer_last(const tokenizer *t);

/* What a token stands for. For control tokens it is their name; an id that is none gives "". */
text tokenizer_token_bytes(const tokenizer *t, lace_token id);
token_type tokenizer_token_type(const tokenizer *t, lace_token id); /* TOKEN_UNUSED if none */

/* True for the tokens after which a generation ends: EOS, EOT, `ends`, and well-known names. */
bool tokenizer_is_end(const tokenizer *t, lace_token id);

/* The special token (control, unknown, user-defined) of exactly this text, or -1. */
lace_token tokenizer_find_special(const tokenizer *t, text name);

size_t tokenizer_n_tokens(const tokenizer *t);
const char *tokenizer_kind_name(const tokenizer *t); /* "bpe", "spm", "wordpiece", "unigram" */
lace_token tokenizer_bos(const tokenizer *t);        /* -1: none */
lace_token tokenizer_eos(const tokenizer *t);

/* ---- The decoder ----------------------------------------------------------------------------- */

/*
 * Tokens to text as a stream of whole UTF-8 characters. Bytes are held back until they complete a
 * character; malformed ones come out as U+FFFD. The tokenizer must outlive the decoder.
 */
typedef struct decoder decoder;

/* With show_special, control tokens print their names (for whoever parses a chat format). */
lace_status decoder_create(const tokenizer *t, bool show_special, decoder **out, lace_error *err);
void decoder_free(decoder *d);

/*
 * The text that a token completes; valid until the next call. An id outside the vocabulary, like a
 * control token, prints nothing. The space that encoding put before the first word is taken off.
 */
lace_status decoder_push(decoder *d, lace_token id, text *out, lace_error *err);

/* What is left: U+FFFD for an incomplete character. The decoder starts anew. */
lace_status decoder_flush(decoder *d, text *out, lace_error *err);

#endif
