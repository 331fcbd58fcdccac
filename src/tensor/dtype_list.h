/* The types by themselves, for kernels, which are compiled anew whenever a header changes. */
#ifndef LACE_TENSOR_DTYPE_LIST_H
#define LACE_TENSOR_DTYPE_LIST_H

typedef enum dtype {
#define X(id, name, number, n_values, n_bytes) DTYPE_##id,
#include "tensor/dtype.def"
#undef X
    DTYPE_COUNT
} dtype;

#endif
