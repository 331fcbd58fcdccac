/* Files and folders as POSIX has them. */
#include <stdarg.h>

#include "base/mem.h"
#include "base/windows/wide.h"

#include <dlfcn.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

#undef read
#undef write
#undef close

enum { SHARE_ALL = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE };

/* name in a folder that is open; a name that needs none stays as it is. */
static bool path_at(int dir, const char *name, wchar_t out[WIDE_PATH])
{
    wchar_t last[WIDE_PATH];
    if (dir == AT_FDCWD)
        return wide_path(name, out);
    if (!wide_path(name, last) || !wide_path_of(dir, out))
        return false;
    if (wcscmp(last, L".") == 0)
        return true;
    if (wcslen(out) + wcslen(last) + 2 > WIDE_PATH) {
        errno = ENAMETOOLONG;
        return false;
    }
    wcscat(out, L"\\");
    wcscat(out, last);
    return true;
}

/* ---- What a file is -------------------------------------------------------------------------- */

static void to_time(FILETIME t, struct timespec *out)
{
    /* Tenths of microseconds since 1601. */
    uint64_t ticks = (uint64_t)t.dwHighDateTime << 32 | t.dwLowDateTime;
    ticks -= UINT64_C(116444736000000000);
    out->tv_sec = (time_t)(ticks / 10000000);
    out->tv_nsec = (long)(ticks % 10000000 * 100);
}

static int stat_handle(HANDLE h, struct posix_stat *out)
{
    BY_HANDLE_FILE_INFORMATION info;
    memset(out, 0, sizeof *out);
    DWORD type = GetFileType(h);
    if (type == FILE_TYPE_CHAR || type == FILE_TYPE_PIPE) {
        out->st_mode = (type == FILE_TYPE_CHAR ? S_IFCHR : S_IFIFO) | 0600;
        return 0;
    }
    if (!GetFileInformationByHandle(h, &info))
        return wide_fail();
    bool is_folder = info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY;
    bool is_fixed = info.dwFileAttributes & FILE_ATTRIBUTE_READONLY;
    out->st_mode = is_folder ? S_IFDIR | 0755 : S_IFREG | (is_fixed ? 0444u : 0644u);
    if (info.dwFileAttributes &
        FILE_ATTRIBUTE_REPARSE_POINT) /* only where links are not followed */
        out->st_mode = S_IFLNK | 0777;
    out->st_size = (int64_t)((uint64_t)info.nFileSizeHigh << 32 | info.nFileSizeLow);
    out->st_blocks = (out->st_size + 511) / 512;
    out->st_dev = info.dwVolumeSerialNumber;
    out->st_ino = (uint64_t)info.nFileIndexHigh << 32 | info.nFileIndexLow;
    to_time(info.ftLastWriteTime, &out->st_mtim);
    return 0;
}

static int stat_wide(const wchar_t *path, DWORD flags, struct posix_stat *out)
{
    HANDLE h = CreateFileW(path, FILE_READ_ATTRIBUTES, SHARE_ALL, NULL, OPEN_EXISTING,
                           FILE_FLAG_BACKUP_SEMANTICS | flags, NULL);
    if (h == INVALID_HANDLE_VALUE)
        return wide_fail();
    int rc = stat_handle(h, out);
    CloseHandle(h);
    return rc;
}

int posix_stat(const char *path, struct posix_stat *out)
{
    wchar_t wide[WIDE_PATH];
    return wide_path(path, wide) ? stat_wide(wide, 0, out) : -1;
}

int posix_lstat(const char *path, struct posix_stat *out)
{
    wchar_t wide[WIDE_PATH];
    return wide_path(path, wide) ? stat_wide(wide, FILE_FLAG_OPEN_REPARSE_POINT, out) : -1;
}

int fstatat(int dir, const char *name, struct posix_stat *out, int flags)
{
    wchar_t wide[WIDE_PATH];
    DWORD more = flags & AT_SYMLINK_NOFOLLOW ? FILE_FLAG_OPEN_REPARSE_POINT : 0;
    return path_at(dir, name, wide) ? stat_wide(wide, more, out) : -1;
}

int posix_fstat(int fd, struct posix_stat *out)
{
    return stat_handle((HANDLE)_get_osfhandle(fd), out);
}

