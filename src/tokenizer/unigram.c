/*
 * SentencePiece unigram: the cut of a text whose tokens have the highest sum of scores, found by
 * Viterbi's algorithm from left to right.
 *
 * Before that, the text is rewritten by the vocabulary's own table (the "precompiled charsmap"): a
 * double-array trie in the layout of Darts-clone, whose values are offsets of replacements:
 *
 *     u32 n_bytes of the trie | u32 units[] | replacements, each ended by NUL
 *
 *     unit: bits 0-7 label, 8 has a leaf, 9 offset is in units of 256, 10-30 offset; bit 31 a value
 */
#include <float.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer_impl.h"

static const float UNKNOWN_PENALTY = 10.0f; /* below the worst score; SentencePiece's own */

/*
 * Bytes that the table replaces at once, and what by. Unicode's own forms need 33 at most; a table
 * could otherwise lead around in circles to the end of the text, from every place of it.
 */
enum { MAX_REPLACED = 256, MAX_REPLACEMENT = 1024 };

/* ---- Preparing ------------------------------------------------------------------------------- */

static lace_status read_charsmap(tokenizer *t, span bytes, lace_error *err)
{
    if (bytes.size == 0)
        return LACE_OK;
    size_t trie_bytes = bytes.size < 4 ? SIZE_MAX : load_u32(bytes.data);
    if (trie_bytes > bytes.size - 4 || trie_bytes % 4 != 0 || trie_bytes == bytes.size - 4 ||
        bytes.data[bytes.size - 1] != 0)
        return error_set(err, LACE_E_VOCAB,
                         "precompiled_charsmap: %zu bytes do not hold a trie and its replacements",
                         bytes.size);
    size_t texts_bytes = bytes.size - 4 - trie_bytes;
    for (size_t i = 4 + trie_bytes, n = 0; i < bytes.size; i++) {
        n = bytes.data[i] ? n + 1 : 0;
        if (n > MAX_REPLACEMENT)
            return error_set(err, LACE_E_VOCAB,
                             "precompiled_charsmap: has a replacement of more than %d bytes",
                             MAX_REPLACEMENT);
    }
    t->n_charsmap = trie_bytes / 4;
    t->charsmap = arena_alloc(&t->memory, t->n_charsmap, sizeof *t->charsmap);
    char *texts = arena_strndup(&t->memory, (const char *)bytes.data + 4 + trie_bytes, texts_bytes);
    if (!t->charsmap || !texts)
        return error_nomem(err, "the charsmap");
    for (size_t i = 0; i < t->n_charsmap; i++)
        t->charsmap[i] = load_u32(bytes.data + 4 + 4 * i);
    t->charsmap_texts = (text){texts, texts_bytes};
    return LACE_OK;
}

lace_status unigram_init(tokenizer *t, const vocab *v, lace_error *err)
{
    float lowest = FLT_MAX;
    for (size_t i = 0; i < t->n_tokens; i++)
        if (t->types[i] == TOKEN_NORMAL && t->scores[i] < lowest)
            lowest = t->scores[i];
    t->unknown_score = (lowest == FLT_MAX ? 0 : lowest) - UNKNOWN_PENALTY;
    return read_charsmap(t, v->precompiled_charsmap, err);
}

/* ---- Normalizing ----------------------------------------------------------------------------- */

