/* The heap, with a switch that makes allocations fail for tests. */
#define _GNU_SOURCE
#include "base/mem.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static atomic_long fail_index = -1;
static atomic_bool fail_forever = false;
static atomic_long count = 0;

void mem_fail_at(long index, bool forever)
{
    atomic_store(&count, 0);
    atomic_store(&fail_forever, forever);
    atomic_store(&fail_index, index);
}

long mem_count(void)
{
    return atomic_load(&count);
}

static bool must_fail(void)
{
    long i = atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
    long at = atomic_load_explicit(&fail_index, memory_order_relaxed);
    return at >= 0 && (i == at || (i > at && atomic_load(&fail_forever)));
}

void *mem_alloc(size_t n_bytes)
{
    return must_fail() ? NULL : malloc(n_bytes ? n_bytes : 1);
}

void *mem_calloc(size_t n, size_t size)
{
    return must_fail() ? NULL : calloc(n ? n : 1, size ? size : 1);
}

void *mem_realloc(void *p, size_t n_bytes)
{
    return must_fail() ? NULL : realloc(p, n_bytes ? n_bytes : 1);
}

void mem_free(void *p)
{
    free(p);
}

void mem_free_list(void *const *pointers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mem_free(pointers[i]);
}

char *mem_strndup(const char *text, size_t n)
{
    char *copy = n < SIZE_MAX ? mem_alloc(n + 1) : NULL;
    if (copy) {
        memcpy(copy, text, n);
        copy[n] = 0;
    }
    return copy;
}

char *mem_strdup(const char *text)
{
    return mem_strndup(text, strlen(text));
}

void *mem_map(size_t n_bytes)
{
    if (must_fail())
        return NULL;
    void *p = mmap(NULL, n_bytes ? n_bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    if (p == MAP_FAILED)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (n_bytes >= (size_t)4 << 20)
        madvise(p, n_bytes, MADV_HUGEPAGE);
#endif
    return p;
}

void mem_unmap(void *p, size_t n_bytes)
{
    if (p)
        munmap(p, n_bytes ? n_bytes : 1);
}

void mem_discard(void *p, size_t n_bytes)
{
    if (p && n_bytes)
        madvise(p, n_bytes, MADV_DONTNEED);
}

bool mem_grow_full(void *items, size_t *capacity, size_t size, size_t first)
{
    void *old, *grown;
    size_t wanted = *capacity ? 2 * *capacity : first, n_bytes;
    memcpy(&old, items, sizeof old);
    grown = mem_mul(wanted, size, &n_bytes) ? mem_realloc(old, n_bytes) : NULL;
    if (!grown)
        return false;
    memcpy(items, &grown, sizeof grown);
    *capacity = wanted;
    return true;
}

bool mem_mul(size_t n, size_t size, size_t *out)
{
    return !__builtin_mul_overflow(n, size, out);
}

bool mem_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* ---- Giving back ----------------------------------------------------------------------------- */

/*
 * glibc raises the size from which it maps blocks each time such a block is freed, up to 32 MiB: a
 * server that once read large bodies would then keep them in its heaps for ever.
 */
void mem_keep_little(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    mallopt(M_TRIM_THRESHOLD, 4 << 20);
#endif
}

void mem_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
