/*
 * Fuzzing image files: whatever the bytes are, decoding says no with a line, or gives as many pixels
 * as the size says. Here without the process that decoders are kept in.
 */
#include <assert.h>
#include <stdlib.h>

#include "image/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MAX_PIXELS = 1 << 16 };
    int32_t width = 0, height = 0;
    lace_error err = {0};
    uint8_t *room = malloc(3 * MAX_PIXELS);
    if (!room)
        return 0;
    lace_status status =
        decode_here(data, size, MAX_PIXELS, room, 3 * MAX_PIXELS, &width, &height, &err);
    if (status == LACE_OK)
        assert(width > 0 && height > 0 && (int64_t)width * height <= MAX_PIXELS);
    else
        assert(err.text[0]);
    free(room);
    return 0;
}
