/*
 * The points and values that the IQ and FP4 types name by number.
 *
 * A point is 8 (iq1, iq2) or 4 (iq3) small whole numbers, a byte each, the first in the lowest
 * byte, so that one load brings all of them. The sources are short codes in iq_codes.h with 2 or 3
 * bits a value; the macros here spread a code to bytes at compile time. The GPU's tables are made
 * from the same lists.
 */
#ifndef LACE_TENSOR_IQ_GRIDS_H
#define LACE_TENSOR_IQ_GRIDS_H

#include <stdint.h>

extern const uint64_t iq2_xxs_grid[256]; /* values 8, 25, 43 */
extern const uint64_t iq2_xs_grid[512];
extern const uint64_t iq2_s_grid[1024];
extern const uint64_t iq1_grid[2048];    /* values -1, 0, 1, as signed bytes */
extern const uint32_t iq3_xxs_grid[256]; /* values 4, 12, 20, 28, 36, 44, 52, 62 */
extern const uint32_t iq3_s_grid[512];   /* values 1, 3, 5, ..., 15 */
extern const int8_t iq4_values[16];
extern const int8_t fp4_values[16]; /* twice the value of an e2m1 float */

/* The signs of 8 values, a bit each, from the 7 that are stored: their parity is even. */
static inline uint8_t iq_signs(uint32_t stored)
{
    uint32_t nibble = (stored ^ stored >> 4) & 15;
    uint32_t is_odd = (0x6996 >> nibble) & 1; /* bit n: the parity of n */
    return (uint8_t)(stored | is_odd << 7);
}

/* ---- From codes to bytes --------------------------------------------------------------------- */

/* 8 times 2 bits, or 4 times 3 bits, to the low bits of bytes. */
#define IQ_SPREAD2(c)                                                                              \
    (((c)&0x3ull) | ((c)&0xcull) << 6 | ((c)&0x30ull) << 12 | ((c)&0xc0ull) << 18 |                \
     ((c)&0x300ull) << 24 | ((c)&0xc00ull) << 30 | ((c)&0x3000ull) << 36 | ((c)&0xc000ull) << 42)
#define IQ_SPREAD3(c) (((c)&0x7u) | ((c)&0x38u) << 5 | ((c)&0x1c0u) << 10 | ((c)&0xe00u) << 15)

/* The macros to pass to the lists; each gives an entry of a table, with its comma. */

/* 8 + 17 q, and one more for q = 2. */
#define IQ2_POINT(c)                                                                               \
    (0x0808080808080808ull + 17 * IQ_SPREAD2(c) + (IQ_SPREAD2(c) >> 1 & 0x0101010101010101ull)),
/* q - 1 as a signed byte, without a borrow between bytes. */
#define IQ1_POINT(c) ((IQ_SPREAD2(c) + 0x7f7f7f7f7f7f7f7full) ^ 0x8080808080808080ull),
/* 4 + 8 q, and two more for q = 7. */
#define IQ3_XXS_POINT(c)                                                                           \
    (0x04040404u + 8 * IQ_SPREAD3(c) +                                                             \
     2 * (IQ_SPREAD3(c) & IQ_SPREAD3(c) >> 1 & IQ_SPREAD3(c) >> 2 & 0x01010101u)),
/* 1 + 2 q. */
#define IQ3_S_POINT(c) (0x01010101u + 2 * IQ_SPREAD3(c)),

#endif
