/*
 * The code of the trellis types T2 to T5: which number a window of 16 bits stands for.
 *
 * A block is a stream of bits, n of them for each value. A value is read from the 16 bits that end
 * with its own, so that it shares bits with those before it: whoever writes a stream chooses among
 * paths through a graph, and gets nearer to the values than any table for single ones can. The
 * window becomes a number by a multiplication, whose four bytes are added: their sum is spread like
 * a normal distribution, as rotated weights are.
 */
#ifndef LACE_TENSOR_TRELLIS_H
#define LACE_TENSOR_TRELLIS_H

#include <stdint.h>

enum { TRELLIS_VALUES = 256, TRELLIS_WINDOW = 16, TRELLIS_MIN_BITS = 2, TRELLIS_MAX_BITS = 5 };

#define TRELLIS_FACTOR 0x83dcd12du
#define TRELLIS_SIGMA  36.96f /* the deviation of the levels of all windows */

/*
 * The window before the first value, for codes of n bits: of all, the one from which the first
 * values of a normal distribution come out best. It costs 11 values' worth of error at 3 bits,
 * where zeros would cost 25.
 */
static inline uint32_t trellis_start(int n_bits)
{
    static const uint16_t starts[] = {[2] = 0xe758, [3] = 0x5378, [4] = 0x1a70, [5] = 0xd000};
    return starts[n_bits];
}

/* The window of the next value. */
static inline uint32_t trellis_next(uint32_t window, int n_bits, uint32_t code)
{
    return (window | code << TRELLIS_WINDOW) >> n_bits;
}

/* -128 to 127. */
static inline int trellis_level(uint32_t window)
{
    uint32_t x = window * TRELLIS_FACTOR;
    uint32_t sum = (x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24);
    return (int)((sum + 3) >> 2) - 128;
}

#endif
