/* The vocabulary in a tokenizer.json: tokens, merges, added tokens. */
#define _GNU_SOURCE
#include "vocab/tokenizer_json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json_read.h"
#include "vocab/tokenizer_json_impl.h"

#define SPACE_MARK "\xE2\x96\x81" /* U+2581 */

/* ---- Members and messages -------------------------------------------------------------------- */

lace_status json_fail(json_reader *r, const char *where, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return error_set(r->err, LACE_E_VOCAB, "tokenizer.json: %s: %s", where, what);
}

lace_status json_refuse(json_reader *r, const char *where, const char *key, const json_t *value)
{
    char path[128];
    snprintf(path, sizeof path, "%s.%s", where, key);
    if (json_is_string(value))
        return json_fail(r, path, "\"%.80s\" is not supported", json_string_value(value));
    if (json_is_integer(value))
        return json_fail(r, path, "%lld is not supported", (long long)json_integer_value(value));
    if (json_is_boolean(value))
        return json_fail(r, path, "%s is not supported", json_is_true(value) ? "true" : "false");
    return json_fail(r, path, "%s is not supported", json_kind(value));
}

static text text_value(const json_t *value)
{
    return (text){json_string_value(value), json_string_length(value)};
}

/* A value of this kind, or NULL if there is none; JSON_TRUE stands for both booleans. */
static lace_status get_kind(json_reader *r, const json_t *object, const char *where,
                            const char *key, json_type kind, const json_t **out)
{
    const json_t *value = *out = json_get(object, key);
    bool fits = kind == JSON_TRUE ? json_is_boolean(value) : json_is_string(value);
    return !value || fits ? LACE_OK
                          : json_fail(r, where, "%s: is %s, expected a %s", key, json_kind(value),
                                      kind == JSON_TRUE ? "boolean" : "string");
}

lace_status json_get_bool(json_reader *r, const json_t *object, const char *where, const char *key,
                          bool *out)
{
    const json_t *value;
    TRY(get_kind(r, object, where, key, JSON_TRUE, &value));
    *out = value ? json_is_true(value) : *out;
    return LACE_OK;
}

lace_status json_get_text(json_reader *r, const json_t *object, const char *where, const char *key,
                          text *out)
{
    const json_t *value;
    TRY(get_kind(r, object, where, key, JSON_STRING, &value));
    *out = value ? text_value(value) : *out;
    return LACE_OK;
}

int32_t hf_vocab_find(const vocab *v, text token)
{
    for (size_t i = 0; i < v->n_tokens; i++)
        if (text_equals(v->tokens[i], token))
            return (int32_t)i;
    return -1;
}

static bool is_between(text t, const char *start, const char *end)
{
    size_t n = strlen(start), k = strlen(end);
    return t.size >= n + k && memcmp(t.data, start, n) == 0 &&
           memcmp(t.data + t.size - k, end, k) == 0;
}

