/* Writing the vocabulary of a Hugging Face directory as llama.cpp's converter does. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "vocab/vocab_hf.h"

#define KEY(name) "tokenizer.ggml." name

/* ---- Which words ----------------------------------------------------------------------------- */

/* clang-format off */
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GPT2        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define TAIL        "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3(n)   CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" n "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TAIL
#define CL100K      "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}|" \
                    " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define UPPER       "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER       "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(tail) "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail \
                    "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" tail
#define O200K(n, tail) CASED(tail) "|" n "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" TAIL

/* What tokenizer.json files ask for, and the name that readers of GGUF files know it by. */
static const struct {
    const char *regexes[3];
    const char *name;
    bool ignores_merges; /* what the name implies */
} known[] = {
    {{GPT2},                               "gpt-2",     false},
    {{"\\p{N}", GPT2},                     "smollm",    false},
    {{LLAMA3("\\p{N}{1,3}")},              "llama-bpe", true},
    {{LLAMA3("\\p{N}{1,3}")},              "smaug-bpe", false},
    {{LLAMA3("\\p{N}")},                   "qwen2",     false},
    {{CL100K},                             "dbrx",      false},
    {{O200K("\\p{N}", "")},                "tekken",    true},
    {{O200K("\\p{N}{1,3}", CONTRACTION "?")}, "gpt-4o", false},
    {{"\\p{N}{1,3}",
      "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
      " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"},
                                           "deepseek-v3", false},
};
/* clang-format on */

static bool has_regexes(size_t k, const vocab *v)
{
    size_t n = 0;
    while (n < 3 && known[k].regexes[n])
        n++;
    bool is_same = n == v->n_regexes;
    for (size_t i = 0; is_same && i < n; i++)
        is_same = text_is(v->regexes[i], known[k].regexes[i]);
    return is_same;
}

static lace_status put_words(const vocab *v, gguf_writer *w, lace_error *err)
{
    if (v->add_space_prefix)
        return error_set(err, LACE_E_VOCAB,
                         "tokenizer.json: pre_tokenizer.add_prefix_space: GGUF has no key for it; "
                         "--no-vocab leaves the tokenizer out");
    const char *name = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (has_regexes(i, v) && (!name || known[i].ignores_merges == v->ignore_merges))
            name = known[i].name;
    if (name)
        return gguf_writer_add_text(w, KEY("pre"), text_of(name), err);
    text last = v->n_regexes > 0 ? v->regexes[v->n_regexes - 1] : (text){"", 0};
    return error_set(err, LACE_E_VOCAB,
                     "tokenizer.json: pre_tokenizer: GGUF has no name for the regex "
                     "\"%.*s\"; --no-vocab leaves the tokenizer out",
                     text_width(last), last.data);
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

/* Texts, types and scores, with tokens added up to the model's number. */
typedef struct table {
    text *tokens;
    int32_t *types;
    float *scores;
    size_t n;
    arena memory;
} table;

static lace_status table_init(table *t, const vocab *v, size_t n_vocab, lace_error *err)
{
    t->n = n_vocab;
    arena_init(&t->memory, SIZE_MAX / 2);
    t->tokens = arena_alloc(&t->memory, t->n, sizeof *t->tokens);
    t->types = arena_alloc(&t->memory, t->n, sizeof *t->types);
    t->scores = arena_alloc(&t->memory, t->n, sizeof *t->scores);
    if (!t->tokens || !t->types || !t->scores)
        return error_nomem(err, "the vocabulary");
    for (size_t i = 0; i < t->n; i++) {
        bool is_own = i < v->n_tokens;
        char name[32];
        int size = snprintf(name, sizeof name, "[PAD%zu]", i);
        char *copy = is_own ? NULL : arena_strndup(&t->memory, name, (size_t)size);
        if (!is_own && !copy)
            return error_nomem(err, "the vocabulary");
        t->tokens[i] = is_own ? v->tokens[i] : (text){copy, (size_t)size};
        t->types[i] = is_own ? v->types[i] : TOKEN_UNUSED;
        t->scores[i] = !is_own ? -10000.0f : v->scores ? v->scores[i] : 0.0f;
    }
    return LACE_OK;
}

/*
 * Merges of characters become scores, as SentencePiece has them: what is merged first scores
 * highest.
 */
static lace_status score_merges(table *t, const vocab *v, lace_error *err)
{
    map ids;
    map_init(&ids);
    lace_status status = map_reserve(&ids, t->n);
    for (size_t i = 0; i < t->n && status != LACE_E_NOMEM; i++) {
        status = map_add(&ids, t->tokens[i], (int32_t)i);
        t->scores[i] = -(float)v->n_merges;
    }
    char *joined = NULL;
    for (size_t i = v->n_merges; i-- > 0 && status != LACE_E_NOMEM;) {
        text merge = v->merges[i];
        const char *blank = memchr(merge.data, ' ', merge.size);
        size_t left = (size_t)(blank - merge.data);
        char *larger = mem_realloc(joined, merge.size);
        if (!larger) {
            status = LACE_E_NOMEM;
            break;
        }
        joined = larger;
        memcpy(joined, merge.data, left);
        memcpy(joined + left, blank + 1, merge.size - left - 1);
        int32_t id = map_find(&ids, (text){joined, merge.size - 1});
        if (id >= 0)
            t->scores[id] = -(float)i;
    }
    mem_free(joined);
    map_deinit(&ids);
    return status == LACE_E_NOMEM ? error_nomem(err, "the scores of tokens") : LACE_OK;
}

/* ---- Keys ------------------------------------------------------------------------------------ */

/* The writer remembers failures. */
static void put_ids(const hf_vocab *h, gguf_writer *w)
{
    const vocab *v = &h->v;
    const struct {
        const char *key;
        int32_t id;
    } ids[] = {
        {KEY("bos_token_id"), v->bos},     {KEY("eos_token_id"), v->eos},
        {KEY("unknown_token_id"), v->unk}, {KEY("seperator_token_id"), v->sep},
        {KEY("padding_token_id"), v->pad}, {KEY("cls_token_id"), v->cls},
        {KEY("mask_token_id"), v->mask},
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i].id >= 0)
            gguf_writer_add_int(w, ids[i].key, GGUF_U32, ids[i].id, NULL);
    /* A file has one more place for a token that ends an answer. */
    for (size_t i = 0; i < v->n_ends; i++)
        if (v->ends[i] != v->eos) {
            gguf_writer_add_int(w, KEY("eot_token_id"), GGUF_U32, v->ends[i], NULL);
            break;
        }
    gguf_writer_add_bool(w, KEY("add_bos_token"), v->add_bos, NULL);
    if (v->add_eos || h->says_add_eos)
        gguf_writer_add_bool(w, KEY("add_eos_token"), v->add_eos, NULL);
    if (h->chat_template.size > 0)
        gguf_writer_add_text(w, "tokenizer.chat_template", h->chat_template, NULL);
}

