/* Text to tokens: checking a vocabulary, and the way from special tokens to the kinds. */
#include "tokenizer/tokenizer.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer_impl.h"

enum { MAX_TOKENS = 1 << 24 };
static const size_t MAX_VOCAB_BYTES = (size_t)1 << 32;

vocab vocab_default(vocab_kind kind)
{
    return (vocab){
        .kind = kind,
        .bos = -1,
        .eos = -1,
        .eot = -1,
        .unk = -1,
        .sep = -1,
        .pad = -1,
        .cls = -1,
        .mask = -1,
        .is_byte_level = true,
        .lowercase = true,
        .strip_accents = true,
    };
}

/* ---- Checking -------------------------------------------------------------------------------- */

static lace_status check_ids(const vocab *v, lace_error *err)
{
    const struct {
        const char *name;
        int32_t id;
    } ids[] = {
        {"bos_token_id", v->bos},     {"eos_token_id", v->eos},       {"eot_token_id", v->eot},
        {"unknown_token_id", v->unk}, {"seperator_token_id", v->sep}, {"padding_token_id", v->pad},
        {"cls_token_id", v->cls},     {"mask_token_id", v->mask},
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i].id < -1 || (ids[i].id >= 0 && (size_t)ids[i].id >= v->n_tokens))
            return error_set(err, LACE_E_VOCAB, "%s: is %d, expected -1 or an id below %zu",
                             ids[i].name, ids[i].id, v->n_tokens);
    for (size_t i = 0; i < v->n_ends; i++)
        if (v->ends[i] < 0 || (size_t)v->ends[i] >= v->n_tokens)
            return error_set(err, LACE_E_VOCAB, "end of generation: token %d, expected below %zu",
                             v->ends[i], v->n_tokens);
    return LACE_OK;
}

static lace_status check(const vocab *v, lace_error *err)
{
    if (v->n_tokens == 0 || v->n_tokens > MAX_TOKENS)
        return error_set(err, LACE_E_VOCAB, "tokens: %zu, expected 1 to %d", v->n_tokens,
                         MAX_TOKENS);
    for (size_t i = 0; v->types && i < v->n_tokens; i++)
        if (v->types[i] < TOKEN_NORMAL || v->types[i] > TOKEN_BYTE)
            return error_set(err, LACE_E_VOCAB, "token_type[%zu]: %d, expected 1 to 6", i,
                             v->types[i]);
    if (!v->scores && (v->kind == VOCAB_SPM || v->kind == VOCAB_UNIGRAM))
        return error_set(err, LACE_E_VOCAB, "scores: are missing");
    for (size_t i = 0; v->scores && i < v->n_tokens; i++)
        if (!isfinite(v->scores[i]))
            return error_set(err, LACE_E_VOCAB, "scores[%zu]: not a finite number", i);
    return check_ids(v, err);
}

