/*
 * Time and memory of cutting texts into tokens, in proportion to them: texts of every shape for
 * every kind of vocabulary, and vocabularies that were made to be slow.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost.h"
#include "tap.h"
#include "tiny_vocab.h"

static void encode(const tokenizer *t, span input)
{
    token_list list = {0};
    for (unsigned flags = 0; flags < 2; flags++) {
        list.size = 0;
        tokenizer_encode(t, (const char *)input.data, input.size,
                         flags ? LACE_TOKENIZE_PARSE_SPECIAL | LACE_TOKENIZE_ADD_SPECIAL : 0, &list,
                         NULL);
    }
    token_list_deinit(&list);
}

/* ---- Texts ----------------------------------------------------------------------------------- */

/* Long runs of everything that some rule looks for. */
static void all_shapes(size_t n, buf *out)
{
    static const char *const shapes[] = {
        "a",
        "ab ",
        " ",
        "\n",
        "\xE2\x96\x81",
        "1",
        "\xCC\x81", /* a mark */
        "'s",
        "\xFF",
        "<|im_end|>",
        "<|im",
        "cat",
        "<L> ",
        "\xF0\x9F\x98\x80",
        "\xC3\x9F",
        "A",
        "hello, world ",
        "\xE4\xB8\xAD",
        " <R> cat",
        "[TOOL]",
    };
    size_t n_shapes = sizeof shapes / sizeof *shapes;
    for (size_t i = 0; i < n_shapes; i++)
        while (out->size < n / n_shapes * (i + 1))
            buf_append_text(out, shapes[i]);
}

static void letters(size_t n, buf *out)
{
    for (size_t i = 0; i < n; i++)
        buf_append(out, "a", 1);
}

/* Words of 100 characters of four bytes, all different from each other in the end. */
static void wide_words(size_t n, buf *out)
{
    for (size_t i = 0; out->size < n; i++) {
        for (int k = 0; k < 99; k++)
            buf_append_text(out, "\xF0\x90\x90\xA8"); /* a small letter of Deseret */
        buf_append_text(out, i % 2 ? "\xF0\x90\x90\xA9 " : "\xF0\x90\x90\xAA ");
    }
}

/* ---- Every kind ------------------------------------------------------------------------------ */

static void run_kind(tiny_vocab_kind kind, span input)
{
    static tokenizer *made[TINY_N_KINDS]; /* in the process of the measurement */
    arena memory;
    if (!made[kind]) {
        arena_init(&memory, 1 << 24);
        vocab v = tiny_vocab(kind, &memory);
        CHECK(tokenizer_create(&v, &made[kind], NULL) == LACE_OK);
        arena_deinit(&memory);
    }
    encode(made[kind], input);
}

#define KIND(name, kind)                                                                           \
    static void name(span input)                                                                   \
    {                                                                                              \
        run_kind(kind, input);                                                                     \
    }
KIND(run_byte_bpe, TINY_BYTE_BPE)
KIND(run_llama3, TINY_LLAMA3)
KIND(run_raw_bpe, TINY_RAW_BPE)
KIND(run_spm, TINY_SPM)
KIND(run_spm_bare, TINY_SPM_BARE)
KIND(run_wordpiece, TINY_WORDPIECE)
KIND(run_unigram, TINY_UNIGRAM)

/* ---- Vocabularies that were made to be slow -------------------------------------------------- */

enum { MAX_TOKENS = 4096 };

typedef struct slow_vocab {
    vocab v;
    text tokens[MAX_TOKENS];
    int32_t types[MAX_TOKENS];
    float scores[MAX_TOKENS];
    uint8_t flags[MAX_TOKENS];
    text merges[MAX_TOKENS];
} slow_vocab;

static slow_vocab *start(vocab_kind kind)
{
    slow_vocab *s = calloc(1, sizeof *s);
    s->v = vocab_default(kind);
    s->v.tokens = s->tokens;
    s->v.types = s->types;
    s->v.scores = s->scores;
    s->v.flags = s->flags;
    s->v.merges = s->merges;
    s->v.pre = text_of("gpt-2");
    return s;
}

