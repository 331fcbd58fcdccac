/* What Linux has and other systems have in their own way. */
#define _GNU_SOURCE
#include "base/system.h"

#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

bool system_random(void *out, size_t n_bytes)
{
    return getrandom(out, n_bytes, 0) == (ssize_t)n_bytes;
}

int system_bell_open(void)
{
    return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
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

void system_end_with_parent(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

void system_close_from(int fd)
{
    close_range((unsigned)fd, ~0U, 0);
}
