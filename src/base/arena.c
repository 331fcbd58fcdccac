/* An arena: many small allocations with one lifetime. */
#include "base/arena.h"

#include <string.h>

#include "base/mem.h"

struct arena_chunk {
    arena_chunk *older;
    size_t used, capacity;
    unsigned char *data; /* aligned to 64 bytes, inside this allocation */
};

enum { CHUNK_BYTES = 64 * 1024 };

void arena_init(arena *a, size_t max)
{
    *a = (arena){.max = max};
}

void arena_deinit(arena *a)
{
    while (a->newest) {
        arena_chunk *c = a->newest;
        a->newest = c->older;
        mem_free(c);
    }
    a->used = 0;
}

static bool add_chunk(arena *a, size_t n_bytes)
{
    size_t capacity = n_bytes > CHUNK_BYTES ? n_bytes : CHUNK_BYTES;
    if (capacity > SIZE_MAX - sizeof(arena_chunk) - 64)
        return false;
    arena_chunk *c = mem_calloc(1, sizeof *c + 64 + capacity);
    if (!c)
        return false;
    uintptr_t data = ((uintptr_t)(c + 1) + 63) & ~(uintptr_t)63;
    *c = (arena_chunk){.older = a->newest, .capacity = capacity, .data = (unsigned char *)data};
    a->newest = c;
    return true;
}

void *arena_alloc(arena *a, size_t n, size_t size)
{
    size_t n_bytes;
    if (!mem_mul(n, size, &n_bytes) || n_bytes > SIZE_MAX - 64)
        return NULL;
    size_t align = n_bytes >= 64 ? 64 : 16;
    size_t rounded = (n_bytes + align - 1) & ~(align - 1);
    if (rounded > a->max - a->used)
        return NULL;
    size_t at = a->newest ? (a->newest->used + align - 1) & ~(align - 1) : 0;
    if (!a->newest || at > a->newest->capacity || rounded > a->newest->capacity - at) {
        if (!add_chunk(a, rounded))
            return NULL;
        at = 0;
    }
    a->newest->used = at + rounded;
    a->used += rounded;
    return a->newest->data + at;
}

char *arena_strndup(arena *a, const char *text, size_t n)
{
    char *copy = n < SIZE_MAX ? arena_alloc(a, n + 1, 1) : NULL;
    if (copy)
        memcpy(copy, text, n);
    return copy;
}
