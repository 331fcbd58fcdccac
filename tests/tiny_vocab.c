/* Small vocabularies of every kind. */
#include "tiny_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { MAX_TOKENS = 600 };

typedef struct builder {
    arena *memory;
    text *tokens;
    int32_t *types;
    uint8_t *flags;
    float *scores;
    size_t n;
} builder;

static void *allocate(arena *memory, size_t n, size_t size)
{
    void *p = arena_alloc(memory, n, size);
    if (!p)
        abort();
    return p;
}

static void add(builder *b, const char *token, token_type type, float score)
{
    char *copy = allocate(b->memory, strlen(token) + 1, 1);
    strcpy(copy, token);
    b->tokens[b->n] = text_of(copy);
    b->types[b->n] = type;
    b->scores[b->n] = score;
    b->n++;
}

/* GPT-2's character for a byte. */
static void byte_character(unsigned byte, char out[8])
{
    unsigned n_others = 0;
    for (unsigned i = 0; i <= byte; i++) {
        bool is_own = (i >= 0x21 && i <= 0x7E) || (i >= 0xA1 && i <= 0xAC) || i >= 0xAE;
        if (i == byte)
            out[utf8_encode(is_own ? i : 0x100 + n_others, out)] = 0;
        n_others += !is_own;
    }
}

static void add_special(builder *b)
{
    static const struct {
        const char *name;
        token_type type;
        uint8_t flags;
    } special[TINY_N_SPECIAL] = {
        [TINY_UNK] = {"<unk>", TOKEN_UNKNOWN, 0},
        [TINY_BOS] = {"<s>", TOKEN_CONTROL, 0},
        [TINY_EOS] = {"</s>", TOKEN_CONTROL, 0},
        [TINY_IM_END] = {"<|im_end|>", TOKEN_CONTROL, 0},
        [TINY_IM] = {"<|im", TOKEN_CONTROL, 0},
        [TINY_TOOL] = {"[TOOL]", TOKEN_USER_DEFINED, 0},
        [TINY_LEFT] = {"<L>", TOKEN_USER_DEFINED, TOKEN_LSTRIP},
        [TINY_RIGHT] = {"<R>", TOKEN_USER_DEFINED, TOKEN_RSTRIP},
        [TINY_ALONE] = {"cat", TOKEN_USER_DEFINED, TOKEN_SINGLE_WORD},
    };
    for (size_t i = 0; i < TINY_N_SPECIAL; i++) {
        b->flags[b->n] = special[i].flags;
        add(b, special[i].name, special[i].type, 0);
    }
}

static void add_bytes(builder *b)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", byte);
        add(b, name, TOKEN_BYTE, 0);
    }
}

/* Words with their pieces, each made of two before it or of letters; G stands for a space. */
static const char *const words[] = {"he",     "ll", "hell", "hello", "Gw",   "or",  "Gwor", "ld",
                                    "Gworld", "GG", "GGGG", "aa",    "aaaa", "the", "Gthe"};
static const char *const halves[] = {"h e",   "l l",   "he ll", "hell o",  "G w",
                                     "o r",   "Gw or", "l d",   "Gwor ld", "G G",
                                     "GG GG", "a a",   "aa aa", "t he",    "G the"};
enum { N_WORDS = sizeof words / sizeof *words };

/* A word with G replaced by the vocabulary's way to write a space. */
static void with_space(const char *word, const char *space, char out[32])
{
    size_t n = 0;
    for (; *word; word++) {
        const char *piece = *word == 'G' ? space : (char[]){*word, 0};
        strcpy(out + n, piece);
        n += strlen(piece);
    }
    out[n] = 0;
}

static void add_words(builder *b, const char *space)
{
    for (int i = 0; i < N_WORDS; i++) {
        char word[32];
        with_space(words[i], space, word);
        add(b, word, TOKEN_NORMAL, (float)-i);
    }
}

static const text *merges_of(arena *memory, const char *space)
{
    text *merges = allocate(memory, N_WORDS, sizeof *merges);
    for (int i = 0; i < N_WORDS; i++) {
        char *copy = allocate(memory, 32, 1);
        with_space(halves[i], space, copy);
        merges[i] = text_of(copy);
    }
    return merges;
}

static void add_letters(builder *b, const char *prefix)
{
    for (char c = '!'; c <= '~'; c++) {
        char name[8];
        snprintf(name, sizeof name, "%s%c", prefix, c);
        add(b, name, TOKEN_NORMAL, -20 - (float)(c - '!') / 100);
    }
}

