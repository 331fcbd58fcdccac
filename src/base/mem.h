/*
 * The heap. All memory of the library comes through here, so that a test can make the n-th
 * allocation fail and see what happens.
 */
#ifndef LACE_BASE_MEM_H
#define LACE_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t n_bytes);               /* NULL on failure; 0 bytes give a valid pointer */
void *mem_calloc(size_t n, size_t size);       /* zeroed; NULL on failure or overflow */
void *mem_realloc(void *p, size_t n_bytes);    /* NULL on failure, and p stays valid */
void mem_free(void *p);                        /* NULL is fine */
char *mem_strdup(const char *text);            /* NULL on failure */
char *mem_strndup(const char *text, size_t n); /* copies n bytes and terminates them */

/* mem_free of each pointer in the list. */
#define mem_free_all(...)                                                                          \
    mem_free_list((void *const[]){__VA_ARGS__}, sizeof((void *[]){__VA_ARGS__}) / sizeof(void *))
void mem_free_list(void *const *pointers, size_t n);

/* Large, zeroed, aligned to 64 bytes at least and backed by huge pages where
 * the system has them. */
void *mem_map(size_t n_bytes);
void mem_unmap(void *p, size_t n_bytes);
void mem_discard(void *p, size_t n_bytes); /* give the memory back; the addresses read as zeros */

/* For a process that lives long: freed blocks of 1 MiB and more go back to the system at once. */
void mem_keep_little(void);
/* Give what is free inside the heap back to the system; takes milliseconds. */
void mem_trim(void);

/* The machine's memory in bytes; 0 where the system does not say. */
uint64_t mem_machine_total(void);
uint64_t mem_machine_available(void); /* without taking anything from other programs */

/*
 * Room for one more in an array of n items of `size` bytes: where n is *capacity, that doubles, and
 * begins with `first`. False on failure; the array is then as it was.
 */
static inline bool mem_grow(void *items /* a pointer's address */, size_t n, size_t *capacity,
                            size_t size, size_t first);

/* n * size, or false if that does not fit. */
bool mem_mul(size_t n, size_t size, size_t *out);
bool mem_add(size_t a, size_t b, size_t *out);

/*
 * For tests: let allocation number `index` (from 0) fail, and all later ones too if `forever`.
 * A negative index turns it off. mem_count() is the number of allocations since then.
 */
void mem_fail_at(long index, bool forever);
long mem_count(void);

/* mem_grow of an array that is full. */
bool mem_grow_full(void *items, size_t *capacity, size_t size, size_t first);

static inline bool mem_grow(void *items, size_t n, size_t *capacity, size_t size, size_t first)
{
    return n < *capacity || mem_grow_full(items, capacity, size, first);
}

#endif
