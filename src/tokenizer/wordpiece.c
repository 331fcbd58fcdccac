/*
 * WordPiece, the tokenizer of BERT: text is cut into words and signs, and each word into the
 * longest tokens from the left. A word that cannot be cut so is unknown as a whole.
 */
#include <utf8proc.h>

#include "base/utf8.h"
#include "tokenizer/tokenizer_impl.h"

enum { MAX_WORD_CHARACTERS = 100 }; /* BERT's own limit: longer words are unknown */

/* The word being collected, in e->text after a space that marks its beginning. */
typedef struct word {
    encoding *e;
    size_t n_characters;
} word;

static bool is_ideograph(uint32_t code)
{
    /* The blocks that BERT names; the gap before U+2B920 is its own. */
    return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
           (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B81F) ||
           (code >= 0x2B920 && code <= 0x2CEAF) || (code >= 0xF900 && code <= 0xFAFF) ||
           (code >= 0x2F800 && code <= 0x2FA1F);
}

static lace_status word_add(word *w, uint32_t code)
{
    if (w->n_characters++ >= MAX_WORD_CHARACTERS)
        return LACE_OK;
    char bytes[5] = " ";
    if (w->n_characters == 1)
        TRY(buf_append(&w->e->text, bytes, 1));
    int n = utf8_encode(code, bytes);
    return buf_append(&w->e->text, bytes, (size_t)n);
}

/* The longest token at the start of a text; its length, or 0. */
static size_t longest_token(const tokenizer *t, text input, int32_t *id)
{
    size_t length = 0;
    uint32_t state = 0;
    for (size_t i = 0; i < input.size; i++) {
        state = scan_child(&t->pieces, state, (unsigned char)input.data[i]);
        if (state == 0)
            break;
        if (t->pieces.ids[state] >= 0) {
            *id = t->pieces.ids[state];
            length = i + 1;
        }
    }
    return length;
}

static lace_status word_end(word *w)
{
    encoding *e = w->e;
    if (w->n_characters == 0)
        return LACE_OK;
    size_t n_before = e->out->size;
    bool is_known = w->n_characters <= MAX_WORD_CHARACTERS;
    for (size_t at = 0; is_known && at < e->text.size;) {
        int32_t id = -1;
        size_t n = longest_token(e->t, (text){e->text.data + at, e->text.size - at}, &id);
        is_known = n > 0;
        if (is_known)
            TRY(token_list_add(e->out, id));
        at += n;
    }
    if (!is_known) {
        e->out->size = n_before;
        if (e->t->rules.unk >= 0)
            TRY(token_list_add(e->out, e->t->rules.unk));
    }
    buf_clear(&e->text);
    w->n_characters = 0;
    return LACE_OK;
}

static lace_status add_code(word *w, uint32_t code)
{
    const vocab *rules = &w->e->t->rules;
    if (code_is_space(code))
        return word_end(w);
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
    bool is_other = c == UTF8PROC_CATEGORY_CN || c >= UTF8PROC_CATEGORY_CC;
    if (is_other || code == UTF8_REPLACEMENT)
        return LACE_OK;
    if (rules->strip_accents && c == UTF8PROC_CATEGORY_MN)
        return LACE_OK;
    bool is_punctuation = c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
    bool is_symbol = c >= UTF8PROC_CATEGORY_SM && c <= UTF8PROC_CATEGORY_SO;
    if (rules->lowercase)
        code = (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
    if (!is_punctuation && !(is_symbol && code < 0x7F) && !is_ideograph(code))
        return word_add(w, code);
    TRY(word_end(w));
    TRY(word_add(w, code));
    return word_end(w);
}

static lace_status encode(encoding *e, text input)
{
    word w = {.e = e};
    buf_clear(&e->text);
    for (size_t i = 0; i < input.size;) {
        uint32_t code;
        i += (size_t)utf8_decode(input.data + i, input.size - i, &code);
        utf8proc_int32_t parts[8];
        utf8proc_ssize_t n = 0;
        /* Accents fall away one by one, so their order (the rest of NFD) does not matter. */
        if (e->t->rules.strip_accents && code >= 0x80)
            n = utf8proc_decompose_char((utf8proc_int32_t)code, parts, 8, UTF8PROC_DECOMPOSE, NULL);
        if (n < 1 || n > 8) {
            TRY(add_code(&w, code));
            continue;
        }
        for (utf8proc_ssize_t k = 0; k < n; k++)
            TRY(add_code(&w, (uint32_t)parts[k]));
    }
    return word_end(&w);
}

lace_status wordpiece_encode(encoding *e, text input, lace_error *err)
{
    return encode(e, input) == LACE_OK ? LACE_OK : error_nomem(err, "the tokens of a text");
}
