/*
 * Byte-pair encoding with ranked merges.
 *
 * In a byte-level vocabulary each byte of a token is written as one of 256 printable characters, a
 * convention of GPT-2. Tokens and merges are brought back to bytes when the vocabulary is read, so
 * encoding works on bytes and pairs of ids.
 */
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer_impl.h"

/* ---- GPT-2's characters ---------------------------------------------------------------------- */

static bool is_own_character(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/*
 * The byte that a character stands for, or -1. Printable bytes of Latin-1 are written as
 * themselves, the other 68 in their order as U+0100 and on: 0-0x20, 0x7F-0xA0, 0xAD.
 */
static int byte_of_code(uint32_t code)
{
    if (code < 0x100)
        return is_own_character(code) ? (int)code : -1;
    uint32_t k = code - 0x100;
    if (k < 0x21)
        return (int)k;
    if (k < 0x43)
        return (int)(k - 0x21 + 0x7F);
    return k == 0x43 ? 0xAD : -1;
}

bool bpe_decode_text(text encoded, char *out, size_t *n_out)
{
    size_t n = 0;
    for (size_t i = 0; i < encoded.size;) {
        uint32_t code;
        i += (size_t)utf8_decode(encoded.data + i, encoded.size - i, &code);
        int byte = byte_of_code(code);
        if (byte < 0)
            return false;
        out[n++] = (char)byte;
    }
    *n_out = n;
    return true;
}

/* ---- Merges ---------------------------------------------------------------------------------- */

static merge_rule *rule_slot(const tokenizer *t, int32_t left, int32_t right)
{
    int32_t pair[2] = {left, right};
    size_t mask = t->n_merge_slots - 1;
    for (size_t i = hash_bytes(pair, sizeof pair) & mask;; i = (i + 1) & mask) {
        merge_rule *r = &t->merges[i];
        if (r->rank == UINT32_MAX || (r->left == left && r->right == right))
            return r;
    }
}

/* The symbol of a text: a token, or one that exists in merges only. */
static lace_status symbol_of(tokenizer *t, text bytes, int32_t *out)
{
    *out = map_find(&t->ids, bytes);
    if (*out >= 0)
        return LACE_OK;
    char *copy = arena_strndup(&t->memory, bytes.data, bytes.size);
    if (!copy)
        return LACE_E_NOMEM;
    *out = (int32_t)(t->n_tokens + t->n_symbols);
    t->symbols[t->n_symbols++] = (text){copy, bytes.size};
    return map_add(&t->ids, (text){copy, bytes.size}, *out);
}

/* Where the right half begins: behind the first blank that is not the first character; or 0. */
static size_t right_half(text merge)
{
    for (size_t i = 1; i + 1 < merge.size; i++)
        if (merge.data[i] == ' ')
            return i + 1;
    return 0;
}

/* One half of a merge as bytes; false if that cannot be. */
static bool decode_half(const tokenizer *t, text half, char *out, size_t *n_out)
{
    if (t->rules.is_byte_level)
        return bpe_decode_text(half, out, n_out);
    *n_out = normalize_spaces(half, out);
    return true;
}

static lace_status add_merge(tokenizer *t, text merge, size_t rank, buf *scratch, lace_error *err)
{
    size_t right = right_half(merge), n_left, n_right;
    buf_clear(scratch);
    if (right && buf_reserve(scratch, merge.size) != LACE_OK)
        return error_nomem(err, "the merges");
    if (!right || !decode_half(t, (text){merge.data, right - 1}, scratch->data, &n_left) ||
        !decode_half(t, (text){merge.data + right, merge.size - right}, scratch->data + n_left,
                     &n_right))
        return error_set(err, LACE_E_VOCAB,
                         "merges[%zu]: \"%.*s\", expected two tokens with a space between them",
                         rank, text_width(merge), merge.data);
    int32_t left_id, right_id, id;
    if (symbol_of(t, (text){scratch->data, n_left}, &left_id) != LACE_OK ||
        symbol_of(t, (text){scratch->data + n_left, n_right}, &right_id) != LACE_OK ||
        symbol_of(t, (text){scratch->data, n_left + n_right}, &id) != LACE_OK)
        return error_nomem(err, "the merges");
    merge_rule *r = rule_slot(t, left_id, right_id);
    if (r->rank == UINT32_MAX)
        *r = (merge_rule){left_id, right_id, id, (uint32_t)rank};
    return LACE_OK;
}

static lace_status add_merges(tokenizer *t, const vocab *v, lace_error *err)
{
    if (v->n_merges > INT32_MAX / 4)
        return error_set(err, LACE_E_VOCAB, "merges: %zu, which is too many", v->n_merges);
    size_t n_slots = 16;
    while (n_slots / 2 < v->n_merges)
        n_slots *= 2;
    t->merges = arena_alloc(&t->memory, n_slots, sizeof *t->merges);
    /* A merge names three texts, none of which needs to be a token. */
    t->symbols = arena_alloc(&t->memory, 3 * v->n_merges, sizeof *t->symbols);
    if (!t->merges || !t->symbols)
        return error_nomem(err, "the merges");
    for (size_t i = 0; i < n_slots; i++)
        t->merges[i].rank = UINT32_MAX;
    t->n_merge_slots = n_slots;
    buf scratch;
    buf_init(&scratch, SIZE_MAX / 2);
    lace_status status = LACE_OK;
    for (size_t i = 0; i < v->n_merges && status == LACE_OK; i++)
        status = add_merge(t, v->merges[i], i, &scratch, err);
    buf_deinit(&scratch);
    return status;
}

/* ---- Words ----------------------------------------------------------------------------------- */

static lace_status create_splitter(tokenizer *t, const vocab *v, lace_error *err)
{
    if (v->n_regexes > 0)
        return splitter_create(v->regexes, v->n_regexes, &t->splitter, err);
    const pre_tokenizer *pre = pre_tokenizer_find(v->pre);
    if (!pre)
        return error_set(err, LACE_E_VOCAB, "unknown pre-tokenizer \"%.*s\"", text_width(v->pre),
                         v->pre.data);
    text regexes[8];
    size_t n = 0;
    while (n < sizeof regexes / sizeof *regexes && pre->regexes[n]) {
        regexes[n] = text_of(pre->regexes[n]);
        n++;
    }
    return splitter_create(regexes, n, &t->splitter, err);
}

lace_status bpe_init(tokenizer *t, const vocab *v, lace_error *err)
{
    if (t->rules.is_byte_level)
        for (unsigned byte = 0; byte < 256; byte++) {
            char c = (char)byte;
            t->byte_ids[byte] = tokenizer_find(t, (text){&c, 1});
        }
    TRY(add_merges(t, v, err));
    return create_splitter(t, v, err);
}

static bool find_merge(const void *context, const symbol *left, const symbol *right, uint32_t *rank,
                       int32_t *id)
{
    const tokenizer *t = context;
    if (left->id < 0 || right->id < 0)
        return false;
    const merge_rule *r = rule_slot(t, left->id, right->id);
    *rank = r->rank;
    *id = r->id;
    return r->rank != UINT32_MAX;
}

static void add_symbols(merger *m, const tokenizer *t, text word)
{
    for (size_t i = 0; i < word.size;) {
        if (t->rules.is_byte_level) {
            merger_add(m, t->byte_ids[(unsigned char)word.data[i]], i, 1);
            i++;
        } else {
            uint32_t code;
            size_t n = (size_t)utf8_decode(word.data + i, word.size - i, &code);
            merger_add(m, map_find(&t->ids, (text){word.data + i, n}), i, n);
            i += n;
        }
    }
}

static lace_status encode_word(encoding *e, text word)
{
    const tokenizer *t = e->t;
    /* Files that name this pre-tokenizer have tokens of newlines that no merges lead to. */
    bool is_newlines = !t->rules.is_byte_level && t->rules.n_regexes == 0 && word.data[0] == '\n';
    if (t->rules.ignore_merges || is_newlines) {
        int32_t id = tokenizer_find(t, word);
        if (id >= 0)
            return token_list_add(e->out, id);
    }
    TRY(merger_reset(&e->merger, word.size));
    add_symbols(&e->merger, t, word);
    TRY(merger_run(&e->merger, find_merge, t));
    for (int32_t i = 0; i >= 0; i = e->merger.symbols[i].next) {
        const symbol *s = &e->merger.symbols[i];
        if (s->id >= 0 && (size_t)s->id < t->n_tokens)
            TRY(token_list_add(e->out, s->id));
        else
            TRY(encoding_add_bytes(e, (text){word.data + s->start, s->n_bytes}));
    }
    return LACE_OK;
}

lace_status bpe_encode(encoding *e, text input, lace_error *err)
{
    bool has_prefix = encoding_wants_prefix(e, input);
    if (has_prefix || !e->t->rules.is_byte_level) {
        buf_clear(&e->text);
        if ((has_prefix && buf_append(&e->text, " ", 1) != LACE_OK) ||
            buf_append(&e->text, input.data, input.size) != LACE_OK)
            return error_nomem(err, "a text");
        input = (text){e->text.data, e->text.size};
    }
    if (!e->t->rules.is_byte_level)
        input.size = normalize_spaces(input, e->text.data);
    TRY(splitter_run(e->t->splitter, &e->split, input, err));
    memo_reset(&e->memo, input.size);
    size_t begin = 0;
    for (size_t i = 0; i < e->split.n_ends; i++) {
        size_t end = e->split.ends[i];
        if (encoding_add_word(e, input, begin, end, encode_word) != LACE_OK)
            return error_nomem(err, "the tokens of a text");
        begin = end;
    }
    return LACE_OK;
}