static int access_wide(const wchar_t *path, int mode)
{
    DWORD attributes = GetFileAttributesW(path);
    if (attributes == INVALID_FILE_ATTRIBUTES)
        return wide_fail();
    if ((mode & W_OK) && (attributes & FILE_ATTRIBUTE_READONLY) &&
        !(attributes & FILE_ATTRIBUTE_DIRECTORY)) {
        errno = EACCES;
        return -1;
    }
    return 0;
}

int posix_access(const char *path, int mode)
{
    wchar_t wide[WIDE_PATH];
    return wide_path(path, wide) ? access_wide(wide, mode) : -1;
}

int faccessat(int dir, const char *name, int mode, int flags)
{
    wchar_t wide[WIDE_PATH];
    return path_at(dir, name, wide) ? access_wide(wide, mode) : -1;
}

int statvfs(const char *path, struct statvfs *out)
{
    wchar_t wide[WIDE_PATH];
    ULARGE_INTEGER available;
    if (!wide_path(path, wide))
        return -1;
    if (!GetDiskFreeSpaceExW(wide, &available, NULL, NULL))
        return wide_fail();
    *out = (struct statvfs){.f_bavail = available.QuadPart, .f_frsize = 1};
    return 0;
}

char *posix_realpath(const char *path, char out[PATH_MAX])
{
    wchar_t wide[WIDE_PATH], full[WIDE_PATH];
    if (!wide_path(path, wide))
        return NULL;
    HANDLE h =
        CreateFileW(wide, 0, SHARE_ALL, NULL, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
    DWORD n = h == INVALID_HANDLE_VALUE ? 0 : GetFinalPathNameByHandleW(h, full, WIDE_PATH, 0);
    if (n == 0 || n >= WIDE_PATH)
        wide_fail();
    if (h != INVALID_HANDLE_VALUE)
        CloseHandle(h);
    return n > 0 && n < WIDE_PATH && wide_to_path(full, out, PATH_MAX) ? out : NULL;
}

/* Only the program itself: nothing else asks for what a link says. */
ssize_t readlink(const char *path, char *out, size_t n)
{
    wchar_t wide[WIDE_PATH];
    char full[WIDE_PATH];
    errno = EINVAL;
    if (strcmp(path, "/proc/self/exe") != 0)
        return -1;
    DWORD size = GetModuleFileNameW(NULL, wide, WIDE_PATH);
    if (size == 0 || size >= WIDE_PATH || !wide_to_path(wide, full, sizeof full))
        return -1;
    size_t length = strlen(full) < n ? strlen(full) : n;
    memcpy(out, full, length);
    return (ssize_t)length;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static int open_wide(const wchar_t *path, int flags, unsigned mode)
{
    static const DWORD rights[4] = {GENERIC_READ, GENERIC_WRITE, GENERIC_READ | GENERIC_WRITE, 0};
    DWORD access = rights[flags & 3], how = OPEN_EXISTING;
    if (flags & O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (flags & O_APPEND) /* and FILE_WRITE_DATA, or the file could not be cut */
        access |= FILE_APPEND_DATA;
    if (flags & O_CREAT)
        how = flags & O_EXCL ? CREATE_NEW : flags & O_TRUNC ? CREATE_ALWAYS : OPEN_ALWAYS;
    else if (flags & O_TRUNC)
        how = TRUNCATE_EXISTING;
    HANDLE h = CreateFileW(path, access, SHARE_ALL, NULL, how,
                           FILE_ATTRIBUTE_NORMAL | FILE_FLAG_BACKUP_SEMANTICS, NULL);
    BY_HANDLE_FILE_INFORMATION info;
    if (h == INVALID_HANDLE_VALUE)
        return wide_fail();
    bool is_folder = GetFileInformationByHandle(h, &info) &&
                     (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
    if (is_folder ? (flags & 3) != O_RDONLY : (flags & O_DIRECTORY) != 0) {
        CloseHandle(h);
        errno = is_folder ? EISDIR : ENOTDIR;
        return -1;
    }
    int fd = _open_osfhandle((intptr_t)h, (flags & O_APPEND) | _O_BINARY | _O_NOINHERIT);
    if (fd < 0)
        CloseHandle(h);
    return fd;
}

int posix_open(const char *path, int flags, ...)
{
    wchar_t wide[WIDE_PATH];
    if (strcmp(path, "/dev/null") == 0)
        path = "NUL";
    return wide_path(path, wide) ? open_wide(wide, flags, 0) : -1;
}

int openat(int dir, const char *name, int flags, ...)
{
    wchar_t wide[WIDE_PATH];
    return path_at(dir, name, wide) ? open_wide(wide, flags, 0) : -1;
}

FILE *posix_fopen(const char *path, const char *mode)
{
    bool is_both = strchr(mode, '+') != NULL;
    int flags = mode[0] == 'r'   ? is_both ? O_RDWR : O_RDONLY
                : mode[0] == 'w' ? (is_both ? O_RDWR : O_WRONLY) | O_CREAT | O_TRUNC
                                 : (is_both ? O_RDWR : O_WRONLY) | O_CREAT | O_APPEND;
    char bare[4] = {mode[0], 'b', is_both ? '+' : 0, 0};
    int fd = posix_open(path, flags);
    FILE *f = fd < 0 ? NULL : _fdopen(fd, bare);
    if (fd >= 0 && !f)
        _close(fd);
    return f;
}

int posix_close(int fd)
{
    return _close(fd);
}

/* ---- Names ----------------------------------------------------------------------------------- */

static int rename_wide(const wchar_t *from, const wchar_t *to)
{
    return MoveFileExW(from, to, MOVEFILE_REPLACE_EXISTING) ? 0 : wide_fail();
}

int posix_rename(const char *from, const char *to)
{
    wchar_t a[WIDE_PATH], b[WIDE_PATH];
    return wide_path(from, a) && wide_path(to, b) ? rename_wide(a, b) : -1;
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    wchar_t a[WIDE_PATH], b[WIDE_PATH];
    return path_at(from_dir, from, a) && path_at(to_dir, to, b) ? rename_wide(a, b) : -1;
}

static int unlink_wide(const wchar_t *path)
{
    return DeleteFileW(path) ? 0 : wide_fail();
}

int posix_unlink(const char *path)
{
    wchar_t wide[WIDE_PATH];
    return wide_path(path, wide) ? unlink_wide(wide) : -1;
}

int unlinkat(int dir, const char *name, int flags)
{
    wchar_t wide[WIDE_PATH];
    return path_at(dir, name, wide) ? unlink_wide(wide) : -1;
}

int posix_mkdir(const char *path, unsigned mode)
{
    wchar_t wide[WIDE_PATH];
    return wide_path(path, wide) && (CreateDirectoryW(wide, NULL) || wide_fail() == 0) ? 0 : -1;
}

int posix_rmdir(const char *path)
{
    wchar_t wide[WIDE_PATH];
    return wide_path(path, wide) && (RemoveDirectoryW(wide) || wide_fail() == 0) ? 0 : -1;
}

/* A folder for the time being; "/tmp" is the user's own. */
char *mkdtemp(char *path)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    char *end = path + strlen(path) - 6;
    for (unsigned try = 0; try < 100; try++) {
        uint64_t random = (uint64_t)GetTickCount64() * 1000003 + GetCurrentProcessId() * 7919 + try;
        for (int i = 0; i < 6; i++, random /= 36)
            end[i] = letters[random % 36];
        if (posix_mkdir(path, 0700) == 0)
            return path;
        if (errno != EEXIST)
            return NULL;
    }
    return NULL;
}

static int refuse(void)
{
    errno = ENOSYS;
    return -1;
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    return refuse();
}

int symlink(const char *to, const char *path)
{
    return refuse();
}

/* ---- Reading and writing --------------------------------------------------------------------- */

enum { MOST_AT_ONCE = 1 << 30 }; /* the C library counts in int */

ssize_t posix_read(int fd, void *out, size_t n)
{
    int got = _read(fd, out, n < MOST_AT_ONCE ? (unsigned)n : MOST_AT_ONCE);
    struct posix_stat st;
    if (got < 0 && posix_fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        errno = EISDIR;
    return got;
}

ssize_t posix_write(int fd, const void *data, size_t n)
{
    return _write(fd, data, n < MOST_AT_ONCE ? (unsigned)n : MOST_AT_ONCE);
}

static OVERLAPPED place(int64_t at)
{
    return (OVERLAPPED){.Offset = (DWORD)at, .OffsetHigh = (DWORD)(at >> 32)};
}

ssize_t pread(int fd, void *out, size_t n, int64_t at)
{
    OVERLAPPED where = place(at);
    DWORD done = 0;
    if (ReadFile((HANDLE)_get_osfhandle(fd), out, n < MOST_AT_ONCE ? (DWORD)n : MOST_AT_ONCE, &done,
                 &where))
        return (ssize_t)done;
    return GetLastError() == ERROR_HANDLE_EOF ? 0 : wide_fail();
}

ssize_t pwrite(int fd, const void *data, size_t n, int64_t at)
{
    OVERLAPPED where = place(at);
    DWORD done = 0;
    return WriteFile((HANDLE)_get_osfhandle(fd), data, n < MOST_AT_ONCE ? (DWORD)n : MOST_AT_ONCE,
                     &done, &where)
               ? (ssize_t)done
               : wide_fail();
}

int posix_fsync(int fd)
{
    struct posix_stat st;
    if (posix_fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        return 0; /* folders cannot be flushed: their changes are in the journal */
    return FlushFileBuffers((HANDLE)_get_osfhandle(fd)) ? 0 : wide_fail();
}

int posix_ftruncate(int fd, int64_t size)
{
    FILE_END_OF_FILE_INFO end = {.EndOfFile.QuadPart = size};
    return SetFileInformationByHandle((HANDLE)_get_osfhandle(fd), FileEndOfFileInfo, &end,
                                      sizeof end)
               ? 0
               : wide_fail();
}

/* Who may read a file follows from its folder. */
int fchmod(int fd, unsigned mode)
{
    return 0;
}

int mkfifo(const char *path, unsigned mode)
{
    return refuse();
}

int fcntl(int fd, int what, ...)
{
    return refuse();
}

int fallocate(int fd, int mode, int64_t from, int64_t n)
{
    return refuse();
}

int futimens(int fd, const struct timespec times[2])
{
    FILETIME t;
    GetSystemTimeAsFileTime(&t);
    if (times && times[1].tv_nsec != UTIME_NOW) {
        uint64_t ticks = (uint64_t)times[1].tv_sec * 10000000 + (uint64_t)times[1].tv_nsec / 100 +
                         UINT64_C(116444736000000000);
        t = (FILETIME){(DWORD)ticks, (DWORD)(ticks >> 32)};
    }
    return SetFileTime((HANDLE)_get_osfhandle(fd), NULL, NULL, &t) ? 0 : wide_fail();
}

/* One byte far behind the end stands for the file: those who read do not ask for locks. */
int flock(int fd, int operation)
{
    HANDLE h = (HANDLE)_get_osfhandle(fd);
    OVERLAPPED where = place(INT64_MAX - 1);
    DWORD flags = (operation & LOCK_EX ? LOCKFILE_EXCLUSIVE_LOCK : 0) |
                  (operation & LOCK_NB ? LOCKFILE_FAIL_IMMEDIATELY : 0);
    if (operation & LOCK_UN)
        return UnlockFileEx(h, 0, 1, 0, &where) ? 0 : wide_fail();
    if (LockFileEx(h, flags, 0, 1, 0, &where))
        return 0;
    bool is_taken = GetLastError() == ERROR_LOCK_VIOLATION || GetLastError() == ERROR_IO_PENDING;
    wide_fail();
    if (is_taken)
        errno = EWOULDBLOCK;
    return -1;
}

/* ---- Folders --------------------------------------------------------------------------------- */

struct posix_dir {
    HANDLE search;
    WIN32_FIND_DATAW found;
    bool is_first; /* `found` was not given out yet */
    int fd;        /* -1: none */
    struct posix_dirent entry;
    wchar_t pattern[WIDE_PATH];
};

static posix_dir *start_search(posix_dir *d)
{
    d->search = FindFirstFileW(d->pattern, &d->found);
    d->is_first = d->search != INVALID_HANDLE_VALUE;
    return d;
}

static posix_dir *open_folder(const wchar_t *path, int fd)
{
    posix_dir *d = calloc(1, sizeof *d);
    if (!d || wcslen(path) + 3 > WIDE_PATH) {
        free(d);
        errno = ENOMEM;
        return NULL;
    }
    wcscpy(d->pattern, path);
    wcscat(d->pattern, L"\\*");
    d->fd = fd;
    if (start_search(d)->is_first)
        return d;
    wide_fail();
    free(d);
    return NULL;
}

posix_dir *posix_opendir(const char *path)
{
    wchar_t wide[WIDE_PATH];
    struct posix_stat st;
    if (posix_stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
        errno = ENOTDIR;
        return NULL;
    }
    return wide_path(path, wide) ? open_folder(wide, -1) : NULL;
}

posix_dir *fdopendir(int fd)
{
    wchar_t wide[WIDE_PATH];
    return wide_path_of(fd, wide) ? open_folder(wide, fd) : NULL;
}

struct posix_dirent *posix_readdir(posix_dir *d)
{
    if (!d->is_first && !FindNextFileW(d->search, &d->found))
        return NULL;
    d->is_first = false;
    return wide_to_path(d->found.cFileName, d->entry.d_name, sizeof d->entry.d_name) ? &d->entry
                                                                                     : NULL;
}

void posix_rewinddir(posix_dir *d)
{
    FindClose(d->search);
    start_search(d);
}

int dirfd(posix_dir *d)
{
    d->pattern[wcslen(d->pattern) - 2] = 0;
    if (d->fd < 0)
        d->fd = open_wide(d->pattern, O_RDONLY | O_DIRECTORY, 0);
    wcscat(d->pattern, L"\\*");
    return d->fd;
}

int posix_closedir(posix_dir *d)
{
    FindClose(d->search);
    if (d->fd >= 0)
        _close(d->fd);
    free(d);
    return 0;
}

int alphasort(const struct posix_dirent **a, const struct posix_dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

int scandir(const char *path, struct posix_dirent ***out, int (*wants)(const struct posix_dirent *),
            int (*compare)(const struct posix_dirent **, const struct posix_dirent **))
{
    posix_dir *d = posix_opendir(path);
    struct posix_dirent **list = NULL;
    size_t n = 0, capacity = 0;
    bool ok = d != NULL;
    for (struct posix_dirent *e; ok && (e = posix_readdir(d));) {
        if (wants && !wants(e))
            continue;
        ok = mem_grow(&list, n, &capacity, sizeof *list, 64) && (list[n] = malloc(sizeof *e));
        if (ok)
            *list[n++] = *e;
    }
    if (d)
        posix_closedir(d);
    if (!ok) {
        while (n > 0)
            free(list[--n]);
        free(list);
        return -1;
    }
    if (n > 0)
        qsort(list, n, sizeof *list, (int (*)(const void *, const void *))(uintptr_t)compare);
    *out = list;
    return (int)n;
}

/* ---- Mapping --------------------------------------------------------------------------------- */

void *mmap(void *at, size_t n_bytes, int protection, int flags, int fd, int64_t offset)
{
    if (flags & MAP_ANONYMOUS) {
        void *p = VirtualAlloc(NULL, n_bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
        return p ? p : (wide_fail(), errno = ENOMEM, MAP_FAILED);
    }
    HANDLE map = CreateFileMappingW((HANDLE)_get_osfhandle(fd), NULL, PAGE_READONLY, 0, 0, NULL);
    void *p = map ? MapViewOfFile(map, FILE_MAP_READ, (DWORD)(offset >> 32), (DWORD)offset, n_bytes)
                  : NULL;
    if (!p)
        wide_fail();
    if (map)
        CloseHandle(map); /* the view keeps what it needs */
    return p ? p : MAP_FAILED;
}

static bool is_anonymous(const void *at)
{
    MEMORY_BASIC_INFORMATION info;
    return VirtualQuery(at, &info, sizeof info) && info.Type == MEM_PRIVATE;
}

int munmap(void *at, size_t n_bytes)
{
    return (is_anonymous(at) ? VirtualFree(at, 0, MEM_RELEASE) : UnmapViewOfFile(at)) ? 0
                                                                                      : wide_fail();
}

int madvise(void *at, size_t n_bytes, int advice)
{
    if (advice != MADV_DONTNEED || !is_anonymous(at))
        return 0;
    /* Whole pages, as Linux has it; memory begins with one. */
    uintptr_t page = 4096, from = (uintptr_t)at & ~(page - 1);
    uintptr_t to = ((uintptr_t)at + n_bytes + page - 1) & ~(page - 1);
    if (to <= from)
        return 0;
    return VirtualFree((void *)from, to - from, MEM_DECOMMIT) &&
                   VirtualAlloc((void *)from, to - from, MEM_COMMIT, PAGE_READWRITE)
               ? 0
               : wide_fail();
}

/* ---- Libraries ------------------------------------------------------------------------------- */

void *dlopen(const char *name, int flags)
{
    wchar_t wide[WIDE_PATH];
    return wide_path(name, wide) ? (void *)LoadLibraryW(wide) : NULL;
}

void *dlsym(void *library, const char *name)
{
    return (void *)(uintptr_t)GetProcAddress((HMODULE)library, name);
}

int dlclose(void *library)
{
    return FreeLibrary((HMODULE)library) ? 0 : -1;
}

char *dlerror(void)
{
    static char text[] = "there is no such library or function";
    return text;
}
