/* Placements as files: JSON that `lace place -o` writes and `--place` reads. */
#ifndef LACE_PLACE_PLACE_FILE_H
#define LACE_PLACE_PLACE_FILE_H

#include "base/buf.h"
#include "base/bytes.h"
#include "place/placement.h"

lace_status placement_write(const placement *p, buf *out);

/* Every number is checked: devices that are not named, layers that are not there. */
lace_status placement_read(span bytes, placement *out, lace_error *err);

#endif