static lace_status put_kind(const vocab *v, table *t, gguf_writer *w, lace_error *err)
{
    bool is_raw = v->kind == VOCAB_BPE && !v->is_byte_level;
    static const char *const names[] = {
        [VOCAB_BPE] = "gpt2",
        [VOCAB_SPM] = "llama",
        [VOCAB_WORDPIECE] = "bert",
        [VOCAB_UNIGRAM] = "t5",
    };
    TRY(gguf_writer_add_text(w, KEY("model"), text_of(is_raw ? "llama" : names[v->kind]), err));
    if (v->kind == VOCAB_WORDPIECE) {
        gguf_writer_add_bool(w, KEY("normalizer.lowercase"), v->lowercase, NULL);
        gguf_writer_add_bool(w, KEY("normalizer.strip_accents"), v->strip_accents, NULL);
        return LACE_OK;
    }
    if (v->kind == VOCAB_BPE && !is_raw) {
        TRY(put_words(v, w, err));
        return gguf_writer_add_texts(w, KEY("merges"), v->merges, v->n_merges, err);
    }
    if (is_raw)
        TRY(score_merges(t, v, err));
    gguf_writer_add_text(w, KEY("pre"), text_of("default"), NULL);
    gguf_writer_add_array(w, KEY("scores"), GGUF_F32, t->scores, t->n, NULL);
    gguf_writer_add_bool(w, KEY("add_space_prefix"), v->add_space_prefix, NULL);
    if (v->kind != VOCAB_UNIGRAM)
        return LACE_OK;
    gguf_writer_add_bool(w, KEY("remove_extra_whitespaces"), v->remove_extra_whitespaces, NULL);
    if (v->precompiled_charsmap.size > 0)
        gguf_writer_add_array(w, KEY("precompiled_charsmap"), GGUF_U8, v->precompiled_charsmap.data,
                              v->precompiled_charsmap.size, NULL);
    return LACE_OK;
}

lace_status hf_tokenizer_to_gguf(const hf_tokenizer *source, size_t n_vocab, gguf_writer *w,
                                 lace_error *err)
{
    const hf_vocab *h = hf_tokenizer_vocab(source);
    table t;
    if (h->v.n_tokens > n_vocab)
        return error_set(err, LACE_E_VOCAB,
                         "the vocabulary has %zu tokens, but the model computes %zu", h->v.n_tokens,
                         n_vocab);
    lace_status status = table_init(&t, &h->v, n_vocab, err);
    if (status == LACE_OK)
        status = put_kind(&h->v, &t, w, err);
    if (status == LACE_OK)
        status = gguf_writer_add_texts(w, KEY("tokens"), t.tokens, t.n, err);
    if (status == LACE_OK)
        status = gguf_writer_add_array(w, KEY("token_type"), GGUF_I32, t.types, t.n, err);
    if (status == LACE_OK)
        put_ids(h, w);
    arena_deinit(&t.memory);
    return status;
}
