/* A tensor as a file holds it: a name, a type, a shape, and bytes that somebody else owns. */
#ifndef LACE_TENSOR_TENSOR_H
#define LACE_TENSOR_TENSOR_H

#include "base/bytes.h"
#include "tensor/dtype.h"

typedef struct tensor {
    text name;
    dtype type;
    shape shape;
    uint64_t n_values;
    uint64_t n_bytes;
    const uint8_t *data; /* n_bytes of blocks, borrowed from the file's mapping; any alignment */
} tensor;

#endif