bool hf_vocab_looks_special(text token)
{
    return text_is(token, "<pad>") || text_is(token, "<mask>") || text_is(token, "<2mass>") ||
           text_is(token, "[@BOS@]") || is_between(token, "<|", "|>") ||
           is_between(token, "<\xEF\xBD\x9C", "\xEF\xBD\x9C>") || is_between(token, "<unused", ">");
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

/* Give a text its id. Added tokens may repeat what the model's vocabulary says. */
static lace_status add_token(json_reader *r, text token, int64_t id, bool may_repeat)
{
    const char *where = may_repeat ? "added_tokens" : "model.vocab";
    if (id < 0 || (uint64_t)id >= r->n_tokens)
        return json_fail(r, where, "\"%.*s\": id %lld, expected 0 to %zu", text_width(token),
                         token.data, (long long)id, r->n_tokens - 1);
    text *place = &r->tokens[id];
    if (may_repeat && place->data && text_equals(*place, token))
        return LACE_OK;
    if (place->data)
        return json_fail(r, where, "id %lld is given to two tokens: \"%.*s\" and \"%.*s\"",
                         (long long)id, text_width(*place), place->data, text_width(token),
                         token.data);
    lace_status status = map_add(&r->ids, token, (int32_t)id);
    if (status == LACE_E_DUP)
        return json_fail(r, where, "\"%.*s\": has two ids: %d and %lld", text_width(token),
                         token.data, map_find(&r->ids, token), (long long)id);
    if (status != LACE_OK)
        return error_nomem(r->err, "the vocabulary");
    *place = token;
    r->types[id] = TOKEN_NORMAL;
    return LACE_OK;
}

static void raise_to(int64_t id, int64_t *highest)
{
    if (id > *highest)
        *highest = id;
}

/* How many ids there are: up to the highest, but the places between tokens are few. */
static lace_status count_tokens(json_reader *r, const json_t *tokens, const json_t *added)
{
    int64_t highest = -1, n = (int64_t)json_array_size(added);
    const char *name;
    json_t *value;
    size_t i;
    json_object_foreach((json_t *)tokens, name, value)
    {
        if (!json_is_integer(value))
            return json_fail(r, "model.vocab", "\"%.64s\": is %s, expected an id", name,
                             json_kind(value));
        raise_to(json_integer_value(value), &highest);
        n++;
    }
    if (json_is_array(tokens)) {
        n += (int64_t)json_array_size(tokens);
        highest = (int64_t)json_array_size(tokens) - 1;
    }
    json_array_foreach((json_t *)added, i, value)
    {
        const json_t *id = json_object_get(value, "id");
        if (!json_is_integer(id) || !json_is_string(json_object_get(value, "content")))
            return json_fail(r, "added_tokens", "item %zu: expected an object with id and content",
                             i);
        raise_to(json_integer_value(id), &highest);
    }
    enum { MAX_GAPS = 65536 };
    if (highest < 0 || highest >= HF_VOCAB_MAX_TOKENS || highest > 2 * n + MAX_GAPS)
        return json_fail(
            r, "model.vocab",
            "has %lld tokens with ids up to %lld, expected ids from 0 on without large gaps",
            (long long)n, (long long)highest);
    r->n_tokens = (size_t)highest + 1;
    r->tokens = arena_alloc(r->memory, r->n_tokens, sizeof *r->tokens);
    r->types = arena_alloc(r->memory, r->n_tokens, sizeof *r->types);
    r->flags = arena_alloc(r->memory, r->n_tokens, sizeof *r->flags);
    if (!r->tokens || !r->types || !r->flags || map_reserve(&r->ids, r->n_tokens) != LACE_OK)
        return error_nomem(r->err, "the vocabulary");
    return LACE_OK;
}

/* A vocabulary that is an object: texts and their ids. */
static lace_status read_object(json_reader *r, const json_t *tokens)
{
    void *at = json_object_iter((json_t *)tokens);
    for (; at; at = json_object_iter_next((json_t *)tokens, at)) {
        text token = {json_object_iter_key(at), json_object_iter_key_len(at)};
        TRY(add_token(r, token, json_integer_value(json_object_iter_value(at)), false));
    }
    return LACE_OK;
}

/* A vocabulary that is an array: pairs of a text and its score, the place being the id. */
static lace_status read_scored(json_reader *r, const json_t *tokens)
{
    r->scores = arena_alloc(r->memory, r->n_tokens, sizeof *r->scores);
    if (!r->scores)
        return error_nomem(r->err, "the vocabulary");
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const json_t *pair = json_array_get(tokens, i);
        const json_t *token = json_array_get(pair, 0), *score = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_string(token) || !json_is_number(score))
            return json_fail(r, "model.vocab", "item %zu: expected a token and its score", i);
        TRY(add_token(r, text_value(token), (int64_t)i, false));
        double value = json_number_value(score);
        if (!(fabs(value) < 1e30))
            return json_fail(r, "model.vocab",
                             "item %zu: its score is %g, expected a finite number", i, value);
        r->scores[i] = (float)value;
    }
    return LACE_OK;
}

/* ---- Merges ---------------------------------------------------------------------------------- */

/* Writes "left right" to the arena; a blank inside a half becomes U+2581, which means the same. */
static lace_status join_halves(json_reader *r, text left, text right, text *out)
{
    buf joined;
    buf_init(&joined, SIZE_MAX / 2);
    text halves[] = {left, right};
    lace_status status = LACE_OK;
    for (int k = 0; k < 2 && status == LACE_OK; k++) {
        if (k == 1)
            status = buf_append(&joined, " ", 1);
        for (size_t i = 0; i < halves[k].size && status == LACE_OK; i++) {
            char c = halves[k].data[i];
            status = c == ' ' ? buf_append_text(&joined, SPACE_MARK) : buf_append(&joined, &c, 1);
        }
    }
    char *copy = status == LACE_OK ? arena_strndup(r->memory, joined.data, joined.size) : NULL;
    *out = (text){copy, joined.size};
    buf_deinit(&joined);
    return copy ? LACE_OK : error_nomem(r->err, "the merges");
}

