/* Tokens to text, as a stream of whole characters. */
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer_impl.h"

struct decoder {
    const tokenizer *t;
    bool show_special;
    bool strips_space; /* encoding put a space before the first word */
    bool at_start;     /* nothing was printed yet */
    buf held;          /* bytes that do not yet complete a character: at most 3 between calls */
    buf out;           /* what the last call gave out */
};

lace_status decoder_create(const tokenizer *t, bool show_special, decoder **out, lace_error *err)
{
    *out = NULL;
    decoder *d = mem_calloc(1, sizeof *d);
    if (!d)
        return error_nomem(err, "the decoder");
    const vocab *rules = &t->rules;
    bool is_unigram = t->kind == VOCAB_UNIGRAM;
    bool is_raw = t->kind == VOCAB_BPE && rules->is_byte_level; /* spaces are as the model says */
    d->t = t;
    d->show_special = show_special;
    d->strips_space =
        t->kind == VOCAB_WORDPIECE || (is_unigram && rules->remove_extra_whitespaces) ||
        (rules->add_space_prefix && !is_raw && !(is_unigram && rules->treat_whitespace_as_suffix));
    d->at_start = true;
    buf_init(&d->held, SIZE_MAX / 4);
    buf_init(&d->out, SIZE_MAX / 4);
    *out = d;
    return LACE_OK;
}

void decoder_free(decoder *d)
{
    if (!d)
        return;
    buf_deinit(&d->held);
    buf_deinit(&d->out);
    mem_free(d);
}

/* Move the first n bytes of what is held into the output, malformed ones as U+FFFD. */
static lace_status give_out(decoder *d, size_t n)
{
    TRY(buf_reserve(&d->out, 3 * n));
    for (size_t i = 0; i < n;) {
        uint32_t code;
        char bytes[4];
        i += (size_t)utf8_decode(d->held.data + i, n - i, &code);
        TRY(buf_append(&d->out, bytes, (size_t)utf8_encode(code, bytes)));
    }
    d->held.size -= n;
    memmove(d->held.data, d->held.data + n, d->held.size);
    return LACE_OK;
}

static text bytes_to_print(decoder *d, lace_token id)
{
    text bytes = tokenizer_token_bytes(d->t, id);
    token_type type = tokenizer_token_type(d->t, id);
    bool is_hidden = (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN) && !d->show_special &&
                     !(d->t->flags[id] & TOKEN_IS_PRINTED);
    if (is_hidden || bytes.size == 0)
        return (text){"", 0};
    if (d->at_start && d->strips_space && bytes.data[0] == ' ') {
        bytes.data++;
        bytes.size--;
    }
    d->at_start = false;
    return bytes;
}

lace_status decoder_push(decoder *d, lace_token id, text *out, lace_error *err)
{
    text bytes = bytes_to_print(d, id);
    size_t n_held = d->held.size;
    *out = (text){"", 0};
    buf_clear(&d->out);
    if (bytes.size == 0)
        return LACE_OK;
    lace_status status = buf_append(&d->held, bytes.data, bytes.size);
    if (status == LACE_OK)
        status = give_out(d, utf8_complete_prefix(d->held.data, d->held.size));
    if (status != LACE_OK) {
        d->held.size = n_held;
        return error_nomem(err, "the text of a token");
    }
    if (d->out.size > 0)
        *out = (text){d->out.data, d->out.size};
    return LACE_OK;
}

lace_status decoder_flush(decoder *d, text *out, lace_error *err)
{
    *out = (text){"", 0};
    buf_clear(&d->out);
    d->at_start = true;
    if (d->held.size > 0 && give_out(d, d->held.size) != LACE_OK)
        return error_nomem(err, "the text of a token");
    if (d->out.size > 0)
        *out = (text){d->out.data, d->out.size};
    return LACE_OK;
}
