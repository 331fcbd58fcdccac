/* The types that tensor values come in, and the sizes that follow from them. */
#include "tensor/dtype.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const dtype_info infos[DTYPE_COUNT] = {
#define X(id, name, number, n_values, n_bytes) [DTYPE_##id] = {name, number, n_values, n_bytes},
#include "tensor/dtype.def"
#undef X
};

const dtype_info *dtype_describe(dtype type)
{
    assert((unsigned)type < DTYPE_COUNT);
    return &infos[type];
}

bool dtype_from_number(uint32_t number, dtype *out)
{
    if (number >= DTYPE_NOT_GGUF)
        return false;
    for (int i = 0; i < DTYPE_COUNT; i++)
        if ((uint32_t)infos[i].number == number) {
            *out = (dtype)i;
            return true;
        }
    return false;
}

bool dtype_from_name(const char *name, dtype *out)
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (strcmp(infos[i].name, name) == 0) {
            *out = (dtype)i;
            return true;
        }
    return false;
}

lace_status tensor_bytes(dtype type, const shape *s, uint64_t *n_values, uint64_t *n_bytes,
                         lace_error *err)
{
    const dtype_info *info = dtype_describe(type);
    *n_values = *n_bytes = 0;
    uint64_t n = 1;
    for (int i = 0; i < s->n_dims; i++) {
        if (s->dims[i] <= 0)
            return error_set(err, LACE_E_DIMS, "dimension %d is %" PRId64 ", expected 1 or more", i,
                             s->dims[i]);
        /* Up to 2^63 - 1 values, so that every index fits an int64_t. */
        if (__builtin_mul_overflow(n, (uint64_t)s->dims[i], &n) || n > INT64_MAX)
            return error_set(err, LACE_E_OVERFLOW, "the product of the dimensions overflows");
    }
    if (s->dims[0] % info->block_values != 0)
        return error_set(err, LACE_E_DIMS,
                         "rows of %" PRId64 " values, expected a multiple of %d for %s", s->dims[0],
                         info->block_values, info->name);
    uint64_t bytes;
    if (__builtin_mul_overflow(n / (uint64_t)info->block_values, (uint64_t)info->block_bytes,
                               &bytes) ||
        bytes > INT64_MAX)
        return error_set(err, LACE_E_OVERFLOW, "the size in bytes overflows");
    *n_values = n;
    *n_bytes = bytes;
    return LACE_OK;
}

uint64_t row_bytes(dtype type, int64_t n_values)
{
    const dtype_info *info = dtype_describe(type);
    assert(n_values % info->block_values == 0);
    return (uint64_t)(n_values / info->block_values) * (uint64_t)info->block_bytes;
}

const char *shape_format(const shape *s, char out[96])
{
    int at = 0;
    out[0] = 0;
    for (int i = 0; i < s->n_dims; i++)
        at += snprintf(out + at, 96 - (size_t)at, i ? "x%" PRId64 : "%" PRId64, s->dims[i]);
    return out;
}
