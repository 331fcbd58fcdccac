/* Text to tokens and back, for the public API. */
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"

static lace_status no_vocabulary(lace_error *err)
{
    return error_set(err, LACE_E_VOCAB, "the model has no vocabulary");
}

lace_status lace_tokenize_contents(const lace_model *lm, const char *s, size_t n_bytes,
                                   const lace_range *contents, size_t n_contents, unsigned flags,
                                   lace_token *tokens, size_t capacity, size_t *n_out,
                                   lace_error *err)
{
    *n_out = 0;
    if (!lm->tokens)
        return no_vocabulary(err);
    token_list list = {0};
    lace_status status = tokenizer_encode_contents(lm->tokens, (text){s, n_bytes}, contents,
                                                   n_contents, flags, &list, err);
    if (status == LACE_OK) {
        size_t n = list.size < capacity ? list.size : capacity;
        if (n)
            memcpy(tokens, list.data, n * sizeof *tokens);
        *n_out = list.size;
    }
    token_list_deinit(&list);
    return status;
}

lace_status lace_tokenize(const lace_model *lm, const char *s, size_t n_bytes, unsigned flags,
                          lace_token *tokens, size_t capacity, size_t *n_out, lace_error *err)
{
    return lace_tokenize_contents(lm, s, n_bytes, NULL, 0, flags, tokens, capacity, n_out, err);
}

static bool contains(text bytes, const char *part)
{
    size_t n = strlen(part);
    for (size_t i = 0; n > 0 && i + n <= bytes.size; i++)
        if (memcmp(bytes.data + i, part, n) == 0)
            return true;
    return false;
}

size_t lace_tokens_with(const lace_model *lm, const char *const *texts, size_t n_texts,
                        lace_token *tokens, size_t capacity)
{
    size_t n = 0, n_tokens = lm->tokens ? tokenizer_n_tokens(lm->tokens) : 0;
    for (size_t t = 0; t < n_tokens; t++) {
        bool is_found = false;
        for (size_t i = 0; i < n_texts && !is_found; i++)
            is_found = contains(tokenizer_token_bytes(lm->tokens, (lace_token)t), texts[i]);
        if (is_found && n < capacity)
            tokens[n] = (lace_token)t;
        n += is_found;
    }
    return n;
}

bool lace_token_is_end(const lace_model *lm, lace_token token)
{
    return lm->tokens && tokenizer_is_end(lm->tokens, token);
}

const char *lace_token_bytes(const lace_model *lm, lace_token token, size_t *n_bytes)
{
    text bytes = lm->tokens ? tokenizer_token_bytes(lm->tokens, token) : (text){"", 0};
    *n_bytes = bytes.size;
    return bytes.data;
}

lace_status lace_decoder_create(const lace_model *lm, lace_decoder **out, lace_error *err)
{
    *out = NULL;
    if (!lm->tokens)
        return no_vocabulary(err);
    lace_decoder *d = mem_calloc(1, sizeof *d);
    if (!d)
        return error_nomem(err, "a decoder");
    lace_status status = decoder_create(lm->tokens, false, &d->d, err);
    return GIVE_OR_FREE(status, d, out, mem_free);
}

void lace_decoder_free(lace_decoder *d)
{
    if (!d)
        return;
    decoder_free(d->d);
    mem_free(d);
}

lace_status lace_decoder_push(lace_decoder *d, lace_token token, const char **out, size_t *n_bytes,
                              lace_error *err)
{
    text piece = {"", 0};
    lace_status status = decoder_push(d->d, token, &piece, err);
    *out = piece.data;
    *n_bytes = piece.size;
    return status;
}

lace_status lace_decoder_flush(lace_decoder *d, const char **out, size_t *n_bytes, lace_error *err)
{
    text piece = {"", 0};
    lace_status status = decoder_flush(d->d, &piece, err);
    *out = piece.data;
    *n_bytes = piece.size;
    return status;
}
