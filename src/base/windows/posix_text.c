/* Text, the environment, signals and the terminal as POSIX has them; and what cannot be had here. */
#include "base/windows/wide.h"

#include <pthread.h>
#include <poll.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#undef signal
#undef sigemptyset

/* ---- Text ------------------------------------------------------------------------------------ */

/* Linear in the worst case, as callers count on: what was found already is not looked at again. */
void *memmem(const void *data, size_t n_data, const void *part, size_t n_part)
{
    const unsigned char *x = data, *y = part;
    if (n_part == 0)
        return (void *)(uintptr_t)x;
    if (n_part > n_data)
        return NULL;
    if (n_part == 1)
        return (void *)(uintptr_t)memchr(x, y[0], n_data);
    /* Knuth, Morris, Pratt: how much of the part still fits after a byte that does not. */
    size_t small[256], *fits = n_part <= 256 ? small : malloc(n_part * sizeof *fits), k = 0;
    if (!fits)
        return NULL;
    fits[0] = 0;
    for (size_t i = 1; i < n_part; i++) {
        while (k > 0 && y[i] != y[k])
            k = fits[k - 1];
        k += y[i] == y[k];
        fits[i] = k;
    }
    const unsigned char *found = NULL;
    k = 0;
    for (size_t i = 0; i < n_data && !found; i++) {
        if (k == 0) { /* where nothing fits, the library looks for the first byte */
            const unsigned char *next = memchr(x + i, y[0], n_data - i);
            if (!next)
                break;
            i = (size_t)(next - x);
        }
        while (k > 0 && x[i] != y[k])
            k = fits[k - 1];
        k += x[i] == y[k];
        if (k == n_part)
            found = x + i + 1 - n_part;
    }
    if (fits != small)
        free(fits);
    return (void *)(uintptr_t)found;
}

char *strcasestr(const char *text, const char *part)
{
    size_t n = strlen(part);
    for (; *text || n == 0; text++)
        if (_strnicmp(text, part, n) == 0)
            return (char *)(uintptr_t)text;
    return NULL;
}

char *strndup(const char *text, size_t n)
{
    size_t length = strnlen(text, n);
    char *out = malloc(length + 1);
    if (out) {
        memcpy(out, text, length);
        out[length] = 0;
    }
    return out;
}

ssize_t getline(char **line, size_t *capacity, FILE *f)
{
    size_t n = 0;
    for (int c; (c = fgetc(f)) != EOF;) {
        if (n + 2 > *capacity) {
            size_t wanted = *capacity ? 2 * *capacity : 256;
            char *grown = realloc(*line, wanted);
            if (!grown)
                return -1;
            *line = grown;
            *capacity = wanted;
        }
        (*line)[n++] = (char)c;
        if (c == '\n')
            break;
    }
    if (n == 0)
        return -1;
    if (n >= 2 && (*line)[n - 1] == '\n' && (*line)[n - 2] == '\r') /* as a console ends a line */
        (*line)[n-- - 2] = '\n';
    (*line)[n] = 0;
    return (ssize_t)n;
}

/* ---- The environment ------------------------------------------------------------------------- */

/* What was given out stays: a caller may keep it. Few names are asked for. */
typedef struct known {
    struct known *next;
    char *value;
    char name[];
} known;
static known *all_known;
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

static char *remember(const char *name, const wchar_t *wide)
{
    char value[32768];
    if (WideCharToMultiByte(CP_UTF8, 0, wide, -1, value, sizeof value, NULL, NULL) <= 0)
        return NULL;
    for (known *k = all_known; k; k = k->next)
        if (strcmp(k->name, name) == 0 && strcmp(k->value, value) == 0)
            return k->value;
    known *k = malloc(sizeof *k + strlen(name) + 1);
    if (!k)
        return NULL;
    strcpy(k->name, name);
    k->value = _strdup(value);
    k->next = all_known;
    all_known = k;
    return k->value;
}

/* HOME and TMPDIR have other names here. */
static const char *own_name(const char *name)
{
    return strcmp(name, "HOME") == 0 ? "USERPROFILE" : strcmp(name, "TMPDIR") == 0 ? "TEMP" : NULL;
}

char *posix_getenv(const char *name)
{
    wchar_t wide[512];
    const wchar_t *value = NULL;
    for (int i = 0; !value && name && i < 2; i++) {
        if (MultiByteToWideChar(CP_UTF8, 0, name, -1, wide, 512) > 0)
            value = _wgetenv(wide);
        name = value ? name : own_name(name);
    }
    pthread_mutex_lock(&known_lock);
    char *out = value ? remember(name, value) : NULL;
    pthread_mutex_unlock(&known_lock);
    return out;
}

