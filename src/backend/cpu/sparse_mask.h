/* Masks of sparse tiles, read where they lie. */
#ifndef LACE_BACKEND_CPU_SPARSE_MASK_H
#define LACE_BACKEND_CPU_SPARSE_MASK_H

#include <stdint.h>
#include <string.h>

/* Mask i of a tile. Inline: a call here would cost more than the product. */
static inline uint64_t mask_at(const uint8_t *tile, int i)
{
    uint64_t mask;
    memcpy(&mask, tile + 8 * i, 8);
    return mask;
}

#endif
