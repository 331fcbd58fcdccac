/* Mapped files that another program cuts short while they are in use. */
#define _GNU_SOURCE
#include "base/file_guard.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_MAPS = 1024 };

/* Read by a signal handler, so without locks: a slot with size 0 is free. */
static struct {
    atomic_uintptr_t start;
    atomic_size_t size;
} maps[MAX_MAPS];

static atomic_bool is_broken;
static uintptr_t page_bytes = 4096;

void file_guard_add(const void *start, size_t n_bytes)
{
    for (int i = 0; i < MAX_MAPS && n_bytes; i++) {
        uintptr_t is_free = 0;
        if (atomic_compare_exchange_strong(&maps[i].start, &is_free, (uintptr_t)start)) {
            atomic_store(&maps[i].size, n_bytes);
            return;
        }
    }
}

void file_guard_remove(const void *start)
{
    for (int i = 0; i < MAX_MAPS && start; i++)
        if (atomic_load(&maps[i].start) == (uintptr_t)start) {
            atomic_store(&maps[i].size, 0);
            atomic_store(&maps[i].start, 0);
            return;
        }
}

bool file_guard_is_broken(void)
{
    return atomic_load_explicit(&is_broken, memory_order_relaxed);
}

/* Pages from the one that is missing to the mapping's end are all beyond the file's new end. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    for (int i = 0; i < MAX_MAPS; i++) {
        uintptr_t start = atomic_load(&maps[i].start);
        size_t size = atomic_load(&maps[i].size);
        if (at < start || at - start >= size)
            continue;
        uintptr_t page = at & ~(page_bytes - 1);
        void *zeros = mmap((void *)page, start + size - page, PROT_READ,
                           MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (zeros == MAP_FAILED)
            break;
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
