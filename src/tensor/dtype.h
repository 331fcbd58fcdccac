/* The types that tensor values come in, and the sizes that follow from them. */
#ifndef LACE_TENSOR_DTYPE_H
#define LACE_TENSOR_DTYPE_H

#include "base/status.h"
#include "tensor/dtype_list.h"

/* Numbers of types from DTYPE_OWN on are lace's; files say which version of them they have. */
enum { DTYPE_OWN = 1000, DTYPE_OWN_VERSION = 1, DTYPE_NOT_GGUF = 1 << 16 };

typedef struct dtype_info {
    const char *name;
    int number;       /* as written in GGUF files; from DTYPE_NOT_GGUF on: never there */
    int block_values; /* values in a block; rows are whole blocks */
    int block_bytes;
} dtype_info;

const dtype_info *dtype_describe(dtype type);

/* By the number in a GGUF file, or by name; false if there is none. */
bool dtype_from_number(uint32_t number, dtype *out);
bool dtype_from_name(const char *name, dtype *out);

enum { TENSOR_MAX_DIMS = 4 };

/* A shape: dims[0] is the fastest (a row's length), as in GGUF. Unused dims are 1. */
typedef struct shape {
    int n_dims;
    int64_t dims[TENSOR_MAX_DIMS];
} shape;

/*
 * The one place where the size of a tensor is computed. Checks every dim (> 0), the product, the
 * division into blocks and the bytes; LACE_E_DIMS or LACE_E_OVERFLOW.
 */
lace_status tensor_bytes(dtype type, const shape *s, uint64_t *n_values, uint64_t *n_bytes,
                         lace_error *err);

uint64_t row_bytes(dtype type, int64_t n_values); /* n_values: whole blocks */

/* "4096x14336", for messages. Returns out. */
const char *shape_format(const shape *s, char out[96]);

#endif