static void add(slow_vocab *s, const void *data, size_t n, token_type type)
{
    size_t i = s->v.n_tokens++;
    s->tokens[i] = (text){data, n};
    s->types[i] = (int32_t)type;
    s->scores[i] = -(float)i;
}

static void finish(slow_vocab *s, span input, bool must_work)
{
    tokenizer *t = NULL;
    lace_error err = {0};
    lace_status status = tokenizer_create(&s->v, &t, &err);
    if (status != LACE_OK && must_work)
        abort(); /* what is to be measured does not happen */
    if (t)
        encode(t, input);
    tokenizer_free(t);
    free(s);
}

/* A special token as long as the text, and one letter longer than it. */
static void run_long_special(span input)
{
    slow_vocab *s = start(VOCAB_BPE);
    char *name = malloc(input.size + 1);
    memset(name, 'a', input.size);
    name[input.size] = 'b';
    add(s, "a", 1, TOKEN_NORMAL);
    add(s, name, input.size + 1, TOKEN_CONTROL);
    finish(s, input, true);
    free(name);
}

/* 256 of them, each the beginning of the next, none of which may stand inside of a word. */
static void run_nested_specials(span input)
{
    slow_vocab *s = start(VOCAB_BPE);
    char name[256];
    memset(name, 'a', sizeof name);
    add(s, "b", 1, TOKEN_NORMAL);
    for (size_t i = 0; i < sizeof name; i++) {
        s->flags[s->v.n_tokens] = TOKEN_SINGLE_WORD;
        add(s, name, i + 1, TOKEN_USER_DEFINED);
    }
    finish(s, input, true);
}

static void run_long_unigram(span input)
{
    slow_vocab *s = start(VOCAB_UNIGRAM);
    char *name = malloc(input.size + 1);
    memset(name, 'a', input.size);
    name[input.size] = 'b';
    add(s, "<unk>", 5, TOKEN_UNKNOWN);
    add(s, "a", 1, TOKEN_NORMAL);
    add(s, name, input.size + 1, TOKEN_NORMAL);
    finish(s, input, true);
    free(name);
}

static void run_nested(vocab_kind kind, size_t n_tokens, span input)
{
    slow_vocab *s = start(kind);
    char name[MAX_TOKENS];
    memset(name, 'a', sizeof name);
    add(s, "<unk>", 5, TOKEN_UNKNOWN);
    for (size_t i = 0; i < n_tokens; i++)
        add(s, name, i + 1, TOKEN_NORMAL);
    finish(s, input, true);
}

static void run_nested_unigram(span input)
{
    run_nested(VOCAB_UNIGRAM, 256, input);
}

static void run_nested_spm(span input)
{
    run_nested(VOCAB_SPM, 2000, input);
}

/* The words' letters are tokens, and so is something longer than they are. */
static void run_wide_wordpiece(span input)
{
    slow_vocab *s = start(VOCAB_WORDPIECE);
    char name[500];
    memset(name, 'a', sizeof name);
    add(s, "[UNK]", 5, TOKEN_UNKNOWN);
    for (unsigned i = 0; i < 3; i++) {
        static const char *const parts[3] = {"\xF0\x90\x90\xA8", "\xF0\x90\x90\xA9",
                                             "\xF0\x90\x90\xAA"};
        add(s, parts[i], 4, TOKEN_NORMAL);
    }
    add(s, "\xE2\x96\x81\xF0\x90\x90\xA8", 7, TOKEN_NORMAL);
    add(s, name, sizeof name, TOKEN_NORMAL);
    finish(s, input, true);
}

/* ---- Tables of replacements ------------------------------------------------------------------ */

