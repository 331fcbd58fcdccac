/*
 * Expanding sparse tiles without vpexpandb: the values of a mask become bytes, then each 8 bits of
 * the mask put theirs into place. The including file defines
 *
 *     spread8(values, mask)          the lowest bytes of `values` at the set bits of an 8-bit mask
 *     levels_of(from, shift, out)    64 levels from the nibbles of 64 bytes; shift: 0 or 4
 */
#ifndef LACE_BACKEND_CPU_EXPAND_BYTES_H
#define LACE_BACKEND_CPU_EXPAND_BYTES_H

#include <string.h>

#include "backend/cpu/sparse_mask.h"
#include "tensor/sparse.h"

ALWAYS_INLINE const uint8_t *expand_tile(const sparse_kind kind, const uint8_t *at, uint8_t *out)
{
    const uint8_t *values = at + 64;
    int n[2] = {0, 0};
    for (int i = 0; i < 8; i++) {
        uint64_t mask = mask_at(at, i);
        int *before = &n[kind == SPARSE_M8 ? 0 : i / 4];
        uint8_t levels[64 + 8];
        const uint8_t *from = values + *before;
        *before += __builtin_popcountll(mask);
        if (kind != SPARSE_M8) {
            levels_of(from, i < 4 ? 0 : 4, levels);
            from = levels;
        }
        for (int k = 0; k < 8; k++, mask >>= 8) {
            uint64_t word;
            memcpy(&word, from, 8);
            word = spread8(word, (uint8_t)mask) ^ 0x8080808080808080u; /* 128 more */
            memcpy(out + 64 * i + 8 * k, &word, 8);
            from += __builtin_popcount((uint8_t)mask);
        }
    }
    return values + (n[0] > n[1] ? n[0] : n[1]);
}

#endif
