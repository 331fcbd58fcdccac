/*
 * Fuzzing tokenizers: the first byte picks a small vocabulary and the flags, the rest is text.
 * Every id must be one, decoding must give valid UTF-8, and lossless vocabularies must give back
 * the text.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "tiny_vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static tokenizer *tokenizer_of(tiny_vocab_kind kind)
{
    static tokenizer *made[TINY_N_KINDS];
    if (!made[kind]) {
        arena memory;
        arena_init(&memory, 1 << 20);
        vocab v = tiny_vocab(kind, &memory);
        if (tokenizer_create(&v, &made[kind], NULL) != LACE_OK)
            abort();
        arena_deinit(&memory);
    }
    return made[kind];
}

static void append(buf *out, text piece)
{
    if (!utf8_is_valid(piece.data, piece.size) ||
        buf_append(out, piece.data, piece.size) != LACE_OK)
        abort();
}

static void decode(const tokenizer *t, const token_list *list, buf *out)
{
    decoder *d;
    text piece;
    if (decoder_create(t, false, &d, NULL) != LACE_OK)
        abort();
    for (size_t i = 0; i < list->size; i++) {
        if (list->data[i] < 0 || (size_t)list->data[i] >= tokenizer_n_tokens(t))
            abort();
        if (decoder_push(d, list->data[i], &piece, NULL) != LACE_OK)
            abort();
        append(out, piece);
    }
    if (decoder_flush(d, &piece, NULL) != LACE_OK)
        abort();
    append(out, piece);
    decoder_free(d);
}

/* Texts that the vocabularies change on purpose: special tokens strip spaces, U+2581 is one. */
static bool is_changed(const char *s, size_t n)
{
    for (size_t i = 0; i + 3 <= n; i++)
        if (memcmp(s + i, "<L>", 3) == 0 || memcmp(s + i, "<R>", 3) == 0 ||
            memcmp(s + i, "[TO", 3) == 0 || memcmp(s + i, "cat", 3) == 0 ||
            memcmp(s + i, "\xE2\x96\x81", 3) == 0)
            return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    tiny_vocab_kind kind = data[0] % TINY_N_KINDS;
    unsigned flags = data[0] / TINY_N_KINDS % 4;
    const char *input = (const char *)data + 1;
    size_t n = size - 1;
    tokenizer *t = tokenizer_of(kind);
    token_list list = {0};
    lace_error err = {0};
    if (tokenizer_encode(t, input, n, flags, &list, &err) != LACE_OK)
        abort();
    buf out;
    buf_init(&out, SIZE_MAX / 4);
    decode(t, &list, &out);
    bool is_parsed = flags & LACE_TOKENIZE_PARSE_SPECIAL;
    if (tiny_vocab_is_lossless(kind) && !is_parsed && utf8_is_valid(input, n) &&
        !is_changed(input, n) && (out.size != n || (n && memcmp(out.data, input, n) != 0)))
        abort();
    buf_deinit(&out);
    token_list_deinit(&list);
    return 0;
}
