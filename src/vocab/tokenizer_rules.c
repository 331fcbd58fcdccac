/* The normalizer and the pre-tokenizer of a tokenizer.json. */
#include <string.h>

#include "base/base64.h"
#include "base/buf.h"
#include "base/json_read.h"
#include "vocab/tokenizer_json_impl.h"

#define SPACE_MARK "\xE2\x96\x81" /* U+2581 */

typedef lace_status (*read_fn)(json_reader *r, const json_t *object, const char *where);

/* One type of normalizer or pre-tokenizer. */
typedef struct rule {
    const char *type;
    read_fn read;
} rule;

static lace_status read_rule(json_reader *r, const json_t *object, const char *where,
                             const rule *rules, size_t n_rules)
{
    text type = {"", 0};
    if (!json_is_object(object))
        return json_fail(r, where, "is %s, expected an object", json_kind(object));
    TRY(json_get_text(r, object, where, "type", &type));
    for (size_t i = 0; i < n_rules; i++)
        if (text_is(type, rules[i].type))
            return rules[i].read(r, object, where);
    return json_refuse(r, where, "type", json_get(object, "type"));
}

/* The members of a Sequence, in their order. */
static lace_status read_sequence(json_reader *r, const json_t *object, const char *where,
                                 const char *key, read_fn read)
{
    const json_t *list = json_get(object, key);
    if (!json_is_array(list))
        return json_fail(r, where, "%s: is %s, expected an array", key, json_kind(list));
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(read(r, json_array_get(list, i), where));
    return LACE_OK;
}

/* A pattern is {"String": "..."} or {"Regex": "..."}. */
static lace_status read_pattern(json_reader *r, const json_t *object, const char *where, text *out,
                                bool *is_regex)
{
    const json_t *pattern = json_get(object, "pattern");
    *is_regex = json_get(pattern, "Regex") != NULL;
    *out = (text){NULL, 0};
    TRY(json_get_text(r, pattern, where, *is_regex ? "Regex" : "String", out));
    return out->data ? LACE_OK : json_fail(r, where, "pattern: expected String or Regex");
}

/* ---- Normalizers ----------------------------------------------------------------------------- */

static lace_status set_form(json_reader *r, const json_t *object, const char *where,
                            normal_form form)
{
    bool is_late = r->v->precompiled_charsmap.size > 0 || r->v->kind == VOCAB_WORDPIECE;
    if (r->v->form != FORM_NONE || is_late)
        return json_refuse(r, where, "type", json_get(object, "type"));
    r->v->form = form;
    return LACE_OK;
}

static lace_status read_nfc(json_reader *r, const json_t *object, const char *where)
{
    return set_form(r, object, where, FORM_NFC);
}

static lace_status read_nfd(json_reader *r, const json_t *object, const char *where)
{
    return set_form(r, object, where, FORM_NFD);
}

static lace_status read_nfkc(json_reader *r, const json_t *object, const char *where)
{
    return set_form(r, object, where, FORM_NFKC);
}

static lace_status read_nfkd(json_reader *r, const json_t *object, const char *where)
{
    return set_form(r, object, where, FORM_NFKD);
}

static lace_status read_prepend(json_reader *r, const json_t *object, const char *where)
{
    text what = {"", 0};
    TRY(json_get_text(r, object, where, "prepend", &what));
    if (!text_is(what, SPACE_MARK) || r->v->kind != VOCAB_BPE)
        return json_refuse(r, where, "prepend", json_get(object, "prepend"));
    r->v->add_space_prefix = true;
    return LACE_OK;
}

static lace_status read_replace(json_reader *r, const json_t *object, const char *where)
{
    text pattern, content = {"", 0};
    bool is_regex;
    TRY(read_pattern(r, object, where, &pattern, &is_regex));
    TRY(json_get_text(r, object, where, "content", &content));
    bool is_space = text_is(content, SPACE_MARK) || text_is(content, " ");
    if (!is_regex && text_is(pattern, " ") && text_is(content, SPACE_MARK)) {
        r->replaces_space = true;
    } else if (is_regex && text_is(pattern, " {2,}") && is_space && r->v->kind == VOCAB_UNIGRAM) {
        r->v->remove_extra_whitespaces = true;
    } else {
        return json_fail(r, where, "Replace: \"%.*s\" by \"%.*s\" is not supported",
                         text_width(pattern), pattern.data, text_width(content), content.data);
    }
    return LACE_OK;
}