/* A merge is "left right" or ["left", "right"]. */
static lace_status split_merge(json_reader *r, const json_t *merge, size_t i, text *left,
                               text *right)
{
    if (json_is_string(merge)) {
        text t = text_value(merge);
        const char *blank = memchr(t.data, ' ', t.size);
        size_t n = blank ? (size_t)(blank - t.data) : 0;
        if (n == 0 || n + 1 == t.size || memchr(blank + 1, ' ', t.size - n - 1))
            return json_fail(r, "model.merges",
                             "item %zu: \"%.*s\", expected two tokens with a space between them", i,
                             text_width(t), t.data);
        *left = (text){t.data, n};
        *right = (text){blank + 1, t.size - n - 1};
        return LACE_OK;
    }
    const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
    if (json_array_size(merge) != 2 || !json_is_string(a) || !json_is_string(b) ||
        json_string_length(a) == 0 || json_string_length(b) == 0)
        return json_fail(r, "model.merges", "item %zu: expected two tokens", i);
    *left = text_value(a);
    *right = text_value(b);
    return LACE_OK;
}

static lace_status check_merge(json_reader *r, size_t i, text left, text right, buf *whole)
{
    buf_clear(whole);
    if (buf_append(whole, left.data, left.size) != LACE_OK ||
        buf_append(whole, right.data, right.size) != LACE_OK)
        return error_nomem(r->err, "the merges");
    text parts[] = {left, right, {whole->data, whole->size}};
    for (int k = 0; k < 3; k++)
        if (map_find(&r->ids, parts[k]) < 0)
            return json_fail(r, "model.merges", "item %zu: \"%.*s\" is not a token", i,
                             text_width(parts[k]), parts[k].data);
    return LACE_OK;
}

static lace_status read_merges(json_reader *r, const json_t *merges)
{
    if (!json_is_array(merges))
        return json_fail(r, "model.merges", "is %s, expected an array", json_kind(merges));
    size_t n = json_array_size(merges);
    text *texts = arena_alloc(r->memory, n + 1, sizeof *texts);
    if (!texts)
        return error_nomem(r->err, "the merges");
    buf whole;
    buf_init(&whole, SIZE_MAX / 2);
    lace_status status = LACE_OK;
    for (size_t i = 0; i < n && status == LACE_OK; i++) {
        const json_t *merge = json_array_get(merges, i);
        text left = {"", 0}, right = {"", 0};
        status = split_merge(r, merge, i, &left, &right);
        if (status == LACE_OK)
            status = check_merge(r, i, left, right, &whole);
        if (status == LACE_OK && json_is_string(merge))
            texts[i] = text_value(merge);
        else if (status == LACE_OK)
            status = join_halves(r, left, right, &texts[i]);
    }
    buf_deinit(&whole);
    r->v->merges = texts;
    r->v->n_merges = n;
    return status;
}

/* ---- Models ---------------------------------------------------------------------------------- */

static void mark_bytes(json_reader *r)
{
    char name[8];
    for (int i = 0; i < 256; i++) {
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        int32_t id = map_find(&r->ids, text_of(name));
        if (id >= 0)
            r->types[id] = TOKEN_BYTE;
        else
            r->has_bytes = false;
    }
}

static lace_status set_unknown(json_reader *r, int32_t id)
{
    r->v->unk = id;
    r->types[id] = TOKEN_UNKNOWN;
    return LACE_OK;
}

static lace_status read_unknown(json_reader *r, const json_t *model)
{
    text unknown = {NULL, 0};
    TRY(json_get_text(r, model, "model", "unk_token", &unknown));
    if (!unknown.data)
        return LACE_OK;
    int32_t id = map_find(&r->ids, unknown);
    return id >= 0 ? set_unknown(r, id)
                   : json_fail(r, "model.unk_token", "\"%.*s\" is not a token", text_width(unknown),
                               unknown.data);
}

