/* A byte buffer that grows up to a maximum. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

void buf_init(buf *b, size_t max)
{
    *b = (buf){.max = max};
}

void buf_deinit(buf *b)
{
    mem_free(b->data);
    *b = (buf){.max = b->max};
}

void buf_clear(buf *b)
{
    b->size = 0;
    if (b->data)
        b->data[0] = 0;
}

lace_status buf_reserve(buf *b, size_t n_bytes)
{
    if (n_bytes > b->max - b->size)
        return LACE_E_LIMIT;
    size_t need = b->size + n_bytes;
    if (b->data && need <= b->capacity)
        return LACE_OK;
    size_t capacity = b->capacity ? b->capacity : 64;
    while (capacity < need)
        capacity = capacity > SIZE_MAX / 4 ? need : capacity * 2;
    if (capacity > b->max)
        capacity = b->max;
    char *data = mem_realloc(b->data, capacity + 1);
    if (!data)
        return LACE_E_NOMEM;
    data[b->size] = 0;
    b->data = data;
    b->capacity = capacity;
    return LACE_OK;
}

lace_status buf_append(buf *b, const void *data, size_t n_bytes)
{
    TRY(buf_reserve(b, n_bytes));
    if (n_bytes)
        memcpy(b->data + b->size, data, n_bytes);
    b->size += n_bytes;
    b->data[b->size] = 0;
    return LACE_OK;
}

lace_status buf_append_text(buf *b, const char *terminated)
{
    return buf_append(b, terminated, strlen(terminated));
}

lace_status buf_printf(buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0)
        return LACE_E_ARG;
    TRY(buf_reserve(b, (size_t)n));
    va_start(args, format);
    vsnprintf(b->data + b->size, (size_t)n + 1, format, args);
    va_end(args);
    b->size += (size_t)n;
    return LACE_OK;
}
