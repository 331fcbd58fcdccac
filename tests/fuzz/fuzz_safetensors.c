/*
 * Fuzzing safetensors: whatever the bytes are, parsing says no or gives a directory in which every
 * tensor can be read to its last byte.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Sum up the bytes so that the compiler must read them. */
static volatile unsigned sum;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    safetensors *st;
    lace_error err = {0};
    lace_status status = safetensors_parse((span){data, size}, &st, &err);
    if (status != LACE_OK) {
        /* One line, of the same status, that says something. */
        if (st || err.status != status || err.text[0] == 0 || strchr(err.text, '\n'))
            abort();
        return 0;
    }
    uint64_t covered = 0;
    unsigned s = 0;
    for (size_t i = 0; i < safetensors_count(st); i++) {
        const tensor *t = safetensors_at(st, i);
        for (uint64_t k = 0; k < t->n_bytes; k++)
            s += t->data[k];
        for (size_t k = 0; k < t->name.size; k++)
            s += (unsigned char)t->name.data[k];
        covered += t->n_bytes;
    }
    sum = s;
    if (covered > size - 8)
        abort();
    safetensors_free(st);
    return 0;
}