static lace_status read_bpe(json_reader *r, const json_t *model)
{
    static const char *const refused[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        text value = {NULL, 0};
        TRY(json_get_text(r, model, "model", refused[i], &value));
        if (value.size > 0)
            return json_refuse(r, "model", refused[i], json_get(model, refused[i]));
    }
    const json_t *dropout = json_get(model, "dropout");
    if (dropout && json_number_value(dropout) != 0)
        return json_refuse(r, "model", "dropout", dropout);
    bool fuses = false;
    TRY(json_get_bool(r, model, "model", "byte_fallback", &r->has_bytes));
    TRY(json_get_bool(r, model, "model", "ignore_merges", &r->v->ignore_merges));
    TRY(json_get_bool(r, model, "model", "fuse_unk", &fuses));
    TRY(read_unknown(r, model));
    if (r->has_bytes)
        mark_bytes(r);
    if (fuses && !r->has_bytes && r->v->unk >= 0)
        return json_refuse(r, "model", "fuse_unk", json_get(model, "fuse_unk"));
    return read_merges(r, json_get(model, "merges"));
}

static lace_status read_unigram(json_reader *r, const json_t *model)
{
    const json_t *unknown = json_get(model, "unk_id");
    if (unknown) {
        json_int_t id = json_integer_value(unknown);
        if (!json_is_integer(unknown) || id < 0 || (uint64_t)id >= r->n_tokens ||
            !r->tokens[id].data)
            return json_fail(r, "model.unk_id", "is not the id of a token");
        TRY(set_unknown(r, (int32_t)id));
    }
    TRY(json_get_bool(r, model, "model", "byte_fallback", &r->has_bytes));
    if (r->has_bytes)
        mark_bytes(r);
    return LACE_OK;
}

static lace_status read_wordpiece(json_reader *r, const json_t *model)
{
    const json_t *max = json_get(model, "max_input_chars_per_word");
    if (max && json_integer_value(max) != 100)
        return json_refuse(r, "model", "max_input_chars_per_word", max);
    text prefix = text_of("##");
    TRY(json_get_text(r, model, "model", "continuing_subword_prefix", &prefix));
    if (!text_is(prefix, "##"))
        return json_refuse(r, "model", "continuing_subword_prefix",
                           json_get(model, "continuing_subword_prefix"));
    return read_unknown(r, model);
}

/* After the added tokens are known: "##ing" becomes "ing", and "the" U+2581 and "the". */
static lace_status mark_words(json_reader *r)
{
    for (size_t i = 0; i < r->n_tokens; i++) {
        text t = r->tokens[i];
        if (!t.data || r->types[i] != TOKEN_NORMAL || is_between(t, "[", "]"))
            continue;
        if (t.size > 2 && memcmp(t.data, "##", 2) == 0) {
            r->tokens[i] = (text){t.data + 2, t.size - 2};
            continue;
        }
        char *marked = arena_alloc(r->memory, t.size + 4, 1);
        if (!marked)
            return error_nomem(r->err, "the vocabulary");
        memcpy(marked, SPACE_MARK, 3);
        memcpy(marked + 3, t.data, t.size);
        r->tokens[i] = (text){marked, t.size + 3};
    }
    return LACE_OK;
}

/* clang-format off */
static const struct model_type {
    const char *name;
    vocab_kind kind;
    lace_status (*read)(json_reader *r, const json_t *model);
} models[] = {
    {"BPE",       VOCAB_BPE,       read_bpe},
    {"Unigram",   VOCAB_UNIGRAM,   read_unigram},
    {"WordPiece", VOCAB_WORDPIECE, read_wordpiece},
};
/* clang-format on */

/* Old files do not name the model: one with merges is BPE. */
static const struct model_type *find_model(const json_t *model, text name)
{
    if (!name.data)
        return json_is_array(json_get(model, "merges")) ? &models[0] : NULL;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (text_is(name, models[i].name))
            return &models[i];
    return NULL;
}

/* ---- Added tokens ---------------------------------------------------------------------------- */

