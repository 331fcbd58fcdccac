/* The vocabulary of a Hugging Face directory. */
#include "vocab/vocab_hf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json_read.h"
#include "base/mem.h"
#include "vocab/spm_proto.h"

enum {
    MAX_PATH = 4096,
    MAX_TOKENIZER_BYTES = 64 << 20,
    MAX_CONFIG_BYTES = 8 << 20,
    MAX_TEMPLATE_BYTES = 4 << 20,
    MAX_ENDS = 64,
};

/* Gemma 3, the largest known, has 33 MB and takes 200. */
static const uint64_t MAX_JSON_MEMORY = (uint64_t)384 << 20;
static const size_t MAX_VOCAB_BYTES = (size_t)1 << 30;

struct hf_tokenizer {
    arena memory;
    json_t *tokenizer;  /* tokenizer.json, or NULL */
    json_t *config;     /* tokenizer_config.json, or NULL */
    json_t *generation; /* generation_config.json, or NULL */
    json_t *added;      /* added_tokens.json, or NULL */
    buf proto;          /* tokenizer.model */
    buf template;       /* chat_template.jinja */
    int32_t ends[MAX_ENDS];
    hf_vocab vocab;
};

/* ---- Files ----------------------------------------------------------------------------------- */

/* The whole file; is_found says whether there is one. */
static lace_status read_file(const char *directory, const char *name, buf *out, bool *is_found,
                             lace_error *err)
{
    char path[MAX_PATH];
    int n = snprintf(path, sizeof path, "%s/%s", directory, name);
    if (n < 0 || n >= MAX_PATH)
        return error_set(err, LACE_E_ARG, "the path is too long");
    *is_found = access(path, F_OK) == 0;
    return *is_found ? file_read_regular(path, out, err) : LACE_OK;
}

/* A file with one JSON object; NULL if there is no such file. */
static lace_status read_object(const char *directory, const char *name, size_t max_bytes,
                               json_t **out, lace_error *err)
{
    /* It gives the length of a text that has no bound as an integer of 100 bits. */
    bool has_large_numbers = strcmp(name, "tokenizer_config.json") == 0;
    buf bytes;
    bool is_found;
    buf_init(&bytes, max_bytes);
    lace_status status = read_file(directory, name, &bytes, &is_found, err);
    if (status == LACE_OK && is_found) {
        span all = {(const uint8_t *)(bytes.data ? bytes.data : ""), bytes.size};
        status = has_large_numbers ? json_read_as_reals(all, 0, out, err)
                                   : json_read_large(all, 0, MAX_JSON_MEMORY, out, err);
        if (status == LACE_OK && !json_is_object(*out))
            status = error_set(err, LACE_E_VOCAB, "is %s, expected an object", json_kind(*out));
        if (status != LACE_OK)
            error_prefix(err, status, name);
    }
    buf_deinit(&bytes);
    return status;
}

/* ---- Special tokens -------------------------------------------------------------------------- */

static const json_t *get(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* A token of tokenizer_config.json is its text, or an object with it. One without id is none. */
static lace_status read_token(const json_t *config, const char *key, const vocab *v, int32_t *out,
                              lace_error *err)
{
    const json_t *value = get(config, key);
    if (json_is_object(value))
        value = get(value, "content");
    if (!value)
        return LACE_OK;
    if (!json_is_string(value))
        return error_set(err, LACE_E_VOCAB, "tokenizer_config.json: %s: is %s, expected a token",
                         key, json_kind(value));
    int32_t id = hf_vocab_find(v, (text){json_string_value(value), json_string_length(value)});
    if (id >= 0)
        *out = id;
    return LACE_OK;
}

static lace_status read_flag(const json_t *config, const char *key, bool *out, bool *is_found,
                             lace_error *err)
{
    const json_t *value = get(config, key);
    *is_found = value != NULL;
    if (value && !json_is_boolean(value))
        return error_set(err, LACE_E_VOCAB, "tokenizer_config.json: %s: is %s, expected a boolean",
                         key, json_kind(value));
    if (value)
        *out = json_is_true(value);
    return LACE_OK;
}

static lace_status add_end(hf_tokenizer *t, const json_t *value, const char *where, lace_error *err)
{
    vocab *v = &t->vocab.v;
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value))
        return error_set(err, LACE_E_VOCAB, "%s: eos_token_id: is %s, expected a token", where,
                         json_kind(value));
    /* Models may know more ids than their tokenizer. */
    if (id < 0 || (uint64_t)id >= v->n_tokens)
        return LACE_OK;
    if (v->eos < 0)
        v->eos = (int32_t)id;
    for (size_t i = 0; i < v->n_ends; i++)
        if (t->ends[i] == id)
            return LACE_OK;
    if (v->n_ends == MAX_ENDS)
        return error_set(err, LACE_E_LIMIT, "%s: eos_token_id: has more than %d tokens", where,
                         MAX_ENDS);
    t->ends[v->n_ends++] = (int32_t)id;
    return LACE_OK;
}

