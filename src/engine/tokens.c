/* Text to tokens and back, for the public API. */
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"

static lace_status no_vocabulary(lace_error *err)
{
    return error_set(err, LACE_E_VOCAB,
                     "the model has no vocabulary: no tokens in its file, no tokenizer.json in its "
                     "directory; lace logits runs it on numbers");
}

/* As many as there is room for. Returns how many there are. */
static size_t give_tokens(const token_list *list, lace_token *tokens, size_t capacity)
{
    size_t n = list->size < capacity ? list->size : capacity;
    if (n)
        memcpy(tokens, list->data, n * sizeof *tokens);
    return list->size;
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
    if (status == LACE_OK)
        *n_out = give_tokens(&list, tokens, capacity);
    token_list_deinit(&list);
    return status;
}

lace_status lace_tokenize(const lace_model *lm, const char *s, size_t n_bytes, unsigned flags,
                          lace_token *tokens, size_t capacity, size_t *n_out, lace_error *err)
{
    return lace_tokenize_contents(lm, s, n_bytes, NULL, 0, flags, tokens, capacity, n_out, err);
}

/* RoBERTa has its end token twice between two texts. */
static bool is_doubled(const tokenizer *t, lace_token last)
{
    return last >= 0 && text_is(tokenizer_token_bytes(t, last), "</s>");
}

static lace_status append_pair(const tokenizer *t, text query, text passage, size_t max_tokens,
                               token_list *out, size_t *n_first, lace_error *err)
{
    lace_token first = tokenizer_first(t), last = tokenizer_last(t);
    lace_status status = first >= 0 ? token_list_add(out, first) : LACE_OK;
    if (status == LACE_OK)
        TRY(tokenizer_encode(t, query.data, query.size, 0, out, err));
    for (int i = 0; status == LACE_OK && last >= 0 && i < 1 + is_doubled(t, last); i++)
        status = token_list_add(out, last);
    *n_first = out->size;
    if (status == LACE_OK)
        TRY(tokenizer_encode(t, passage.data, passage.size, 0, out, err));
    size_t kept = max_tokens > (last >= 0) ? max_tokens - (last >= 0) : 0;
    if (max_tokens > 0 && out->size > kept)
        out->size = kept > *n_first ? kept : *n_first;
    if (status == LACE_OK && last >= 0)
        status = token_list_add(out, last);
    return status == LACE_OK ? LACE_OK : error_nomem(err, "the tokens of a text");
}

lace_status lace_tokenize_pair(const lace_model *lm, const char *query, size_t n_query,
                               const char *passage, size_t n_passage, size_t max_tokens,
                               lace_token *tokens, size_t capacity, size_t *n_out, size_t *n_first,
                               lace_error *err)
{
    *n_out = *n_first = 0;
    if (!lm->tokens)
        return no_vocabulary(err);
    token_list list = {0};
    lace_status status = append_pair(lm->tokens, (text){query, n_query}, (text){passage, n_passage},
                                     max_tokens, &list, n_first, err);
    if (status == LACE_OK)
        *n_out = give_tokens(&list, tokens, capacity);
    token_list_deinit(&list);
    return status;
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
