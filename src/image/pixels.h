/*
 * Pixels: an image as it was decoded, and how it gets the size that a vision tower wants.
 *
 * Resampling is Pillow's, to the byte: a triangle (bilinear) or a cubic (a = -0.5), as wide as the
 * image shrinks, first along rows, then along columns, with bytes in between and weights of 22 bits.
 * That is what the reference's preprocessing does to images.
 */
#ifndef LACE_IMAGE_PIXELS_H
#define LACE_IMAGE_PIXELS_H

#include <stdint.h>

#include "base/status.h"

typedef struct pixels {
    uint8_t *rgb; /* [height, width, 3] */
    int32_t width, height;
} pixels;

/* Room for an image; pixels_free gives it back. LACE_E_LIMIT: more than 2^28 pixels. */
lace_status pixels_create(int32_t width, int32_t height, pixels *out, lace_error *err);
void pixels_free(pixels *p); /* zeros are fine */

/*
 * Another size; is_cubic: else bilinear. LACE_E_LIMIT: of another width alone it would have more than
 * 2^28 pixels.
 */
lace_status pixels_resize(const pixels *from, int32_t width, int32_t height, bool is_cubic,
                          pixels *out, lace_error *err);

/*
 * The size that an image gets where it may be chosen: sides are multiples of `unit`, the shape is
 * kept as well as that allows, and there are min_pixels to max_pixels of them. LACE_E_IMAGE if one
 * side is more than 200 times as long as the other.
 */
lace_status pixels_choose_size(int32_t width, int32_t height, int32_t unit, int64_t min_pixels,
                               int64_t max_pixels, int32_t *out_width, int32_t *out_height,
                               lace_error *err);

#endif
