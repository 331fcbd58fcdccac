/* Decoding: tokens become whole characters, whatever the tokens are. */
#include <string.h>

#include "base/arena.h"
#include "base/utf8.h"
#include "tap.h"
#include "tiny_vocab.h"

static tokenizer *create_tiny(tiny_vocab_kind kind)
{
    arena memory;
    arena_init(&memory, 1 << 20);
    vocab v = tiny_vocab(kind, &memory);
    tokenizer *t;
    CHECK(tokenizer_create(&v, &t, NULL) == LACE_OK);
    arena_deinit(&memory);
    return t;
}

static void streams_never_split_a_character(void)
{
    tokenizer *t = create_tiny(TINY_BYTE_BPE);
    const char *input = "a\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80.";
    decoder *d;
    CHECK(decoder_create(t, false, &d, NULL) == LACE_OK);
    /* One token for each byte: every character is split in every place. */
    char out[32];
    size_t n = 0;
    for (const char *c = input; *c; c++) {
        text piece;
        CHECK(decoder_push(d, TINY_N_SPECIAL + (unsigned char)*c, &piece, NULL) == LACE_OK);
        CHECK(utf8_is_valid(piece.data, piece.size));
        memcpy(out + n, piece.data, piece.size);
        n += piece.size;
    }
    text rest;
    CHECK(decoder_flush(d, &rest, NULL) == LACE_OK && rest.size == 0);
    CHECK(n == strlen(input) && memcmp(out, input, n) == 0);
    decoder_free(d);
    tokenizer_free(t);
}

static void check_stream(decoder *d, const char *bytes, const char *pushed, const char *flushed)
{
    char out[64] = "";
    text piece;
    for (const char *c = bytes; *c; c++) {
        CHECK(decoder_push(d, TINY_N_SPECIAL + (unsigned char)*c, &piece, NULL) == LACE_OK);
        strncat(out, piece.data, piece.size);
    }
    CHECK(strcmp(out, pushed) == 0);
    CHECK(decoder_flush(d, &piece, NULL) == LACE_OK);
    CHECK(text_is(piece, flushed));
}

static void incomplete_characters_become_the_replacement_character(void)
{
    tokenizer *t = create_tiny(TINY_BYTE_BPE);
    decoder *d;
    CHECK(decoder_create(t, false, &d, NULL) == LACE_OK);
    check_stream(d, "a\xF0\x9F\x98", "a", "\xEF\xBF\xBD");
    check_stream(d, "b\xC3", "b", "\xEF\xBF\xBD"); /* after a flush it starts anew */
    check_stream(d,
                 "\xC3"
                 "b\xFF",
                 "\xEF\xBF\xBD"
                 "b\xEF\xBF\xBD",
                 "");
    check_stream(d, "\xF0\x9F\xE4\xBD\xA0", "\xEF\xBF\xBD\xE4\xBD\xA0", "");
    decoder_free(d);
    tokenizer_free(t);
}

static void control_tokens_print_nothing_unless_shown(void)
{
    tokenizer *t = create_tiny(TINY_SPM);
    for (int is_shown = 0; is_shown < 2; is_shown++) {
        decoder *d;
        text piece;
        CHECK(decoder_create(t, is_shown, &d, NULL) == LACE_OK);
        CHECK(decoder_push(d, TINY_IM_END, &piece, NULL) == LACE_OK);
        CHECK(text_is(piece, is_shown ? "<|im_end|>" : ""));
        CHECK(decoder_push(d, TINY_TOOL, &piece, NULL) == LACE_OK && text_is(piece, "[TOOL]"));
        CHECK(decoder_push(d, 100000, &piece, NULL) == LACE_OK && piece.size == 0);
        CHECK(decoder_push(d, -1, &piece, NULL) == LACE_OK && piece.size == 0);
        decoder_free(d);
    }
    tokenizer_free(t);
}

int main(void)
{
    CASE(streams_never_split_a_character);
    CASE(incomplete_characters_become_the_replacement_character);
    CASE(control_tokens_print_nothing_unless_shown);
    return tap_end();
}
