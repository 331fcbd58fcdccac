/*
 * Image files to pixels: JPEG, PNG and WebP, by libjpeg-turbo, libpng and libwebp.
 *
 * Decoders have had holes. So bytes of strangers are decoded in a process of its own (decode_apart):
 * a copy of this one that has no files, may make no system calls but for memory, has a limit of
 * memory and of time, and leaves pixels in memory that both share. Whatever happens there costs the
 * image and nothing else.
 */
#ifndef LACE_IMAGE_DECODE_H
#define LACE_IMAGE_DECODE_H

#include "image/pixels.h"

typedef struct decode_limits {
    uint64_t max_pixels;
    uint64_t max_bytes; /* of memory that a decoder may take, beside the pixels */
    uint64_t max_ns;    /* of time */
} decode_limits;

decode_limits decode_limits_default(void);

/* Decode in a process of its own. LACE_E_IMAGE, with what is wrong. */
lace_status decode_apart(const void *bytes, size_t n_bytes, const decode_limits *limits,
                         pixels *out, lace_error *err);

/*
 * Decode right here, into `room`, which has n_room bytes. The width and the height come out.
 * LACE_E_IMAGE: what is no image, is broken, is larger than max_pixels or the room.
 */
lace_status decode_here(const uint8_t *bytes, size_t n_bytes, uint64_t max_pixels, uint8_t *room,
                        size_t n_room, int32_t *width, int32_t *height, lace_error *err);

#endif