/* ---- Tables ---------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte of "<0x0A>", or -1 for any other text. */
static int parse_byte_token(text t)
{
    if (t.size != 6 || memcmp(t.data, "<0x", 3) != 0 || t.data[5] != '>')
        return -1;
    int high = hex_digit(t.data[3]), low = hex_digit(t.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/*
 * What token i stands for, written to `out` (as long as the token's text at most), and what
 * ordinary text would have to be to become it.
 */
static lace_status decode_token(tokenizer *t, size_t i, text token, char *out, text *key,
                                lace_error *err)
{
    t->bytes[i] = (text){out, token.size};
    *key = (text){NULL, 0};
    bool is_raw = t->kind == VOCAB_BPE && t->rules.is_byte_level;
    int byte;
    switch ((token_type)t->types[i]) {
    case TOKEN_BYTE:
        byte = parse_byte_token(token);
        if (byte < 0)
            return error_set(err, LACE_E_VOCAB,
                             "tokens[%zu]: \"%.*s\", expected <0x00> to <0xFF> for a byte token", i,
                             text_width(token), token.data);
        out[0] = (char)byte;
        t->bytes[i].size = 1;
        if (t->byte_ids[byte] < 0)
            t->byte_ids[byte] = (int32_t)i;
        return LACE_OK;
    case TOKEN_CONTROL:
    case TOKEN_UNKNOWN:
        memcpy(out, token.data, token.size);
        return LACE_OK;
    case TOKEN_USER_DEFINED:
        memcpy(out, token.data, token.size);
        *key = t->bytes[i];
        /* It may also be what its text stands for as GPT-2 writes bytes; mostly
         * both are the same. */
        if (is_raw) {
            char *decoded = arena_alloc(&t->memory, token.size + 1, 1);
            if (!decoded)
                return error_nomem(err, "the vocabulary");
            *key = (text){decoded, 0};
            if (!bpe_decode_text(token, decoded, &key->size))
                key->size = 0;
        }
        return LACE_OK;
    case TOKEN_NORMAL:
    case TOKEN_UNUSED:
        break;
    }
    if (is_raw && !bpe_decode_text(token, out, &t->bytes[i].size)) {
        memcpy(out, token.data, token.size); /* no text becomes it; a model may still say it */
        return LACE_OK;
    }
    if (!is_raw)
        t->bytes[i].size = normalize_spaces(token, out);
    *key = t->bytes[i];
    return LACE_OK;
}

static lace_status build_tables(tokenizer *t, const vocab *v, lace_error *err)
{
    size_t total = 0;
    for (size_t i = 0; i < v->n_tokens; i++)
        if (!mem_add(total, v->tokens[i].size + 1, &total))
            return error_nomem(err, "the vocabulary");
    char *storage = arena_alloc(&t->memory, total, 1);
    if (!storage || map_reserve(&t->ids, v->n_tokens + v->n_merges / 8) != LACE_OK)
        return error_nomem(err, "the vocabulary");
    for (size_t i = 0; i < v->n_tokens; i++) {
        text key;
        TRY(decode_token(t, i, v->tokens[i], storage, &key, err));
        storage += v->tokens[i].size + 1;
        if (key.size == 0)
            continue;
        lace_status status = map_add(&t->ids, key, (int32_t)i);
        if (status == LACE_E_NOMEM)
            return error_nomem(err, "the vocabulary");
        if (key.size > t->max_token_bytes)
            t->max_token_bytes = key.size;
    }
    return LACE_OK;
}

static lace_status copy_vocab(tokenizer *t, const vocab *v, lace_error *err)
{
    size_t n = v->n_tokens;
    t->n_tokens = n;
    t->bytes = arena_alloc(&t->memory, n, sizeof *t->bytes);
    t->types = arena_alloc(&t->memory, n, sizeof *t->types);
    t->flags = arena_alloc(&t->memory, n, sizeof *t->flags);
    t->scores = v->scores ? arena_alloc(&t->memory, n, sizeof *t->scores) : NULL;
    if (!t->bytes || !t->types || !t->flags || (v->scores && !t->scores))
        return error_nomem(err, "the vocabulary");
    for (size_t i = 0; i < n; i++) {
        t->types[i] = v->types ? (uint8_t)v->types[i] : TOKEN_NORMAL;
        t->flags[i] =
            v->flags ? v->flags[i] & (TOKEN_LSTRIP | TOKEN_RSTRIP | TOKEN_SINGLE_WORD) : 0;
    }
    if (v->scores)
        memcpy(t->scores, v->scores, n * sizeof *t->scores);
    memset(t->byte_ids, -1, sizeof t->byte_ids);
    t->kind = v->kind;
    t->rules = *v;
    t->rules.tokens = t->rules.merges = t->rules.regexes = NULL;
    t->rules.scores = NULL;
    t->rules.types = t->rules.ends = NULL;
    t->rules.flags = NULL;
    t->rules.pre = (text){NULL, 0};
    t->rules.precompiled_charsmap = (span){NULL, 0};
    return LACE_OK;
}

/* The tokens that ordinary text may become, for kinds that look for the longest or for all. */
static lace_status index_pieces(tokenizer *t, lace_error *err)
{
    scan_entry *entries = mem_calloc(t->n_tokens, sizeof *entries);
    if (!entries)
        return error_nomem(err, "the vocabulary");
    size_t n = 0;
    for (size_t i = 0; i < t->n_tokens; i++)
        if (tokenizer_find(t, t->bytes[i]) == (int32_t)i)
            entries[n++] = (scan_entry){t->bytes[i], (int32_t)i};
    lace_status status = scan_init(&t->pieces, entries, n, &t->memory);
    mem_free(entries);
    if (status == LACE_E_LIMIT)
        return error_set(
            err, LACE_E_VOCAB,
            "tokens: they are longer than %d MiB in all, or more than %d of them end alike",
            SCAN_MAX_BYTES >> 20, SCAN_MAX_NESTED);
    return status == LACE_OK ? status : error_nomem(err, "the vocabulary");
}

static lace_status init(tokenizer *t, const vocab *v, lace_error *err)
{
    TRY(check(v, err));
    TRY(copy_vocab(t, v, err));
    special_correct(t, v);
    TRY(build_tables(t, v, err));
    TRY(special_init(t, err));
    if (t->kind == VOCAB_BPE)
        return bpe_init(t, v, err);
    if (t->kind == VOCAB_SPM)
        spm_init(t);
    if (t->kind == VOCAB_UNIGRAM || t->kind == VOCAB_WORDPIECE)
        TRY(index_pieces(t, err));
    return t->kind == VOCAB_UNIGRAM ? unigram_init(t, v, err) : LACE_OK;
}

lace_status tokenizer_create(const vocab *v, tokenizer **out, lace_error *err)
{
    *out = NULL;
    tokenizer *t = mem_calloc(1, sizeof *t);
    if (!t)
        return error_nomem(err, "the tokenizer");
    arena_init(&t->memory, MAX_VOCAB_BYTES);
    map_init(&t->ids);
    lace_status status = init(t, v, err);
    return GIVE_OR_FREE(status, t, out, tokenizer_free);
}

void tokenizer_free(tokenizer *t)
{
    if (!t)
        return;
    splitter_free(t->splitter);
    map_deinit(&t->ids);
    arena_deinit(&t->memory);
    mem_free(t);
}

/* ---- Encoding -------------------------------------------------------------------------------- */

lace_status token_list_add(token_list *list, lace_token token)
{
    if (!mem_grow(&list->data, list->size, &list->capacity, sizeof *list->data, 64))
        return LACE_E_NOMEM;
    list->data[list->size++] = token;
    return LACE_OK;
}

void token_list_deinit(token_list *list)
{
    mem_free(list->data);
    *list = (token_list){0};
}

int32_t tokenizer_find(const tokenizer *t, text bytes)
{
    int32_t id = map_find(&t->ids, bytes);
    return id >= 0 && (size_t)id < t->n_tokens ? id : -1;
}

lace_status encoding_add_bytes(encoding *e, text character)
{
    const int32_t *ids = e->t->byte_ids;
    bool has_bytes = true;
    for (size_t i = 0; i < character.size; i++)
        has_bytes = has_bytes && ids[(unsigned char)character.data[i]] >= 0;
    for (size_t i = 0; has_bytes && i < character.size; i++)
        TRY(token_list_add(e->out, ids[(unsigned char)character.data[i]]));
    if (!has_bytes && e->t->rules.unk >= 0)
        TRY(token_list_add(e->out, e->t->rules.unk));
    return LACE_OK;
}

lace_status encoding_add_word(encoding *e, text input, size_t begin, size_t end, word_fn fn)
{
    text word = {input.data + begin, end - begin};
    memo_entry *entry = memo_find(&e->memo, word);
    if (entry && memo_is(entry, input, word)) {
        for (uint32_t i = 0; i < entry->n_tokens; i++)
            TRY(token_list_add(e->out, e->out->data[entry->first + i]));
        return LACE_OK;
    }
    size_t first = e->out->size;
    TRY(fn(e, word));
    if (entry && first <= UINT32_MAX)
        *entry = (memo_entry){(uint32_t)begin, (uint32_t)word.size, (uint32_t)first,
                              (uint32_t)(e->out->size - first)};
    return LACE_OK;
}

bool encoding_wants_prefix(const encoding *e, text input)
{
    const vocab *rules = &e->t->rules;
    bool is_raw = e->t->kind == VOCAB_BPE && rules->is_byte_level;
    bool has_space = input.data[0] == ' ' ||
                     (!is_raw && input.size >= 3 && memcmp(input.data, "\xE2\x96\x81", 3) == 0);
    return rules->add_space_prefix && e->after_special &&
           !(rules->prefix_unless_space && has_space) && (e->at_start || !rules->prefix_first_only);
}

static lace_status encode_ordinary(encoding *e, text input, lace_error *err)
{
    if (input.size == 0)
        return LACE_OK;
    TRY(normalize_text(e, &input, err));
    lace_status status = LACE_OK;
    switch (e->t->kind) {
    case VOCAB_BPE:
        status = bpe_encode(e, input, err);
        break;
    case VOCAB_SPM:
        status = spm_encode(e, input, err);
        break;
    case VOCAB_WORDPIECE:
        status = wordpiece_encode(e, input, err);
        break;
    case VOCAB_UNIGRAM:
        status = unigram_encode(e, input, err);
        break;
    }
    e->after_special = e->at_start = false;
    return status;
}

/* The text without the white space at its end. */
static text trim_end(text input)
{
    while (input.size > 0) {
        size_t at = input.size - 1;
        while (at > 0 && ((unsigned char)input.data[at] & 0xC0) == 0x80)
            at--;
        uint32_t code;
        utf8_decode(input.data + at, input.size - at, &code);
        if (!code_is_space(code))
            break;
        input.size = at;
    }
    return input;
}

static size_t skip_spaces(text input, size_t at)
{
    while (at < input.size) {
        uint32_t code;
        int n = utf8_decode(input.data + at, input.size - at, &code);
        if (!code_is_space(code))
            break;
        at += (size_t)n;
    }
    return at;
}

/* Find the special tokens, from left to right, and hand on what lies between them. */
static lace_status encode_text(encoding *e, text input, bool is_parsed, lace_error *err)
{
    const tokenizer *t = e->t;
    size_t begin = 0;
    if (special_scan(e, input, is_parsed) != LACE_OK)
        return error_nomem(err, "the tokens of a text");
    while (e->n_specials > 0) {
        special_place place = e->specials[--e->n_specials];
        lace_token id = place.id;
        size_t at = place.begin;
        if (at < begin)
            continue; /* inside of the one before */
        text before = {input.data + begin, at - begin};
        if (t->flags[id] & TOKEN_LSTRIP)
            before = trim_end(before);
        TRY(encode_ordinary(e, before, err));
        if (token_list_add(e->out, id) != LACE_OK)
            return error_nomem(err, "the tokens of a text");
        e->after_special = true;
        e->at_start = false;
        at += t->bytes[id].size;
        if (t->flags[id] & TOKEN_RSTRIP)
            at = skip_spaces(input, at);
        begin = at;
    }
    return encode_ordinary(e, (text){input.data + begin, input.size - begin}, err);
}

/* Copy a text with U+FFFD for what is not UTF-8. */
static lace_status repair(text input, buf *out)
{
    for (size_t i = 0; i < input.size;) {
        uint32_t code;
        char bytes[4];
        i += (size_t)utf8_decode(input.data + i, input.size - i, &code);
        TRY(buf_append(out, bytes, (size_t)utf8_encode(code, bytes)));
    }
    return LACE_OK;
}

lace_token tokenizer_first(const tokenizer *t)
{
    const vocab *rules = &t->rules;
    if (!rules->add_bos)
        return -1;
    return rules->bos >= 0 || t->kind != VOCAB_WORDPIECE ? rules->bos : rules->cls;
}

lace_token tokenizer_last(const tokenizer *t)
{
    const vocab *rules = &t->rules;
    if (rules->add_eos && rules->eos >= 0) /* files may ask for both and mean one */
        return rules->eos;
    return rules->add_sep ? rules->sep : -1;
}

static lace_status encode(encoding *e, text input, unsigned flags, lace_error *err)
{
    bool is_added = flags & LACE_TOKENIZE_ADD_SPECIAL;
    lace_token first = is_added ? tokenizer_first(e->t) : -1;
    lace_token last = is_added ? tokenizer_last(e->t) : -1;
    if (first >= 0 && token_list_add(e->out, first) != LACE_OK)
        return error_nomem(err, "the tokens of a text");
    TRY(encode_text(e, input, flags & LACE_TOKENIZE_PARSE_SPECIAL, err));
    if (last >= 0 && token_list_add(e->out, last) != LACE_OK)
        return error_nomem(err, "the tokens of a text");
    return LACE_OK;
}

/* Contents that ascend, do not overlap and lie in a text of UTF-8, whose offsets are as given. */
static lace_status check_contents(text input, const lace_range *contents, size_t n, lace_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (contents[i].end < contents[i].begin || contents[i].end > input.size ||
            (i > 0 && contents[i].begin < contents[i - 1].end))
            return error_set(err, LACE_E_ARG,
                             "tokenize: content %zu is bytes %zu to %zu of %zu; contents must "
                             "ascend and lie inside the text",
                             i, contents[i].begin, contents[i].end, input.size);
    if (n > 0 && !utf8_is_valid(input.data, input.size))
        return error_set(err, LACE_E_UTF8, "tokenize: the text is not UTF-8, which contents need");
    return LACE_OK;
}

lace_status tokenizer_encode(const tokenizer *t, const char *data, size_t n_bytes, unsigned flags,
                             token_list *out, lace_error *err)
{
    return tokenizer_encode_contents(t, (text){data, n_bytes}, NULL, 0, flags, out, err);
}

lace_status tokenizer_encode_contents(const tokenizer *t, text input, const lace_range *contents,
                                      size_t n_contents, unsigned flags, token_list *out,
                                      lace_error *err)
{
    const char *data = input.data;
    size_t n_bytes = input.size;
    TRY(check_contents(input, contents, n_contents, err));
    if (flags & ~(unsigned)(LACE_TOKENIZE_ADD_SPECIAL | LACE_TOKENIZE_PARSE_SPECIAL))
        return error_set(err, LACE_E_ARG, "tokenize: unknown flags 0x%x", flags);
    if (n_bytes > TOKENIZER_MAX_TEXT)
        return error_set(err, LACE_E_LIMIT,
                         "tokenize: the text has %zu bytes, at most %d are allowed", n_bytes,
                         TOKENIZER_MAX_TEXT);
    size_t n_before = out->size;
    encoding e = {.t = t,
                  .out = out,
                  .contents = contents,
                  .n_contents = n_contents,
                  .after_special = true,
                  .at_start = true};
    /* No normalization makes a text 16 times as long, unless its table is made to. */
    buf_init(&e.text, 16 * n_bytes + 4096);
    buf_init(&e.form, 16 * n_bytes + 4096);
    buf repaired;
    buf_init(&repaired, 3 * n_bytes);
    lace_status status = LACE_OK;
    if (!utf8_is_valid(data, n_bytes)) {
        status = repair(input, &repaired);
        input = (text){repaired.data, repaired.size};
        if (status != LACE_OK)
            error_nomem(err, "a text");
    }
    if (status == LACE_OK)
        status = encode(&e, input, flags, err);
    if (status != LACE_OK)
        out->size = n_before;
    buf_deinit(&repaired);
    buf_deinit(&e.text);
    buf_deinit(&e.form);
    merger_deinit(&e.merger);
    memo_deinit(&e.memo);
    split_scratch_deinit(&e.split);
    mem_free(e.specials);
    return status;
}

/* ---- What it knows --------------------------------------------------------------------------- */

static bool is_id(const tokenizer *t, lace_token id)
{
    return id >= 0 && (size_t)id < t->n_tokens;
}

text tokenizer_token_bytes(const tokenizer *t, lace_token id)
{
    return is_id(t, id) ? t->bytes[id] : (text){"", 0};
}

token_type tokenizer_token_type(const tokenizer *t, lace_token id)
{
    return is_id(t, id) ? (token_type)t->types[id] : TOKEN_UNUSED;
}

bool tokenizer_is_end(const tokenizer *t, lace_token id)
{
    return is_id(t, id) && (t->flags[id] & TOKEN_IS_END);
}

size_t tokenizer_n_tokens(const tokenizer *t)
{
    return t->n_tokens;
}

const char *tokenizer_kind_name(const tokenizer *t)
{
    static const char *const names[] = {
        [VOCAB_BPE] = "bpe",
        [VOCAB_SPM] = "spm",
        [VOCAB_WORDPIECE] = "wordpiece",
        [VOCAB_UNIGRAM] = "unigram",
    };
    return names[t->kind];
}

lace_token tokenizer_bos(const tokenizer *t)
{
    return t->rules.bos;
}

lace_token tokenizer_eos(const tokenizer *t)
{
    return t->rules.eos;
}