/* eos_token_id is a token or a list. */
static lace_status read_ends(hf_tokenizer *t, const json_t *object, const char *where,
                             lace_error *err)
{
    const json_t *value = get(object, "eos_token_id");
    if (!value)
        return LACE_OK;
    if (!json_is_array(value))
        return add_end(t, value, where, err);
    for (size_t i = 0; i < json_array_size(value); i++)
        TRY(add_end(t, json_array_get(value, i), where, err));
    return LACE_OK;
}

/* What a text is put between, if the files do not say that they do without it. */
static lace_status read_additions(hf_tokenizer *t, lace_error *err)
{
    hf_vocab *h = &t->vocab;
    vocab *v = &h->v;
    bool says_bos;
    if (v->kind == VOCAB_WORDPIECE) {
        v->cls = h->first;
        v->sep = h->last;
        v->bos = -1;
        v->add_bos = h->first >= 0;
        v->add_sep = h->last >= 0;
        return LACE_OK;
    }
    if (h->first >= 0) {
        v->bos = h->first;
        v->add_bos = true;
    }
    if (h->last >= 0) {
        /* The token that ends an answer stays an end, if another one closes the prompt. */
        if (v->eos >= 0 && v->eos != h->last && v->n_ends < MAX_ENDS)
            t->ends[v->n_ends++] = v->eos;
        v->eos = h->last;
        v->add_eos = true;
    }
    TRY(read_flag(t->config, "add_bos_token", &v->add_bos, &says_bos, err));
    return read_flag(t->config, "add_eos_token", &v->add_eos, &h->says_add_eos, err);
}

static lace_status read_specials(hf_tokenizer *t, const json_t *config, lace_error *err)
{
    vocab *v = &t->vocab.v;
    const struct {
        const char *key;
        int32_t *id;
    } tokens[] = {
        {"bos_token", &v->bos},   {"eos_token", &v->eos}, {"unk_token", &v->unk},
        {"sep_token", &v->sep},   {"pad_token", &v->pad}, {"cls_token", &v->cls},
        {"mask_token", &v->mask},
    };
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        TRY(read_token(t->config, tokens[i].key, v, tokens[i].id, err));
    v->ends = t->ends;
    TRY(read_ends(t, config, "config.json", err));
    TRY(read_ends(t, t->generation, "generation_config.json", err));
    const json_t *bos = get(config, "bos_token_id");
    json_int_t id = json_integer_value(bos);
    if (v->bos < 0 && json_is_integer(bos) && id >= 0 && (uint64_t)id < v->n_tokens)
        v->bos = (int32_t)id;
    return read_additions(t, err);
}

/* ---- The chat template ----------------------------------------------------------------------- */

/* The template is a text, or a list of named ones of which "default" is meant. */
static const json_t *find_template(const json_t *value)
{
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        const char *name = json_string_value(get(item, "name"));
        if (name && strcmp(name, "default") == 0)
            return get(item, "template");
    }
    return json_is_array(value) ? NULL : value;
}

static lace_status read_template(hf_tokenizer *t, const char *directory, lace_error *err)
{
    const json_t *value = find_template(get(t->config, "chat_template"));
    if (value && !json_is_string(value))
        return error_set(err, LACE_E_VOCAB,
                         "tokenizer_config.json: chat_template: is %s, expected a string",
                         json_kind(value));
    if (value) {
        t->vocab.chat_template = (text){json_string_value(value), json_string_length(value)};
        return LACE_OK;
    }
    bool is_found;
    TRY(read_file(directory, "chat_template.jinja", &t->template, &is_found, err));
    if (is_found && t->template.size > 0)
        t->vocab.chat_template = (text){t->template.data, t->template.size};
    return LACE_OK;
}

