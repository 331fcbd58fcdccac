/* A process that only computes. */
#define _GNU_SOURCE
#include "base/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/system.h"

void *sandbox_share(size_t n_bytes)
{
    void *at = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

void sandbox_unshare(void *memory, size_t n_bytes)
{
    munmap(memory, n_bytes);
}

#if defined(__x86_64__)
#define OWN_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OWN_ARCH AUDIT_ARCH_AARCH64
#else
#define OWN_ARCH 0
#endif

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define END(what)   BPF_STMT(BPF_RET | BPF_K, what)
#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1), END(SECCOMP_RET_ALLOW)
#define REFUSE      (SECCOMP_RET_ERRNO | EPERM)

/* All system calls fail but these. Those of another architecture end the process. */
static bool forbid_calls(void)
{
    static const struct sock_filter rules[] = {
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCH, 1, 0),
        END(SECCOMP_RET_KILL_PROCESS),
        LOAD(nr),
        ALLOW(mmap),
        ALLOW(munmap),
        ALLOW(mremap),
        ALLOW(mprotect),
        ALLOW(madvise),
        ALLOW(brk),
        ALLOW(futex),
        ALLOW(rt_sigreturn),
        ALLOW(exit),
        ALLOW(exit_group),
        END(REFUSE),
    };
    struct sock_fprog program = {.len = sizeof rules / sizeof *rules,
                                 .filter = (struct sock_filter *)rules};
    return OWN_ARCH != 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Bytes of addresses that the process has; 0: unknown. Without the C library's memory. */
static uint64_t address_bytes(void)
{
    char text[32] = {0};
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    return n > 0 ? strtoull(text, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static bool limit(int what, uint64_t most)
{
    struct rlimit r = {.rlim_cur = most, .rlim_max = most};
    return setrlimit(what, &r) == 0;
}

bool sandbox_enter(uint64_t max_bytes, uint64_t max_ns)
{
    uint64_t now = address_bytes();
    system_close_from(0);
    return now > 0 && limit(RLIMIT_AS, now + max_bytes) &&
           limit(RLIMIT_CPU, max_ns / 1000000000 + 1) && limit(RLIMIT_CORE, 0) &&
           limit(RLIMIT_FSIZE, 0) && limit(RLIMIT_NOFILE, 0) && forbid_calls();
}
