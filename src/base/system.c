/* What Linux has and other systems have in their own way. */
#define _GNU_SOURCE
#include "base/system.h"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"

bool system_random(void *out, size_t n_bytes)
{
    return getrandom(out, n_bytes, 0) == (ssize_t)n_bytes;
}

void system_sleep_on(_Atomic uint32_t *word, uint32_t old)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
}

void system_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 0x7FFFFFFF, NULL, NULL, 0);
}

int system_bell_open(void)
{
    return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
}

void system_bell_close(int bell)
{
    close(bell);
}

void system_bell_ring(int bell)
{
    uint64_t one = 1;
    (void)!write(bell, &one, sizeof one); /* full means that it rings already */
}

void system_bell_silence(int bell)
{
    uint64_t n;
    (void)!read(bell, &n, sizeof n);
}

uint64_t mem_machine_total(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && bytes > 0 ? (uint64_t)pages * (uint64_t)bytes : 0;
}

uint64_t mem_machine_available(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    unsigned long long kib = 0;
    char line[128];
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return (uint64_t)kib << 10;
}

int system_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

void system_cpu_name(char out[128])
{
    snprintf(out, 128, "unknown processor");
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256];
    while (f && fgets(line, sizeof line, f)) {
        const char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !value)
            continue;
        value += 1 + strspn(value + 1, " ");
        snprintf(out, 128, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    if (f)
        fclose(f);
}

void system_fd_path(int fd, char *out, size_t size)
{
    snprintf(out, size, "/proc/self/fd/%d", fd);
}

/* renameat2 that does not replace; older C libraries know the system call only. */
int system_rename_new(int dir_fd, const char *from, const char *to)
{
    enum { NO_REPLACE = 1 };
    return (int)syscall(SYS_renameat2, dir_fd, from, dir_fd, to, NO_REPLACE);
}

int system_forget_name(int dir_fd, const char *name, int *fd)
{
    return unlinkat(dir_fd, name, 0);
}

bool system_has_children(void)
{
    return true;
}

bool system_has_unix_sockets(void)
{
    return true;
}

void system_end_with_parent(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

void system_close_from(int fd)
{
    syscall(SYS_close_range, (unsigned)fd, ~0U, 0); /* musl has no function for it */
}