/* SentencePiece's way: what is left at the end goes, as runs of spaces do. */
static lace_status read_strip(json_reader *r, const json_t *object, const char *where)
{
    bool left = false, right = false;
    TRY(json_get_bool(r, object, where, "strip_left", &left));
    TRY(json_get_bool(r, object, where, "strip_right", &right));
    if (r->v->kind != VOCAB_UNIGRAM || !right)
        return json_refuse(r, where, "type", json_get(object, "type"));
    r->v->remove_extra_whitespaces = true;
    return LACE_OK;
}

static lace_status read_bert(json_reader *r, const json_t *object, const char *where)
{
    bool cleans = true, has_ideographs = true;
    if (r->v->kind != VOCAB_WORDPIECE)
        return json_refuse(r, where, "type", json_get(object, "type"));
    TRY(json_get_bool(r, object, where, "clean_text", &cleans));
    TRY(json_get_bool(r, object, where, "handle_chinese_chars", &has_ideographs));
    if (!cleans)
        return json_refuse(r, where, "clean_text", json_get(object, "clean_text"));
    if (!has_ideographs)
        return json_refuse(r, where, "handle_chinese_chars",
                           json_get(object, "handle_chinese_chars"));
    r->v->lowercase = true;
    TRY(json_get_bool(r, object, where, "lowercase", &r->v->lowercase));
    r->v->strip_accents = r->v->lowercase;
    return json_get_bool(r, object, where, "strip_accents", &r->v->strip_accents);
}

static lace_status read_precompiled(json_reader *r, const json_t *object, const char *where)
{
    text encoded = {NULL, 0};
    if (r->v->kind != VOCAB_UNIGRAM)
        return json_refuse(r, where, "type", json_get(object, "type"));
    TRY(json_get_text(r, object, where, "precompiled_charsmap", &encoded));
    if (encoded.size == 0)
        return LACE_OK;
    uint8_t *bytes = arena_alloc(r->memory, encoded.size, 1);
    if (!bytes)
        return error_nomem(r->err, "the charsmap");
    r->v->precompiled_charsmap.data = bytes;
    if (!base64_decode(encoded, bytes, &r->v->precompiled_charsmap.size))
        return json_fail(r, where, "precompiled_charsmap: is not base64");
    return LACE_OK;
}

static lace_status read_normalizer(json_reader *r, const json_t *object, const char *where);

static lace_status read_normalizers(json_reader *r, const json_t *object, const char *where)
{
    return read_sequence(r, object, where, "normalizers", read_normalizer);
}

static lace_status read_normalizer(json_reader *r, const json_t *object, const char *where)
{
    static const rule rules[] = {
        {"Sequence", read_normalizers},
        {"NFC", read_nfc},
        {"NFD", read_nfd},
        {"NFKC", read_nfkc},
        {"NFKD", read_nfkd},
        {"Prepend", read_prepend},
        {"Replace", read_replace},
        {"BertNormalizer", read_bert},
        {"Strip", read_strip},
        {"Precompiled", read_precompiled},
    };
    return read_rule(r, object, where, rules, sizeof rules / sizeof *rules);
}

lace_status rules_read_normalizer(json_reader *r, const json_t *normalizer)
{
    if (normalizer)
        return read_normalizer(r, normalizer, "normalizer");
    if (r->v->kind == VOCAB_WORDPIECE)
        return json_fail(r, "normalizer", "is missing, expected BertNormalizer");
    return LACE_OK;
}

/* ---- Pre-tokenizers -------------------------------------------------------------------------- */

static lace_status add_regex(json_reader *r, text regex)
{
    if (r->v->n_regexes == MAX_REGEXES)
        return json_fail(r, "pre_tokenizer", "has more than %d regexes", MAX_REGEXES);
    r->regexes[r->v->n_regexes++] = regex;
    return LACE_OK;
}