/* A double array of Darts-clone for two keys: "A" -> "a", U+00DF (C3 9F) -> "ss". */
static span charsmap(arena *memory)
{
    enum { N_UNITS = 1024, ROOT = 256, C3 = 512, LEAF_A = 768, LEAF_SS = 769 };
    static const char texts[] = "a\0ss"; /* with the NUL that ends it */
    uint32_t units[N_UNITS] = {0};
    /* offset goes to bits 10-30; a child lies at its parent's place ^ offset ^ label */
    units[0] = (uint32_t)ROOT << 10;
    uint32_t a = ROOT ^ 'A', c3 = ROOT ^ 0xC3, nine_f = C3 ^ 0x9F;
    units[a] = 'A' | 1u << 8 | (a ^ LEAF_A) << 10;
    units[LEAF_A] = 1u << 31 | 0;
    units[c3] = 0xC3 | (c3 ^ C3) << 10;
    units[nine_f] = 0x9F | 1u << 8 | (nine_f ^ LEAF_SS) << 10;
    units[LEAF_SS] = 1u << 31 | 2;
    uint8_t *bytes = allocate(memory, 4 + sizeof units + sizeof texts, 1);
    uint32_t n_bytes = sizeof units;
    memcpy(bytes, &n_bytes, 4);
    memcpy(bytes + 4, units, sizeof units);
    memcpy(bytes + 4 + sizeof units, texts, sizeof texts);
    return (span){bytes, 4 + sizeof units + sizeof texts};
}

static void build_bpe(builder *b, vocab *v, bool is_byte_level)
{
    const char *space = is_byte_level ? "\xC4\xA0" : "\xE2\x96\x81"; /* U+0120, U+2581 */
    v->is_byte_level = is_byte_level;
    v->pre = text_of("gpt-2");
    for (unsigned byte = 0; is_byte_level && byte < 256; byte++) {
        char name[8];
        byte_character(byte, name);
        add(b, name, TOKEN_NORMAL, 0);
    }
    if (!is_byte_level) {
        v->pre = text_of("gemma4");
        add_bytes(b);
        add(b, space, TOKEN_NORMAL, 0);
        add_letters(b, "");
    }
    add_words(b, space);
    v->merges = merges_of(b->memory, space);
    v->n_merges = N_WORDS;
}

static void build_spm(builder *b, vocab *v, bool has_bytes)
{
    v->scores = b->scores;
    v->add_space_prefix = true;
    if (has_bytes)
        add_bytes(b);
    add(b, "\xE2\x96\x81", TOKEN_NORMAL, -30);
    add_letters(b, "");
    add_words(b, "\xE2\x96\x81");
}

vocab tiny_vocab(tiny_vocab_kind kind, arena *memory)
{
    static const vocab_kind kinds[TINY_N_KINDS] = {
        [TINY_BYTE_BPE] = VOCAB_BPE,    [TINY_LLAMA3] = VOCAB_BPE,
        [TINY_RAW_BPE] = VOCAB_BPE,     [TINY_SPM] = VOCAB_SPM,
        [TINY_SPM_BARE] = VOCAB_SPM,    [TINY_WORDPIECE] = VOCAB_WORDPIECE,
        [TINY_UNIGRAM] = VOCAB_UNIGRAM,
    };
    vocab v = vocab_default(kinds[kind]);
    builder b = {.memory = memory};
    b.tokens = allocate(memory, MAX_TOKENS, sizeof *b.tokens);
    b.types = allocate(memory, MAX_TOKENS, sizeof *b.types);
    b.flags = allocate(memory, MAX_TOKENS, sizeof *b.flags);
    b.scores = allocate(memory, MAX_TOKENS, sizeof *b.scores);
    add_special(&b);
    if (v.kind == VOCAB_BPE)
        build_bpe(&b, &v, kind != TINY_RAW_BPE);
    if (kind == TINY_LLAMA3) {
        v.pre = text_of("llama-bpe");
        v.ignore_merges = true;
    }
    if (v.kind == VOCAB_SPM || v.kind == VOCAB_UNIGRAM)
        build_spm(&b, &v, kind == TINY_SPM);
    if (v.kind == VOCAB_UNIGRAM) {
        v.remove_extra_whitespaces = true;
        v.precompiled_charsmap = charsmap(memory);
    }
    if (v.kind == VOCAB_WORDPIECE) {
        add_letters(&b, "");
        add_letters(&b, "\xE2\x96\x81");
        add_words(&b, "\xE2\x96\x81");
        add(&b, "\xE2\x96\x81hello", TOKEN_NORMAL, 0);
        v.cls = TINY_BOS;
        v.sep = TINY_EOS;
        v.add_sep = true;
    } else {
        v.bos = TINY_BOS;
        v.eos = TINY_EOS;
    }
    v.unk = TINY_UNK;
    v.add_bos = true;
    v.tokens = b.tokens;
    v.types = b.types;
    v.flags = b.flags;
    v.n_tokens = b.n;
    return v;
}

bool tiny_vocab_is_lossless(tiny_vocab_kind kind)
{
    return kind == TINY_BYTE_BPE || kind == TINY_LLAMA3 || kind == TINY_RAW_BPE || kind == TINY_SPM;
}