static lace_status read_added_token(json_reader *r, const json_t *item)
{
    text content = text_value(json_object_get(item, "content"));
    int64_t id = json_integer_value(json_object_get(item, "id"));
    if (content.size == 0)
        return json_fail(r, "added_tokens", "the token with id %lld is empty", (long long)id);
    bool is_new = map_find(&r->ids, content) < 0;
    TRY(add_token(r, content, id, true));
    bool is_special = false, lstrip = false, rstrip = false, is_word = false;
    TRY(json_get_bool(r, item, "added_tokens", "special", &is_special));
    TRY(json_get_bool(r, item, "added_tokens", "lstrip", &lstrip));
    TRY(json_get_bool(r, item, "added_tokens", "rstrip", &rstrip));
    TRY(json_get_bool(r, item, "added_tokens", "single_word", &is_word));
    r->flags[id] = (uint8_t)((lstrip ? TOKEN_LSTRIP : 0) | (rstrip ? TOKEN_RSTRIP : 0) |
                             (is_word ? TOKEN_SINGLE_WORD : 0));
    if (r->types[id] == TOKEN_UNKNOWN || r->types[id] == TOKEN_BYTE)
        return LACE_OK;
    if (is_special || hf_vocab_looks_special(content))
        r->types[id] = TOKEN_CONTROL;
    /* Runs of U+2581 are no text that anybody writes: spaces become them, by merges. */
    else if (is_new || !memmem(content.data, content.size, SPACE_MARK, 3))
        r->types[id] = TOKEN_USER_DEFINED;
    return LACE_OK;
}

/* Ids that no token has get a name that no text becomes. */
static lace_status fill_gaps(json_reader *r)
{
    for (size_t i = 0; i < r->n_tokens; i++) {
        if (r->tokens[i].data)
            continue;
        char name[32];
        int n = snprintf(name, sizeof name, "[PAD%zu]", i);
        char *copy = arena_strndup(r->memory, name, (size_t)n);
        if (!copy)
            return error_nomem(r->err, "the vocabulary");
        r->tokens[i] = (text){copy, (size_t)n};
        r->types[i] = TOKEN_UNUSED;
    }
    return LACE_OK;
}

/* ---- All together ---------------------------------------------------------------------------- */

static lace_status read_model(json_reader *r, const json_t *root)
{
    const json_t *model = json_get(root, "model"), *added = json_get(root, "added_tokens");
    if (!json_is_object(model))
        return json_fail(r, "model", "is %s, expected an object", json_kind(model));
    if (added && !json_is_array(added))
        return json_fail(r, "added_tokens", "is %s, expected an array", json_kind(added));
    text name = {NULL, 0};
    TRY(json_get_text(r, model, "model", "type", &name));
    const struct model_type *type = find_model(model, name);
    if (!type)
        return json_refuse(r, "model", "type", json_get(model, "type"));
    *r->v = vocab_default(type->kind);
    const json_t *tokens = json_get(model, "vocab");
    bool is_scored = type->kind == VOCAB_UNIGRAM;
    if (is_scored ? !json_is_array(tokens) : !json_is_object(tokens))
        return json_fail(r, "model.vocab", "is %s, expected %s", json_kind(tokens),
                         is_scored ? "an array" : "an object");
    TRY(count_tokens(r, tokens, added));
    TRY(is_scored ? read_scored(r, tokens) : read_object(r, tokens));
    TRY(type->read(r, model));
    for (size_t i = 0; i < json_array_size(added); i++)
        TRY(read_added_token(r, json_array_get(added, i)));
    return type->kind == VOCAB_WORDPIECE ? mark_words(r) : LACE_OK;
}

static lace_status read_all(json_reader *r, const json_t *root)
{
    if (!json_is_object(root))
        return json_fail(r, "the file", "is %s, expected an object", json_kind(root));
    TRY(read_model(r, root));
    TRY(rules_read_normalizer(r, json_get(root, "normalizer")));
    TRY(rules_read_pre_tokenizer(r, json_get(root, "pre_tokenizer")));
    TRY(rules_read_post_processor(r, json_get(root, "post_processor")));
    TRY(fill_gaps(r));
    r->v->tokens = r->tokens;
    r->v->n_tokens = r->n_tokens;
    r->v->types = r->types;
    r->v->flags = r->flags;
    r->v->scores = r->scores;
    return LACE_OK;
}

lace_status tokenizer_json_read(const json_t *root, arena *memory, hf_vocab *out, lace_error *err)
{
    json_reader *r = arena_alloc(memory, 1, sizeof *r);
    *out = (hf_vocab){.first = -1, .last = -1, .chat_template = {"", 0}};
    out->v = vocab_default(VOCAB_BPE);
    if (!r)
        return error_nomem(err, "the vocabulary");
    r->memory = memory;
    r->err = err;
    r->out = out;
    r->v = &out->v;
    map_init(&r->ids);
    lace_status status = read_all(r, root);
    map_deinit(&r->ids);
    return status;
}