/* ---- SentencePiece --------------------------------------------------------------------------- */

/* One token that tokenizer_config.json or added_tokens.json adds to a SentencePiece model. */
typedef struct added_token {
    text content;
    int64_t id;
    bool is_special;
    uint8_t flags;
} added_token;

static bool is_set(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

/* added_tokens_decoder: ids, as texts, and tokens. */
static lace_status list_by_id(const json_t *object, added_token *out, size_t *n, lace_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        char *end;
        long long id = strtoll(key, &end, 10);
        const json_t *content = get(value, "content");
        if (*end || end == key || !json_is_string(content))
            return error_set(err, LACE_E_VOCAB,
                             "tokenizer_config.json: added_tokens_decoder: \"%.32s\": "
                             "expected an id and a token",
                             key);
        out[(*n)++] = (added_token){
            .content = {json_string_value(content), json_string_length(content)},
            .id = id,
            .is_special = is_set(value, "special"),
            .flags = (uint8_t)((is_set(value, "lstrip") ? TOKEN_LSTRIP : 0) |
                               (is_set(value, "rstrip") ? TOKEN_RSTRIP : 0) |
                               (is_set(value, "single_word") ? TOKEN_SINGLE_WORD : 0))};
    }
    return LACE_OK;
}

/* added_tokens.json: tokens and their ids. */
static lace_status list_added(const json_t *object, added_token *out, size_t *n, lace_error *err)
{
    void *at = json_object_iter((json_t *)object);
    for (; at; at = json_object_iter_next((json_t *)object, at)) {
        const json_t *id = json_object_iter_value(at);
        if (!json_is_integer(id))
            return error_set(err, LACE_E_VOCAB,
                             "added_tokens.json: \"%.64s\": is %s, expected an id",
                             json_object_iter_key(at), json_kind(id));
        out[(*n)++] =
            (added_token){.content = {json_object_iter_key(at), json_object_iter_key_len(at)},
                          .id = json_integer_value(id)};
    }
    return LACE_OK;
}

/* A vocabulary with room for more tokens, of which those that stay without a text are unused. */
static lace_status grow(hf_tokenizer *t, size_t n, text **tokens, int32_t **types, uint8_t **flags,
                        lace_error *err)
{
    vocab *v = &t->vocab.v;
    *tokens = arena_alloc(&t->memory, n, sizeof **tokens);
    *types = arena_alloc(&t->memory, n, sizeof **types);
    *flags = arena_alloc(&t->memory, n, sizeof **flags);
    float *scores = arena_alloc(&t->memory, n, sizeof *scores);
    if (!*tokens || !*types || !*flags || !scores)
        return error_nomem(err, "the vocabulary");
    memcpy(*tokens, v->tokens, v->n_tokens * sizeof **tokens);
    memcpy(*types, v->types, v->n_tokens * sizeof **types);
    memcpy(scores, v->scores, v->n_tokens * sizeof *scores);
    for (size_t i = v->n_tokens; i < n; i++) {
        char name[32];
        int size = snprintf(name, sizeof name, "[PAD%zu]", i);
        char *copy = arena_strndup(&t->memory, name, (size_t)size);
        if (!copy)
            return error_nomem(err, "the vocabulary");
        (*tokens)[i] = (text){copy, (size_t)size};
        (*types)[i] = TOKEN_UNUSED;
        scores[i] = -10000.0f;
    }
    v->tokens = *tokens;
    v->types = *types;
    v->flags = *flags;
    v->scores = scores;
    v->n_tokens = n;
    return LACE_OK;
}

