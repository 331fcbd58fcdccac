/*
 * SentencePiece BPE, as Llama's first models use it: characters are merged into the token with the
 * best score as long as two neighbours form one; what is left over is written in byte tokens.
 *
 * There are no words in this scheme. But if no token has a space behind another character, merges
 * cannot cross such a place, and cutting there changes nothing but the time: 800 KB of a book
 * take 8 times less.
 */
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/tokenizer_impl.h"

typedef struct spm_context {
    const tokenizer *t;
    const char *text;
} spm_context;

/* Ranks in the opposite order of scores: a float's bits, made to sort as an integer. */
static uint32_t rank_of_score(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 is 0 */
    memcpy(&bits, &score, sizeof bits);
    return ~(bits & 0x80000000u ? ~bits : bits | 0x80000000u);
}

static bool find_piece(const void *context, const symbol *left, const symbol *right, uint32_t *rank,
                       int32_t *id)
{
    const spm_context *c = context;
    size_t n = (size_t)left->n_bytes + right->n_bytes;
    if (n > c->t->max_token_bytes)
        return false;
    *id = tokenizer_find(c->t, (text){c->text + left->start, n});
    if (*id < 0)
        return false;
    *rank = rank_of_score(c->t->scores[*id]);
    return true;
}

/* The text with its prefix, and U+2581 as the space that it stands for. */
static lace_status prepare(encoding *e, text input)
{
    buf_clear(&e->text);
    if (encoding_wants_prefix(e, input))
        TRY(buf_append(&e->text, " ", 1));
    TRY(buf_append(&e->text, input.data, input.size));
    e->text.size = normalize_spaces((text){e->text.data, e->text.size}, e->text.data);
    return LACE_OK;
}

void spm_init(tokenizer *t)
{
    for (size_t i = 0; i < t->n_tokens && !t->has_inner_spaces; i++) {
        text b = t->bytes[i];
        if (tokenizer_find(t, b) < 0)
            continue; /* text does not become it */
        for (size_t k = 1; k < b.size; k++)
            t->has_inner_spaces = t->has_inner_spaces || (b.data[k] == ' ' && b.data[k - 1] != ' ');
    }
}

static lace_status encode_piece(encoding *e, text piece)
{
    TRY(merger_reset(&e->merger, piece.size));
    for (size_t i = 0; i < piece.size;) {
        uint32_t code;
        size_t n = (size_t)utf8_decode(piece.data + i, piece.size - i, &code);
        merger_add(&e->merger, tokenizer_find(e->t, (text){piece.data + i, n}), i, n);
        i += n;
    }
    TRY(merger_run(&e->merger, find_piece, &(spm_context){e->t, piece.data}));
    for (int32_t i = 0; i >= 0; i = e->merger.symbols[i].next) {
        const symbol *s = &e->merger.symbols[i];
        if (s->id >= 0)
            TRY(token_list_add(e->out, s->id));
        else
            TRY(encoding_add_bytes(e, (text){piece.data + s->start, s->n_bytes}));
    }
    return LACE_OK;
}

static lace_status encode(encoding *e, text input)
{
    TRY(prepare(e, input));
    text prepared = {e->text.data, e->text.size};
    memo_reset(&e->memo, prepared.size);
    for (size_t begin = 0, end = 1; begin < prepared.size; end++) {
        bool is_end =
            end == prepared.size ||
            (!e->t->has_inner_spaces && prepared.data[end] == ' ' && prepared.data[end - 1] != ' ');
        if (!is_end)
            continue;
        TRY(encoding_add_word(e, prepared, begin, end, encode_piece));
        begin = end;
    }
    return LACE_OK;
}

lace_status spm_encode(encoding *e, text input, lace_error *err)
{
    return encode(e, input) == LACE_OK ? LACE_OK : error_nomem(err, "the tokens of a text");
}