/* A table in which the letter a leads back to the start; or one with a long replacement of it. */
static void run_charsmap(span input, bool is_loop, size_t n_replacement)
{
    enum { N_UNITS = 256 };
    size_t n = 4 + 4 * N_UNITS + n_replacement + 2;
    uint8_t *map = calloc(n, 1);
    uint32_t units[N_UNITS] = {0};
    /* Unit 'a' has the label a and leads from 'a' to 'a' ^ 'a' = 0, or by its leaf to unit 1. */
    units['a'] = 'a' | (uint32_t)'a' << 10;
    if (!is_loop) {
        units['a'] = 'a' | 1u << 8 | (uint32_t)('a' ^ 1) << 10;
        units[1] = 1u << 31; /* the replacement at 0 */
    }
    for (int i = 0; i < 4; i++)
        map[i] = (uint8_t)((uint32_t)(4 * N_UNITS) >> 8 * i);
    for (size_t i = 0; i < sizeof units; i++)
        map[4 + i] = (uint8_t)(units[i / 4] >> 8 * (i % 4));
    memset(map + 4 + sizeof units, ' ', n_replacement);
    slow_vocab *s = start(VOCAB_UNIGRAM);
    s->v.precompiled_charsmap = (span){map, n};
    s->v.remove_extra_whitespaces = true;
    add(s, "<unk>", 5, TOKEN_UNKNOWN);
    add(s, "a", 1, TOKEN_NORMAL);
    finish(s, input, is_loop || n_replacement <= 1024);
    free(map);
}

static void run_loop(span input)
{
    run_charsmap(input, true, 1);
}

static void run_replacement(span input)
{
    run_charsmap(input, false, 1024);
}

static void run_endless_replacement(span input)
{
    run_charsmap(input, false, input.size);
}

/* clang-format off */
static const cost_subject subjects[] = {
    {"bpe", all_shapes, run_byte_bpe, 0, 0},
    {"bpe, llama 3", all_shapes, run_llama3, 0, 0},
    {"bpe of characters", all_shapes, run_raw_bpe, 0, 0},
    {"spm", all_shapes, run_spm, 0, 0},
    {"spm without bytes", all_shapes, run_spm_bare, 0, 0},
    {"wordpiece", all_shapes, run_wordpiece, 0, 0},
    {"unigram", all_shapes, run_unigram, 0, 0},
    {"a special token of the text's length", letters, run_long_special, 0, 0},
    {"special tokens in special tokens", letters, run_nested_specials, 0, 0},
    {"unigram: a token of the text's length", letters, run_long_unigram, 0, 0},
    {"unigram: tokens in tokens", letters, run_nested_unigram, 0, 0},
    {"spm: tokens in tokens", letters, run_nested_spm, 0, 0},
    {"wordpiece: wide words", wide_words, run_wide_wordpiece, 0, 0},
    {"charsmap: a loop", letters, run_loop, 0, 0},
    {"charsmap: a long replacement", letters, run_replacement, 0, 0},
    {"charsmap: a replacement of the text's length", letters, run_endless_replacement, 0, 0},
};
/* clang-format on */

/* Limits that the indexes of tokens state. */
static void vocabularies_beyond_the_limits_are_refused(void)
{
    enum { N = 257 };
    static char name[N];
    memset(name, 'a', N);
    for (int i = 0; i < 3; i++) {
        slow_vocab *s = start(i == 0 ? VOCAB_BPE : VOCAB_UNIGRAM);
        tokenizer *t = NULL;
        lace_error err = {0};
        char *huge = malloc((16 << 20) + 1);
        memset(huge, 'a', (16 << 20) + 1);
        add(s, "<unk>", 5, TOKEN_UNKNOWN);
        for (size_t k = 0; i < 2 && k < N; k++)
            add(s, name, k + 1, i == 0 ? TOKEN_CONTROL : TOKEN_NORMAL);
        if (i == 2)
            add(s, huge, (16 << 20) + 1, TOKEN_NORMAL);
        CHECK(tokenizer_create(&s->v, &t, &err) == LACE_E_VOCAB && t == NULL);
        CHECK(strstr(err.text, "256") && strstr(err.text, "16 MiB"));
        free(huge);
        free(s);
    }
}

int main(void)
{
    CASE(vocabularies_beyond_the_limits_are_refused);
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        cost_check(&subjects[i]);
    return tap_end();
}
