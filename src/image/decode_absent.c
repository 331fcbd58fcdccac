/* Stands in for decode.c in builds without the libraries that read images. */
#include "image/decode.h"

lace_status decode_here(const uint8_t *bytes, size_t n_bytes, uint64_t max_pixels, uint8_t *room,
                        size_t n_room, int32_t *width, int32_t *height, lace_error *err)
{
    return error_set(err, LACE_E_IMAGE,
                     "this build cannot read image files: it was made without libjpeg, libpng and "
                     "libwebp");
}