/* The text in the arena, between two others, with its signs escaped if it is no regex. */
static lace_status wrap(json_reader *r, const char *before, text t, const char *after,
                        bool is_regex, text *out)
{
    buf b;
    buf_init(&b, SIZE_MAX / 2);
    lace_status status = buf_append_text(&b, before);
    for (size_t i = 0; i < t.size && status == LACE_OK; i++) {
        if (!is_regex && t.data[i] > ' ' && strchr("\\^$.|?*+()[]{}-#", t.data[i]))
            status = buf_append(&b, "\\", 1);
        if (status == LACE_OK)
            status = buf_append(&b, t.data + i, 1);
    }
    if (status == LACE_OK)
        status = buf_append_text(&b, after);
    char *copy = status == LACE_OK ? arena_strndup(r->memory, b.data ? b.data : "", b.size) : NULL;
    *out = (text){copy, b.size};
    buf_deinit(&b);
    return copy ? LACE_OK : error_nomem(r->err, "the pre-tokenizer");
}

/* Once bytes are written as characters, a regex that looks at more than digits sees other ones. */
static lace_status check_order(json_reader *r, const json_t *object, const char *where)
{
    bool is_misplaced = r->has_byte_level || r->v->kind != VOCAB_BPE;
    return is_misplaced ? json_refuse(r, where, "type", json_get(object, "type")) : LACE_OK;
}

static lace_status read_byte_level(json_reader *r, const json_t *object, const char *where)
{
    bool has_prefix = true, has_regex = true;
    TRY(check_order(r, object, where));
    TRY(json_get_bool(r, object, where, "add_prefix_space", &has_prefix));
    TRY(json_get_bool(r, object, where, "use_regex", &has_regex));
    if (has_prefix && r->v->n_regexes > 0)
        return json_refuse(r, where, "add_prefix_space", json_get(object, "add_prefix_space"));
    if (has_prefix)
        r->v->add_space_prefix = r->v->prefix_unless_space = true;
    if (has_regex)
        TRY(add_regex(r, text_of("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|"
                                 " ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+")));
    r->has_byte_level = true;
    return LACE_OK;
}

static lace_status read_split(json_reader *r, const json_t *object, const char *where)
{
    text pattern, behavior = {"", 0};
    bool is_regex, is_inverted = false;
    TRY(read_pattern(r, object, where, &pattern, &is_regex));
    TRY(json_get_text(r, object, where, "behavior", &behavior));
    TRY(json_get_bool(r, object, where, "invert", &is_inverted));
    if (!is_regex && text_is(pattern, " ") && r->replaces_space)
        return LACE_OK; /* there are no blanks any more */
    if (!text_is(pattern, "[0-9][0-9][0-9]"))
        TRY(check_order(r, object, where));
    if (pattern.size == 0)
        return json_fail(r, where, "pattern: is empty");
    /* A regex for words is given as what is not removed; it leaves nothing between them. */
    bool is_isolated =
        text_is(behavior, "Isolated") || (text_is(behavior, "Removed") && is_inverted);
    bool is_contiguous = text_is(behavior, "Contiguous") && !is_inverted;
    if (!is_isolated && !is_contiguous)
        return json_refuse(r, where, "behavior", json_get(object, "behavior"));
    if (is_contiguous)
        TRY(wrap(r, "(?:", pattern, ")+", is_regex, &pattern));
    else if (!is_regex)
        TRY(wrap(r, "", pattern, "", false, &pattern));
    return add_regex(r, pattern);
}

static lace_status read_digits(json_reader *r, const json_t *object, const char *where)
{
    bool is_single = false;
    TRY(check_order(r, object, where));
    TRY(json_get_bool(r, object, where, "individual_digits", &is_single));
    return add_regex(r, text_of(is_single ? "\\p{N}" : "\\p{N}+"));
}

static lace_status read_punctuation(json_reader *r, const json_t *object, const char *where)
{
    text behavior = text_of("Isolated");
    TRY(check_order(r, object, where));
    TRY(json_get_text(r, object, where, "behavior", &behavior));
    bool is_contiguous = text_is(behavior, "Contiguous");
    if (!is_contiguous && !text_is(behavior, "Isolated"))
        return json_refuse(r, where, "behavior", json_get(object, "behavior"));
    return add_regex(
        r, text_of(is_contiguous ? "[\\p{P}\\$\\+<=>\\^~\\|`]+" : "[\\p{P}\\$\\+<=>\\^~\\|`]"));
}

