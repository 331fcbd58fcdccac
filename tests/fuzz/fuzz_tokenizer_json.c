/*
 * Fuzzing tokenizer.json: whatever the text is, reading says no or describes a vocabulary, and what
 * a tokenizer made of that says for a text is within it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "vocab/tokenizer_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_MEMORY = 1 << 26 };

static void check_error(lace_status status, const lace_error *err)
{
    if (err->status != status || err->text[0] == 0 || strchr(err->text, '\n'))
        abort();
}

static void check_tokens(const tokenizer *t)
{
    static const char input[] = "  Hello, w\xC3\xB6rld 123\n<s>hi\xE2\x96\x81hi</s> ";
    token_list list = {0};
    lace_error err = {0};
    lace_status status = tokenizer_encode(t, input, sizeof input - 1, 3, &list, &err);
    if (status != LACE_OK)
        check_error(status, &err);
    for (size_t i = 0; i < list.size; i++)
        if (list.data[i] < 0 || (size_t)list.data[i] >= tokenizer_n_tokens(t))
            abort();
    token_list_deinit(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *json;
    lace_error err = {0};
    lace_status status = json_read((span){data, size}, 0, &json, &err);
    if (status != LACE_OK) {
        check_error(status, &err);
        return 0;
    }
    arena memory;
    hf_vocab h;
    tokenizer *t = NULL;
    arena_init(&memory, MAX_MEMORY);
    status = tokenizer_json_read(json, &memory, &h, &err);
    if (status == LACE_OK)
        status = tokenizer_create(&h.v, &t, &err);
    if (status != LACE_OK)
        check_error(status, &err);
    else
        check_tokens(t);
    tokenizer_free(t);
    arena_deinit(&memory);
    json_decref(json);
    return 0;
}
