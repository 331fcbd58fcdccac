/* Mapped files that another program cuts short while they are in use. */
#define _GNU_SOURCE
#include "base/file_guard.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

/*
 * Read by a signal handler, so without locks: a slot with size 0 is free. When all slots of a block
 * are taken, another block is appended; blocks stay.
 */
enum { BLOCK_MAPS = 1024 };

typedef struct block block;
struct block {
    struct {
        atomic_uintptr_t start;
        atomic_size_t size;
    } maps[BLOCK_MAPS];
    _Atomic(block *) next;
};

static block first;
static atomic_bool is_broken;
static uintptr_t page_bytes = 4096;

/* The block after this one, made if there is none; NULL: no memory. */
static block *next_of(block *b)
{
    block *next = atomic_load(&b->next);
    if (next)
        return next;
    block *made = mem_calloc(1, sizeof *made), *none = NULL;
    if (!made)
        return NULL;
    if (atomic_compare_exchange_strong(&b->next, &none, made))
        return made;
    mem_free(made); /* another thread was faster */
    return none;
}

bool file_guard_add(const void *start, size_t n_bytes)
{
    for (block *b = n_bytes ? &first : NULL; b; b = next_of(b))
        for (int i = 0; i < BLOCK_MAPS; i++) {
            uintptr_t is_free = 0;
            if (atomic_compare_exchange_strong(&b->maps[i].start, &is_free, (uintptr_t)start)) {
                atomic_store(&b->maps[i].size, n_bytes);
                return true;
            }
        }
    return n_bytes == 0;
}

void file_guard_remove(const void *start)
{
    for (block *b = start ? &first : NULL; b; b = atomic_load(&b->next))
        for (int i = 0; i < BLOCK_MAPS; i++)
            if (atomic_load(&b->maps[i].start) == (uintptr_t)start) {
                atomic_store(&b->maps[i].size, 0);
                atomic_store(&b->maps[i].start, 0);
                return;
            }
}

bool file_guard_is_broken(void)
{
    return atomic_load_explicit(&is_broken, memory_order_relaxed);
}

lace_status file_guard_check(lace_error *err)
{
    return file_guard_is_broken()
               ? error_set(err, LACE_E_IO,
                           "a model file was truncated while it was in use; restore it and start "
                           "again")
               : LACE_OK;
}

/* Zeros in place of what is missing of a mapping; false: the address is not in it. */
static bool fill(uintptr_t start, size_t size, uintptr_t at)
{
    if (at < start || at - start >= size)
        return false;
    /* Pages from the one that is missing to the mapping's end are all beyond the file's new end. */
    uintptr_t page = at & ~(page_bytes - 1);
    void *zeros = mmap((void *)page, start + size - page, PROT_READ,
                       MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return zeros != MAP_FAILED;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    for (block *b = &first; b; b = atomic_load(&b->next))
        for (int i = 0; i < BLOCK_MAPS; i++)
            if (fill(atomic_load(&b->maps[i].start), atomic_load(&b->maps[i].size), at)) {
                atomic_store(&is_broken, true);
                return;
            }
    signal(number, SIG_DFL); /* not ours: the instruction fails again, and for good */
}

void file_guard_install(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigaction(SIGBUS, &action, NULL);
}
