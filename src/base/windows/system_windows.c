/* What Windows has in the place of Linux's own calls. */
#include "base/system.h"

#include "base/mem.h"
#include "base/windows/wide.h"

#include <bcrypt.h>
#include <cpuid.h>

bool system_random(void *out, size_t n_bytes)
{
    return BCryptGenRandom(NULL, out, (ULONG)n_bytes, BCRYPT_USE_SYSTEM_PREFERRED_RNG) == 0;
}

void system_sleep_on(_Atomic uint32_t *word, uint32_t old)
{
    WaitOnAddress((volatile void *)word, &old, sizeof old, INFINITE);
}

void system_wake(_Atomic uint32_t *word)
{
    WakeByAddressAll((void *)word);
}

/* A socket that is connected to itself: what it sends, it receives. */
int system_bell_open(void)
{
    struct sockaddr_in self = {.sin_family = AF_INET};
    int n = sizeof self;
    u_long on = 1;
    SOCKET s = socket(AF_INET, SOCK_DGRAM, IPPROTO_UDP);
    self.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bool ok = s != INVALID_SOCKET && bind(s, (struct sockaddr *)&self, n) == 0 &&
              getsockname(s, (struct sockaddr *)&self, &n) == 0 &&
              connect(s, (struct sockaddr *)&self, n) == 0 && ioctlsocket(s, FIONBIO, &on) == 0;
    if (!ok && s != INVALID_SOCKET)
        closesocket(s);
    return ok ? (int)s : -1;
}

void system_bell_close(int bell)
{
    closesocket((SOCKET)bell);
}

void system_bell_ring(int bell)
{
    send((SOCKET)bell, "", 1, 0); /* full means that it rings already */
}

void system_bell_silence(int bell)
{
    char bytes[64];
    while (recv((SOCKET)bell, bytes, sizeof bytes, 0) > 0)
        continue;
}

static uint64_t memory(bool is_available)
{
    MEMORYSTATUSEX status = {.dwLength = sizeof status};
    if (!GlobalMemoryStatusEx(&status))
        return 0;
    return is_available ? status.ullAvailPhys : status.ullTotalPhys;
}

uint64_t mem_machine_total(void)
{
    return memory(false);
}

uint64_t mem_machine_available(void)
{
    return memory(true);
}

int system_cpu_count(void)
{
    DWORD_PTR ours = 0, all = 0;
    if (GetProcessAffinityMask(GetCurrentProcess(), &ours, &all) && ours)
        return __builtin_popcountll(ours);
    return (int)GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
}

void system_cpu_name(char out[128])
{
    unsigned words[12] = {0}, most = 0, unused;
    __get_cpuid(0x80000000, &most, &unused, &unused, &unused);
    for (unsigned i = 0; most >= 0x80000004 && i < 3; i++)
        __get_cpuid(0x80000002 + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                    &words[4 * i + 3]);
    const char *name = (const char *)words;
    name += strspn(name, " ");
    snprintf(out, 128, "%.48s", name[0] ? name : "unknown processor");
}

void system_fd_path(int fd, char *out, size_t size)
{
    wchar_t wide[WIDE_PATH];
    if (!wide_path_of(fd, wide) || !wide_to_path(wide, out, size))
        snprintf(out, size, "?");
}

/* The whole path of a name in an open folder. */
static bool path_in(int dir_fd, const char *name, wchar_t out[WIDE_PATH])
{
    wchar_t last[WIDE_PATH];
    if (!wide_path_of(dir_fd, out) || !wide_path(name, last) ||
        wcslen(out) + wcslen(last) + 2 > WIDE_PATH)
        return false;
    wcscat(out, L"\\");
    wcscat(out, last);
    return true;
}

int system_rename_new(int dir_fd, const char *from, const char *to)
{
    wchar_t a[WIDE_PATH], b[WIDE_PATH];
    if (!path_in(dir_fd, from, a) || !path_in(dir_fd, to, b))
        return -1;
    return MoveFileExW(a, b, 0) ? 0 : wide_fail();
}

/* A file without a name could not be opened again: this one goes when it is closed. */
int system_forget_name(int dir_fd, const char *name, int *fd)
{
    wchar_t path[WIDE_PATH];
    if (!path_in(dir_fd, name, path))
        return -1;
    HANDLE h = CreateFileW(path, GENERIC_READ | DELETE,
                           FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                           OPEN_EXISTING, FILE_FLAG_DELETE_ON_CLOSE, NULL);
    if (h == INVALID_HANDLE_VALUE)
        return wide_fail();
    int last = _open_osfhandle((intptr_t)h, _O_BINARY | _O_NOINHERIT);
    if (last < 0) {
        CloseHandle(h);
        return -1;
    }
    close(*fd);
    *fd = last;
    return 0;
}

bool system_has_children(void)
{
    return false;
}

bool system_has_unix_sockets(void)
{
    return false;
}

void system_end_with_parent(void)
{
}

void system_close_from(int fd)
{
}
