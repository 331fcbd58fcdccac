/*
 * Fuzzing SentencePiece's tokenizer.model: whatever the bytes are, reading says no or describes a
 * vocabulary that a tokenizer can be made of, or refused.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "vocab/spm_proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_MEMORY = 1 << 26 };

static void check_error(lace_status status, const lace_error *err)
{
    if (err->status != status || err->text[0] == 0 || strchr(err->text, '\n'))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char input[] = "  hi hi\n\xC3\xB6</s>hi";
    arena memory;
    vocab v;
    tokenizer *t = NULL;
    token_list list = {0};
    lace_error err = {0};
    arena_init(&memory, MAX_MEMORY);
    lace_status status = spm_proto_read((span){data, size}, &memory, &v, &err);
    if (status == LACE_OK)
        status = tokenizer_create(&v, &t, &err);
    if (status == LACE_OK)
        status = tokenizer_encode(t, input, sizeof input - 1, 3, &list, &err);
    if (status != LACE_OK)
        check_error(status, &err);
    for (size_t i = 0; i < list.size; i++)
        if (list.data[i] < 0 || (size_t)list.data[i] >= tokenizer_n_tokens(t))
            abort();
    token_list_deinit(&list);
    tokenizer_free(t);
    arena_deinit(&memory);
    return 0;
}