int setenv(const char *name, const char *value, int replaces)
{
    wchar_t wide_name[512], wide_value[32768];
    if (!replaces && posix_getenv(name))
        return 0;
    if (MultiByteToWideChar(CP_UTF8, 0, name, -1, wide_name, 512) <= 0 ||
        MultiByteToWideChar(CP_UTF8, 0, value, -1, wide_value, 32768) <= 0)
        return -1;
    return _wputenv_s(wide_name, wide_value) == 0 ? 0 : -1;
}

int unsetenv(const char *name)
{
    return setenv(name, "", 1);
}

/* ---- Signals and the terminal ---------------------------------------------------------------- */

static bool is_known(int number)
{
    return number == SIGINT || number == SIGTERM;
}

void (*posix_signal(int number, void (*handler)(int)))(int)
{
    return is_known(number) ? signal(number, handler) : SIG_DFL;
}

int sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
    void (*before)(int) = posix_signal(number, action->sa_handler);
    if (old)
        *old = (struct sigaction){.sa_handler = before};
    return 0;
}

int posix_sigemptyset(int *mask)
{
    *mask = 0;
    return 0;
}

int posix_poll(struct pollfd *list, unsigned n, int timeout_ms)
{
    for (unsigned i = 0; i < n; i++)
        list[i].revents = list[i].events;
    return (int)n;
}

int ioctl(int fd, int what, struct winsize *out)
{
    CONSOLE_SCREEN_BUFFER_INFO info;
    if (!GetConsoleScreenBufferInfo((HANDLE)_get_osfhandle(fd), &info))
        return -1;
    *out =
        (struct winsize){.ws_row = (unsigned short)(info.srWindow.Bottom - info.srWindow.Top + 1),
                         .ws_col = (unsigned short)(info.srWindow.Right - info.srWindow.Left + 1)};
    return 0;
}

int posix_isatty(int fd)
{
    DWORD mode;
    return GetConsoleMode((HANDLE)_get_osfhandle(fd), &mode) != 0;
}

int tcgetattr(int fd, struct termios *out)
{
    *out = (struct termios){0};
    return posix_isatty(fd) ? 0 : -1;
}

int tcsetattr(int fd, int when, const struct termios *state)
{
    return 0;
}

/* ---- The machine ----------------------------------------------------------------------------- */

long sysconf(int what)
{
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return what == _SC_PAGESIZE           ? (long)info.dwPageSize
           : what == _SC_NPROCESSORS_ONLN ? (long)info.dwNumberOfProcessors
                                          : -1;
}

int getrlimit(int what, struct rlimit *out)
{
    *out = (struct rlimit){UINT64_MAX, UINT64_MAX};
    return 0;
}

int setrlimit(int what, const struct rlimit *limit)
{
    return 0;
}

int setpriority(int which, int who, int nice)
{
    int priority = nice > 0 ? THREAD_PRIORITY_BELOW_NORMAL : THREAD_PRIORITY_NORMAL;
    return SetThreadPriority(GetCurrentThread(), priority) ? 0 : -1;
}

/* ---- Children: there are none ---------------------------------------------------------------- */

static int refuse(void)
{
    errno = ENOSYS;
    return -1;
}

int fork(void)
{
    return refuse();
}

int posix_execv(const char *path, char *const *words)
{
    return refuse();
}

int posix_execvp(const char *path, char *const *words)
{
    return refuse();
}

int kill(pid_t pid, int number)
{
    return refuse();
}

pid_t getppid(void)
{
    return refuse();
}

int setpgid(pid_t pid, pid_t group)
{
    return refuse();
}

int posix_pipe(int ends[2])
{
    return refuse();
}

int posix_pipe2(int ends[2], int flags)
{
    return refuse();
}

pid_t waitpid(pid_t pid, int *status, int flags)
{
    return refuse();
}

int posix_spawn_file_actions_init(posix_spawn_file_actions_t *a)
{
    return 0;
}

int posix_spawn_file_actions_destroy(posix_spawn_file_actions_t *a)
{
    return 0;
}

int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *a, int from, int to)
{
    return 0;
}

int posix_spawn_file_actions_addopen(posix_spawn_file_actions_t *a, int fd, const char *path,
                                     int flags, unsigned mode)
{
    return 0;
}

int posix_spawn_file_actions_addclose(posix_spawn_file_actions_t *a, int fd)
{
    return 0;
}

int posix_spawnp(pid_t *pid, const char *name, const posix_spawn_file_actions_t *actions,
                 const void *attributes, char *const *words, char *const *environment)
{
    return ENOSYS;
}
