/* Vocabularies: what a GGUF file must say, and what happens when it does not. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "formats/gguf_write.h"
#include "vocab/vocab_gguf.h"
#include "tap.h"
#include "tiny_vocab.h"

static const size_t MAX_BYTES = 1 << 20;

#define KEY(name) "tokenizer.ggml." name

/* Adds a value of its own in place of the key that a case is about; NULL leaves the key out. */
typedef void (*add_fn)(gguf_writer *w, const char *key, const vocab *v, int variant);

static bool is_other(const char *key, const char *changed)
{
    return !changed || strcmp(key, changed) != 0;
}

/* A file with a tiny vocabulary, one of whose keys is changed. */
static void write_file(tiny_vocab_kind kind, const char *model, const char *changed, add_fn add,
                       int variant, buf *out)
{
    arena memory;
    arena_init(&memory, MAX_BYTES);
    vocab v = tiny_vocab(kind, &memory);
    gguf_writer *w;
    CHECK(gguf_writer_create(&w, NULL) == LACE_OK);
    if (is_other(KEY("model"), changed))
        gguf_writer_add_text(w, KEY("model"), text_of(model), NULL);
    if (v.kind == VOCAB_BPE && is_other(KEY("pre"), changed))
        gguf_writer_add_text(w, KEY("pre"), v.pre, NULL);
    if (is_other(KEY("tokens"), changed))
        gguf_writer_add_texts(w, KEY("tokens"), v.tokens, v.n_tokens, NULL);
    if (v.scores && is_other(KEY("scores"), changed))
        gguf_writer_add_array(w, KEY("scores"), GGUF_F32, v.scores, v.n_tokens, NULL);
    if (is_other(KEY("token_type"), changed))
        gguf_writer_add_array(w, KEY("token_type"), GGUF_I32, v.types, v.n_tokens, NULL);
    if (v.merges && is_other(KEY("merges"), changed))
        gguf_writer_add_texts(w, KEY("merges"), v.merges, v.n_merges, NULL);
    if (is_other(KEY("bos_token_id"), changed))
        gguf_writer_add_int(w, KEY("bos_token_id"), GGUF_U32, TINY_BOS, NULL);
    if (is_other(KEY("precompiled_charsmap"), changed) && v.precompiled_charsmap.size)
        gguf_writer_add_array(w, KEY("precompiled_charsmap"), GGUF_U8, v.precompiled_charsmap.data,
                              v.precompiled_charsmap.size, NULL);
    if (add)
        add(w, changed, &v, variant);
    buf_init(out, MAX_BYTES);
    CHECK(gguf_writer_to_buf(w, out, NULL) == LACE_OK);
    gguf_writer_free(w);
    arena_deinit(&memory);
}

static lace_status open_changed(tiny_vocab_kind kind, const char *model, const char *changed,
                                add_fn add, int variant, tokenizer **out, lace_error *err)
{
    buf bytes;
    gguf *g = NULL;
    *out = NULL;
    write_file(kind, model, changed, add, variant, &bytes);
    lace_status status = gguf_parse((span){(const uint8_t *)bytes.data, bytes.size}, &g, err);
    CHECK(status == LACE_OK);
    if (g)
        status = vocab_gguf_open(g, out, err);
    gguf_free(g);
    buf_deinit(&bytes);
    return status;
}

/* Opening fails with LACE_E_VOCAB, and the message holds the words. */
static void check_refused(tiny_vocab_kind kind, const char *model, const char *changed, add_fn add,
                          int variant, const char *word)
{
    tokenizer *t;
    lace_error err = {0};
    lace_status status = open_changed(kind, model, changed, add, variant, &t, &err);
    if (!CHECK(status == LACE_E_VOCAB && err.status == LACE_E_VOCAB && !t) ||
        !CHECK(strstr(err.text, word) != NULL))
        tap_note("%s, variant %d: %d \"%s\", expected \"%s\"", changed, variant, status, err.text,
                 word);
    tokenizer_free(t);
}

static tokenizer *check_opened(tiny_vocab_kind kind, const char *model, const char *changed,
                               add_fn add, int variant)
{
    tokenizer *t;
    lace_error err = {0};
    if (!CHECK(open_changed(kind, model, changed, add, variant, &t, &err) == LACE_OK))
        tap_note("%s, variant %d: %s", changed ? changed : "unchanged", variant, err.text);
    return t;
}

/* ---- Cases ----------------------------------------------------------------------------------- */