static lace_status read_metaspace(json_reader *r, const json_t *object, const char *where)
{
    text replacement = text_of(SPACE_MARK), scheme = {NULL, 0};
    bool has_prefix = true, is_split = true;
    bool is_misplaced = r->has_byte_level || r->v->kind == VOCAB_WORDPIECE;
    if (is_misplaced || r->v->n_regexes > 0 || r->v->add_space_prefix)
        return json_refuse(r, where, "type", json_get(object, "type"));
    TRY(json_get_text(r, object, where, "replacement", &replacement));
    TRY(json_get_text(r, object, where, "prepend_scheme", &scheme));
    TRY(json_get_bool(r, object, where, "add_prefix_space", &has_prefix));
    TRY(json_get_bool(r, object, where, "split", &is_split));
    if (!text_is(replacement, SPACE_MARK))
        return json_refuse(r, where, "replacement", json_get(object, "replacement"));
    if (scheme.data)
        has_prefix = !text_is(scheme, "never");
    bool is_first = scheme.data && text_is(scheme, "first");
    if (has_prefix && scheme.data && !is_first && !text_is(scheme, "always"))
        return json_refuse(r, where, "prepend_scheme", json_get(object, "prepend_scheme"));
    r->replaces_space = true;
    r->v->add_space_prefix = r->v->prefix_unless_space = has_prefix;
    r->v->prefix_first_only = is_first;
    /* Words begin with their space. Tokens of a unigram model do so, too. */
    if (is_split && r->v->kind == VOCAB_BPE)
        return add_regex(r, text_of("(?s: ?[^ ]+| )"));
    return LACE_OK;
}

static lace_status read_whitespace_split(json_reader *r, const json_t *object, const char *where)
{
    if (r->v->kind != VOCAB_UNIGRAM)
        return json_refuse(r, where, "type", json_get(object, "type"));
    r->v->remove_extra_whitespaces = true;
    return LACE_OK;
}

static lace_status read_bert_words(json_reader *r, const json_t *object, const char *where)
{
    if (r->v->kind != VOCAB_WORDPIECE)
        return json_refuse(r, where, "type", json_get(object, "type"));
    return LACE_OK;
}

static lace_status read_pre_tokenizer(json_reader *r, const json_t *object, const char *where);

static lace_status read_pre_tokenizers(json_reader *r, const json_t *object, const char *where)
{
    return read_sequence(r, object, where, "pretokenizers", read_pre_tokenizer);
}

static lace_status read_pre_tokenizer(json_reader *r, const json_t *object, const char *where)
{
    static const rule rules[] = {
        {"Sequence", read_pre_tokenizers},
        {"ByteLevel", read_byte_level},
        {"Split", read_split},
        {"Digits", read_digits},
        {"Punctuation", read_punctuation},
        {"Metaspace", read_metaspace},
        {"WhitespaceSplit", read_whitespace_split},
        {"BertPreTokenizer", read_bert_words},
    };
    return read_rule(r, object, where, rules, sizeof rules / sizeof *rules);
}

lace_status rules_read_pre_tokenizer(json_reader *r, const json_t *object)
{
    vocab *v = r->v;
    if (object)
        TRY(read_pre_tokenizer(r, object, "pre_tokenizer"));
    else if (v->kind == VOCAB_WORDPIECE)
        return json_fail(r, "pre_tokenizer", "is missing, expected BertPreTokenizer");
    v->regexes = r->regexes;
    if (v->kind == VOCAB_WORDPIECE)
        return LACE_OK;
    if (v->kind == VOCAB_BPE)
        v->is_byte_level = r->has_byte_level;
    if (r->has_byte_level &&
        (r->replaces_space || (v->add_space_prefix && !v->prefix_unless_space)))
        return json_fail(r, "normalizer", "replaces spaces, but the pre-tokenizer is ByteLevel");
    if (!r->has_byte_level && !r->replaces_space)
        return json_fail(r, "pre_tokenizer", "expected ByteLevel, or spaces replaced by U+2581");
    if (v->kind == VOCAB_BPE && v->n_regexes == 0)
        return add_regex(r, text_of("(?s:.+)"));
    return LACE_OK;
}
