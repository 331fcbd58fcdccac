/*
 * Fuzzing page files: whatever the bytes are, and though their digest is right, a file is refused with
 * one line, or every part lies inside it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "state/page_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const page_shape sizes = {.n_parts = 3, .part_bytes = {64, 32, 16}};
    lace_error err = {0};
    page_file p;
    uint8_t *bytes = malloc(size + DIGEST_BYTES);
    if (!bytes)
        return 0;
    memcpy(bytes, data, size);
    if (!page_file_seal(bytes, size + DIGEST_BYTES))
        abort();
    span whole = {bytes, size + DIGEST_BYTES};
    lace_status status = page_file_read(whole, &sizes, &p, &err);
    if (status != LACE_OK && (err.status != status || !err.text[0] || strchr(err.text, '\n')))
        abort();
    for (int i = 0; status == LACE_OK && i < sizes.n_parts; i++)
        if (p.has_part[i] &&
            (p.parts[i] < bytes || p.parts[i] + sizes.part_bytes[i] > bytes + size))
            abort();
    free(bytes);
    return 0;
}