static void every_kind_opens(void)
{
    static const struct {
        tiny_vocab_kind kind;
        const char *model, *name;
    } kinds[] = {
        {TINY_BYTE_BPE, "gpt2", "bpe"},  {TINY_RAW_BPE, "gemma4", "bpe"},
        {TINY_SPM, "llama", "spm"},      {TINY_WORDPIECE, "bert", "wordpiece"},
        {TINY_UNIGRAM, "t5", "unigram"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        tokenizer *t = check_opened(kinds[i].kind, kinds[i].model, NULL, NULL, 0);
        CHECK(t && strcmp(tokenizer_kind_name(t), kinds[i].name) == 0);
        CHECK(t && tokenizer_bos(t) == TINY_BOS);
        tokenizer_free(t);
    }
}

static void add_model(gguf_writer *w, const char *key, const vocab *v, int variant)
{
    if (variant == 0)
        gguf_writer_add_text(w, key, text_of("xyz"), NULL);
    else if (variant == 1)
        gguf_writer_add_int(w, key, GGUF_U32, 1, NULL);
}

static void unknown_models_and_pre_tokenizers_are_named(void)
{
    check_refused(TINY_BYTE_BPE, "gpt2", KEY("model"), add_model, 0, "\"xyz\"");
    check_refused(TINY_BYTE_BPE, "gpt2", KEY("model"), add_model, 1, KEY("model"));
    check_refused(TINY_BYTE_BPE, "gpt2", KEY("model"), NULL, 0, KEY("model"));
    check_refused(TINY_BYTE_BPE, "gpt2", KEY("pre"), add_model, 0, "\"xyz\"");
    check_refused(TINY_BYTE_BPE, "gpt2", KEY("pre"), add_model, 1, KEY("pre"));
    tokenizer *t = check_opened(TINY_BYTE_BPE, "gpt2", KEY("pre"), NULL, 0); /* "default" */
    tokenizer_free(t);
}

static void no_vocabulary_is_no_error(void)
{
    CHECK(check_opened(TINY_BYTE_BPE, "none", NULL, NULL, 0) == NULL);
    CHECK(check_opened(TINY_BYTE_BPE, "no_vocab", NULL, NULL, 0) == NULL);
}

static void add_tokens(gguf_writer *w, const char *key, const vocab *v, int variant)
{
    if (variant == 0)
        gguf_writer_add_array(w, key, GGUF_I32, v->types, v->n_tokens, NULL);
    else if (variant == 1)
        gguf_writer_add_texts(w, key, NULL, 0, NULL);
    else if (variant == 2)
        gguf_writer_add_text(w, key, text_of("a"), NULL);
}

static void bad_tokens_are_refused(void)
{
    for (int variant = 0; variant < 4; variant++) /* the last is: missing */
        check_refused(TINY_SPM, "llama", KEY("tokens"), add_tokens, variant, KEY("tokens"));
}

static void add_scores(gguf_writer *w, const char *key, const vocab *v, int variant)
{
    float scores[600] = {0};
    int8_t small[600] = {0};
    if (variant == 0)
        gguf_writer_add_array(w, key, GGUF_I8, small, v->n_tokens, NULL);
    else if (variant == 1)
        gguf_writer_add_array(w, key, GGUF_F32, scores, v->n_tokens - 1, NULL);
    else if (variant == 2)
        gguf_writer_add_array(w, key, GGUF_F32, scores, v->n_tokens + 1, NULL);
    else if (variant == 3)
        gguf_writer_add_float(w, key, GGUF_F32, 1, NULL);
    else if (variant == 4 || variant == 5) {
        scores[7] = variant == 4 ? NAN : INFINITY;
        gguf_writer_add_array(w, key, GGUF_F32, scores, v->n_tokens, NULL);
    } else if (variant == 7) {
        gguf_writer_add_array(w, key, GGUF_I32, v->types, v->n_tokens, NULL);
    }
}

static void bad_scores_are_refused(void)
{
    for (int variant = 0; variant < 7; variant++) /* 6 is: missing */
        check_refused(TINY_SPM, "llama", KEY("scores"), add_scores, variant, "scores");
    tokenizer *t = check_opened(TINY_SPM, "llama", KEY("scores"), add_scores, 7); /* integers */
    tokenizer_free(t);
}

static void add_types(gguf_writer *w, const char *key, const vocab *v, int variant)
{
    static const int32_t wrong[] = {0, 7, -1, INT32_MIN};
    int32_t types[600];
    for (int i = 0; i < 600; i++)
        types[i] = 1;
    if (variant < 4)
        types[5] = wrong[variant];
    if (variant == 6)
        gguf_writer_add_array(w, key, GGUF_F32, v->scores, v->n_tokens, NULL);
    else
        gguf_writer_add_array(w, key, GGUF_I32, types,
                              v->n_tokens - (variant == 4) + (variant == 5), NULL);
}

static void bad_types_are_refused(void)
{
    for (int variant = 0; variant < 7; variant++)
        check_refused(TINY_SPM, "llama", KEY("token_type"), add_types, variant, KEY("token_type"));
}

static void add_id(gguf_writer *w, const char *key, const vocab *v, int variant)
{
    switch (variant) {
    case 0:
        gguf_writer_add_int(w, key, GGUF_U32, (int64_t)v->n_tokens, NULL);
        break;
    case 1:
        gguf_writer_add_int(w, key, GGUF_I32, -2, NULL);
        break;
    case 2:
        gguf_writer_add_text(w, key, text_of("1"), NULL);
        break;
    case 3:
        gguf_writer_add_int(w, key, GGUF_U64, INT64_MAX, NULL);
        break;
    case 4:
        gguf_writer_add_int(w, key, GGUF_U64, -1, NULL);
        break;
    case 5:
        gguf_writer_add_int(w, key, GGUF_I32, -1, NULL);
        break;
    case 6:
        gguf_writer_add_int(w, key, GGUF_U32, UINT32_MAX, NULL);
        break;
    }
}

static void special_ids_outside_the_vocabulary_are_refused(void)
{
    static const char *const keys[] = {
        KEY("bos_token_id"),       KEY("eos_token_id"),     KEY("eot_token_id"),
        KEY("unknown_token_id"),   KEY("padding_token_id"), KEY("cls_token_id"),
        KEY("seperator_token_id"), KEY("mask_token_id"),    KEY("eom_token_id"),
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        for (int variant = 0; variant < 5; variant++)
            check_refused(TINY_SPM, "llama", keys[i], add_id, variant, keys[i]);
}

static void minus_one_means_no_such_token(void)
{
    for (int variant = 5; variant < 7; variant++) {
        tokenizer *t = check_opened(TINY_SPM, "llama", KEY("bos_token_id"), add_id, variant);
        CHECK(t && tokenizer_bos(t) == -1);
        tokenizer_free(t);
    }
    /* What the file does not mention is as Llama has it. */
    tokenizer *t = check_opened(TINY_SPM, "llama", NULL, NULL, 0);
    CHECK(t && tokenizer_eos(t) == TINY_EOS);
    tokenizer_free(t);
}

static void add_merges(gguf_writer *w, const char *key, const vocab *v, int variant)
{
    static const char *const wrong[] = {"he", "he ", " he", "", " ", "  ", "h\xE4\xBD\xA0 e"};
    text merges[] = {text_of("h e"), text_of(wrong[variant < 7 ? variant : 0])};
    if (variant < 7)
        gguf_writer_add_texts(w, key, merges, 2, NULL);
    else if (variant == 7)
        gguf_writer_add_array(w, key, GGUF_I32, v->types, 3, NULL);
}

static void bad_merges_are_refused(void)
{
    for (int variant = 0; variant < 9; variant++) /* the last is: missing */
        check_refused(TINY_BYTE_BPE, "gpt2", KEY("merges"), add_merges, variant, "merges");
}

static void add_charsmap(gguf_writer *w, const char *key, const vocab *v, int variant)
{
    static const uint8_t bytes[4][12] = {
        {1, 0, 0},                               /* too short for the size */
        {8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},    /* no replacements */
        {0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0}, /* the trie is longer than all */
        {4, 0, 0, 0, 0, 0, 0, 0, 'a', 'b'},      /* the last replacement does not end */
    };
    static const size_t sizes[] = {3, 12, 12, 10};
    if (variant < 4)
        gguf_writer_add_array(w, key, GGUF_U8, bytes[variant], sizes[variant], NULL);
    else
        gguf_writer_add_array(w, key, GGUF_I32, v->types, 3, NULL);
}

static void bad_charsmaps_are_refused(void)
{
    for (int variant = 0; variant < 5; variant++)
        check_refused(TINY_UNIGRAM, "t5", KEY("precompiled_charsmap"), add_charsmap, variant,
                      "precompiled_charsmap");
}

static void a_wild_charsmap_stays_in_its_bounds(void)
{
    /* Units of all kinds of offsets; whatever they say, nothing outside is read. */
    uint32_t seed = 1;
    for (int round = 0; round < 50; round++) {
        arena memory;
        arena_init(&memory, MAX_BYTES);
        vocab v = tiny_vocab(TINY_UNIGRAM, &memory);
        uint8_t bytes[4 + 4 * 300 + 3] = {4 * 300 % 256, 4 * 300 / 256};
        for (size_t i = 4; i < sizeof bytes - 1; i++) {
            seed = seed * 1664525 + 1013904223;
            bytes[i] = i % 4 > 1 ? (uint8_t)(seed >> 30) : (uint8_t)(seed >> 24);
        }
        v.precompiled_charsmap = (span){bytes, sizeof bytes};
        tokenizer *t;
        token_list list = {0};
        CHECK(tokenizer_create(&v, &t, NULL) == LACE_OK);
        char input[256];
        for (int i = 0; i < 256; i++)
            input[i] = (char)i;
        lace_status status = tokenizer_encode(t, input, sizeof input, 0, &list, NULL);
        CHECK(status == LACE_OK || status == LACE_E_LIMIT);
        token_list_deinit(&list);
        tokenizer_free(t);
        arena_deinit(&memory);
    }
}

static void byte_tokens_are_read_strictly(void)
{
    static const char *const wrong[] = {"<0x-1>",  "<0x+1>", "<0x 1>", "<0xZZ>", "<0xG0>", "<0x1>",
                                        "<0x123>", "<0X0A>", "<0x0A",  "0x0A",   "\n",     ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        text tokens[] = {text_of("a"), text_of(wrong[i])};
        float scores[] = {0, 0};
        int32_t types[] = {TOKEN_NORMAL, TOKEN_BYTE};
        for (int kind = VOCAB_BPE; kind <= VOCAB_UNIGRAM; kind++) {
            vocab v = vocab_default(kind);
            v.tokens = tokens;
            v.n_tokens = 2;
            v.scores = scores;
            v.types = types;
            tokenizer *t;
            lace_error err = {0};
            CHECK(tokenizer_create(&v, &t, &err) == LACE_E_VOCAB && !t);
            CHECK(strstr(err.text, "tokens[1]") != NULL);
            types[1] = TOKEN_NORMAL; /* then it is just text */
            CHECK(tokenizer_create(&v, &t, &err) == LACE_OK);
            tokenizer_free(t);
            types[1] = TOKEN_BYTE;
        }
    }
}

static void descriptions_are_checked_too(void)
{
    text tokens[] = {text_of("a"), text_of("b")};
    int32_t ends[] = {2};
    vocab good = vocab_default(VOCAB_BPE);
    good.tokens = tokens;
    good.n_tokens = 2;
    tokenizer *t;
    lace_error err = {0};
    CHECK(tokenizer_create(&good, &t, &err) == LACE_OK);
    tokenizer_free(t);
    vocab v = good;
    v.n_tokens = 0;
    CHECK(tokenizer_create(&v, &t, &err) == LACE_E_VOCAB && !t);
    v = good;
    v.mask = 2;
    CHECK(tokenizer_create(&v, &t, &err) == LACE_E_VOCAB &&
          strstr(err.text, "mask_token_id: is 2"));
    v = good;
    v.eos = -2;
    CHECK(tokenizer_create(&v, &t, &err) == LACE_E_VOCAB &&
          strstr(err.text, "eos_token_id: is -2"));
    v = good;
    v.ends = ends;
    v.n_ends = 1;
    CHECK(tokenizer_create(&v, &t, &err) == LACE_E_VOCAB);
    v = good;
    v.kind = VOCAB_SPM;
    CHECK(tokenizer_create(&v, &t, &err) == LACE_E_VOCAB && strstr(err.text, "scores"));
    v = good;
    v.pre = text_of("xyz");
    CHECK(tokenizer_create(&v, &t, &err) == LACE_E_VOCAB && strstr(err.text, "xyz"));
    text regex = text_of("[a");
    v = good;
    v.regexes = &regex;
    v.n_regexes = 1;
    CHECK(tokenizer_create(&v, &t, &err) == LACE_E_VOCAB && strstr(err.text, "[a"));
}

int main(void)
{
    CASE(every_kind_opens);
    CASE(unknown_models_and_pre_tokenizers_are_named);
    CASE(no_vocabulary_is_no_error);
    CASE(bad_tokens_are_refused);
    CASE(bad_scores_are_refused);
    CASE(bad_types_are_refused);
    CASE(special_ids_outside_the_vocabulary_are_refused);
    CASE(minus_one_means_no_such_token);
    CASE(bad_merges_are_refused);
    CASE(bad_charsmaps_are_refused);
    CASE(a_wild_charsmap_stays_in_its_bounds);
    CASE(byte_tokens_are_read_strictly);
    CASE(descriptions_are_checked_too);
    return tap_end();
}
