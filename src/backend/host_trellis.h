/*
 * Writing a block of a trellis type (tensor/trellis.h): the search for the stream of bits whose
 * values are nearest to the wanted ones, by Viterbi's algorithm.
 *
 * Paths that end in the same bits are compared, and the best of them goes on. With feedback, an
 * error at one value moves what is wanted of those that follow (compress/gptq.h); each path makes
 * errors of its own, so each has its own wishes for the next values. What lies more than a
 * generation of 16 values back is decided by the best path, and from then on moves the rest of the
 * row, once for all paths.
 */
#ifndef LACE_BACKEND_HOST_TRELLIS_H
#define LACE_BACKEND_HOST_TRELLIS_H

#include <stdint.h>

#include "tensor/trellis.h"

enum { TRELLIS_LEAST_MERGE = 10, TRELLIS_MOST_MERGE = 14 };

typedef struct trellis_task {
    int n_bits;     /* of a value, 2 to 5 */
    int merge;      /* paths whose last bits, so many, are the same become one; time is 2^merge */
    float scale;    /* of the block: values are scale * level */
    float *left;    /* [n_left] what is wanted; moved by feedback */
    int64_t n_left; /* the 256 of the block; with feedback all to the end of the row */
    const float *weights; /* [256] how much each error counts */

    /*
     * Rows of the factor of compress/hessian.h from the block on: the error at i, times u[i *
     * stride + k] / u[i * stride + i], is taken off the value at k > i. NULL: no feedback.
     */
    const float *u;
    int64_t stride;
} trellis_task;

/* The memory of a search; zeros before the first. */
typedef struct trellis_scratch trellis_scratch;
uint64_t trellis_scratch_bytes(void);

/* The code of each value and the level that it stands for. */
void trellis_search(const trellis_task *t, trellis_scratch *s, uint8_t codes[TRELLIS_VALUES],
                    int8_t levels[TRELLIS_VALUES]);

#endif