static uint32_t unit_offset(uint32_t unit)
{
    return (unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* The longest start of a text that the table replaces: its length, or 0. */
static size_t find_replacement(const tokenizer *t, text input, text *out)
{
    size_t length = 0;
    if (t->n_charsmap == 0)
        return 0;
    uint32_t at = unit_offset(t->charsmap[0]);
    for (size_t i = 0; i < input.size && i < MAX_REPLACED; i++) {
        unsigned char c = (unsigned char)input.data[i];
        at ^= c;
        if (c == 0 || at >= t->n_charsmap || (t->charsmap[at] & (1u << 31 | 0xFF)) != c)
            break;
        uint32_t unit = t->charsmap[at];
        at ^= unit_offset(unit);
        if (at >= t->n_charsmap)
            break;
        uint32_t value = t->charsmap[at] & ~(1u << 31);
        if ((unit >> 8 & 1) && value < t->charsmap_texts.size) {
            *out = text_of(t->charsmap_texts.data + value); /* the last byte is NUL */
            length = i + 1;
        }
    }
    return length;
}

/* Spaces as SentencePiece has them: added at the front or the back, runs made one. */
typedef struct space_rules {
    bool prepend, append, merge;
    bool in_word, has_prefix;
} space_rules;

static lace_status append_normalized(buf *out, text piece, space_rules *s)
{
    for (size_t i = 0; i < piece.size; i++) {
        if (piece.data[i] == ' ') {
            s->in_word = false;
            if (!s->merge)
                TRY(buf_append(out, " ", 1));
            continue;
        }
        if (!s->in_word && (s->merge || (s->prepend && !s->has_prefix))) {
            TRY(buf_append(out, " ", 1));
            s->has_prefix = true;
        }
        s->in_word = true;
        TRY(buf_append(out, piece.data + i, 1));
    }
    return LACE_OK;
}

static lace_status normalize(encoding *e, text input)
{
    const vocab *rules = &e->t->rules;
    bool is_suffix = rules->treat_whitespace_as_suffix;
    space_rules s = {
        .prepend = encoding_wants_prefix(e, input) && !is_suffix,
        .append = rules->add_space_prefix && is_suffix,
        .merge = rules->remove_extra_whitespaces,
    };
    buf_clear(&e->text);
    for (size_t i = 0; i < input.size;) {
        text piece = {input.data + i, input.size - i};
        text replacement;
        size_t n = find_replacement(e->t, piece, &replacement);
        if (n > 0) {
            piece = replacement;
        } else {
            uint32_t code;
            n = piece.size = (size_t)utf8_decode(piece.data, piece.size, &code);
            if (code == 0x2581)
                piece = text_of(" ");
        }
        TRY(append_normalized(&e->text, piece, &s));
        i += n;
    }
    return s.append ? buf_append(&e->text, " ", 1) : LACE_OK;
}

/* ---- Viterbi --------------------------------------------------------------------------------- */

/* The best cut of the text up to some byte. */
typedef struct best_cut {
    double score;
    int32_t id;     /* of the last token; -1: unknown */
    uint32_t start; /* where it begins */
} best_cut;

static void improve(best_cut *cut, double score, int32_t id, size_t start)
{
    if (score > cut->score)
        *cut = (best_cut){score, id, (uint32_t)start};
}

/* The best cut up to the end of the character at `at`: by a token that ends there, or unknown. */
static size_t extend(const tokenizer *t, best_cut *cuts, text input, size_t at, uint32_t *state)
{
    const scan_index *s = &t->pieces;
    uint32_t code;
    size_t end = at + (size_t)utf8_decode(input.data + at, input.size - at, &code);
    bool has_character = false;
    for (size_t i = at; i < end; i++)
        *state = scan_next(s, *state, (unsigned char)input.data[i]);
    /* Longest first. A cut inside of a character was never reached: no score improves on it. */
    for (uint32_t m = scan_longest(s, *state); m; m = s->shorter[m]) {
        int32_t id = s->ids[m];
        size_t begin = end - t->bytes[id].size;
        double score = t->types[id] == TOKEN_USER_DEFINED ? 0 : t->scores[id];
        has_character = has_character || begin == at;
        improve(&cuts[end], cuts[begin].score + score, id, begin);
    }
    if (!has_character)
        improve(&cuts[end], cuts[at].score + t->unknown_score, -1, at);
    return end;
}

/* Walk the best cut back from the end, writing tokens; they are turned around afterwards. */
static lace_status emit(encoding *e, const best_cut *cuts, text input)
{
    const tokenizer *t = e->t;
    size_t n_before = e->out->size;
    bool after_unknown = false;
    for (size_t end = input.size; end > 0; end = cuts[end].start) {
        bool is_unknown = cuts[end].id < 0;
        size_t n = e->out->size;
        if (!is_unknown)
            TRY(token_list_add(e->out, cuts[end].id));
        else if (t->byte_ids[0] >= 0 || !after_unknown) /* one for a run, if it is not in bytes */
            TRY(encoding_add_bytes(e, (text){input.data + cuts[end].start, end - cuts[end].start}));
        for (size_t i = n, k = e->out->size; i + 1 < k; i++) { /* bytes are in order */
            lace_token swap = e->out->data[i];
            e->out->data[i] = e->out->data[--k];
            e->out->data[k] = swap;
        }
        after_unknown = is_unknown;
    }
    for (size_t i = n_before, k = e->out->size; i + 1 < k; i++) {
        lace_token swap = e->out->data[i];
        e->out->data[i] = e->out->data[--k];
        e->out->data[k] = swap;
    }
    return LACE_OK;
}

lace_status unigram_encode(encoding *e, text input, lace_error *err)
{
    lace_status status = normalize(e, input);
    if (status == LACE_E_LIMIT)
        return error_set(err, status, "the normalized text is too long");
    if (status != LACE_OK)
        return error_nomem(err, "the tokens of a text");
    input = (text){e->text.data, e->text.size};
    if (input.size == 0)
        return LACE_OK;
    best_cut *cuts = mem_calloc(input.size + 1, sizeof *cuts);
    if (!cuts)
        return error_nomem(err, "the tokens of a text");
    for (size_t i = 1; i <= input.size; i++)
        cuts[i].score = -DBL_MAX;
    uint32_t state = 0;
    for (size_t at = 0; at < input.size;)
        at = extend(e->t, cuts, input, at, &state);
    status = emit(e, cuts, input);
    mem_free(cuts);
    return status == LACE_OK ? LACE_OK : error_nomem(err, "the tokens of a text");
}