static lace_status add_tokens(hf_tokenizer *t, lace_error *err)
{
    enum { MAX_ADDED = 65536 };
    const json_t *by_id = get(t->config, "added_tokens_decoder");
    size_t n_added = json_object_size(by_id) + json_object_size(t->added), n = 0;
    vocab *v = &t->vocab.v;
    if (n_added == 0)
        return LACE_OK;
    added_token *added = arena_alloc(&t->memory, n_added, sizeof *added);
    if (!added)
        return error_nomem(err, "the added tokens");
    TRY(list_added(t->added, added, &n, err));
    TRY(list_by_id(by_id, added, &n, err));
    int64_t n_tokens = (int64_t)v->n_tokens;
    for (size_t i = 0; i < n; i++) {
        if (added[i].id < 0 || added[i].id > (int64_t)v->n_tokens + MAX_ADDED)
            return error_set(err, LACE_E_VOCAB, "added token \"%.*s\": id %lld",
                             text_width(added[i].content), added[i].content.data,
                             (long long)added[i].id);
        n_tokens = added[i].id >= n_tokens ? added[i].id + 1 : n_tokens;
    }
    text *tokens;
    int32_t *types;
    uint8_t *flags;
    TRY(grow(t, (size_t)n_tokens, &tokens, &types, &flags, err));
    for (size_t i = 0; i < n; i++) {
        const added_token *a = &added[i];
        tokens[a->id] = a->content;
        flags[a->id] = a->flags;
        if (types[a->id] != TOKEN_UNKNOWN && types[a->id] != TOKEN_BYTE)
            types[a->id] =
                a->is_special || hf_vocab_looks_special(a->content) || types[a->id] == TOKEN_CONTROL
                    ? TOKEN_CONTROL
                    : TOKEN_USER_DEFINED;
    }
    return LACE_OK;
}

static lace_status read_proto(hf_tokenizer *t, const char *directory, lace_error *err)
{
    hf_vocab *h = &t->vocab;
    span bytes = {(const uint8_t *)t->proto.data, t->proto.size};
    TRY(read_object(directory, "added_tokens.json", MAX_CONFIG_BYTES, &t->added, err));
    *h = (hf_vocab){.chat_template = {"", 0}, .first = -1, .last = -1};
    TRY(spm_proto_read(bytes, &t->memory, &h->v, err));
    /* What the models of this time do unless their tokenizer_config.json says otherwise. */
    h->v.add_bos = h->v.kind == VOCAB_SPM;
    h->v.add_eos = h->v.kind == VOCAB_UNIGRAM;
    return add_tokens(t, err);
}

/* ---- All together ---------------------------------------------------------------------------- */

static lace_status open_files(hf_tokenizer *t, const char *directory, const json_t *config,
                              bool *is_found, lace_error *err)
{
    TRY(read_object(directory, "tokenizer.json", MAX_TOKENIZER_BYTES, &t->tokenizer, err));
    *is_found = true;
    if (!t->tokenizer)
        TRY(read_file(directory, "tokenizer.model", &t->proto, is_found, err));
    if (!*is_found)
        return LACE_OK;
    TRY(read_object(directory, "tokenizer_config.json", MAX_CONFIG_BYTES, &t->config, err));
    TRY(read_object(directory, "generation_config.json", MAX_CONFIG_BYTES, &t->generation, err));
    TRY(t->tokenizer ? tokenizer_json_read(t->tokenizer, &t->memory, &t->vocab, err)
                     : read_proto(t, directory, err));
    TRY(read_specials(t, config, err));
    return read_template(t, directory, err);
}

lace_status hf_tokenizer_open(const char *directory, const json_t *config, hf_tokenizer **out,
                              lace_error *err)
{
    *out = NULL;
    hf_tokenizer *t = mem_calloc(1, sizeof *t);
    if (!t)
        return error_nomem(err, "the tokenizer");
    arena_init(&t->memory, MAX_VOCAB_BYTES);
    buf_init(&t->proto, MAX_TOKENIZER_BYTES);
    buf_init(&t->template, MAX_TEMPLATE_BYTES);
    bool is_found = false;
    lace_status status = open_files(t, directory, config, &is_found, err);
    if (status != LACE_OK || !is_found) {
        hf_tokenizer_close(t);
        return status;
    }
    *out = t;
    return LACE_OK;
}

void hf_tokenizer_close(hf_tokenizer *t)
{
    if (!t)
        return;
    json_decref(t->tokenizer);
    json_decref(t->config);
    json_decref(t->generation);
    json_decref(t->added);
    buf_deinit(&t->proto);
    buf_deinit(&t->template);
    arena_deinit(&t->memory);
    mem_free(t);
}

const hf_vocab *hf_tokenizer_vocab(const hf_tokenizer *t)
{
    return &t->vocab;
}
