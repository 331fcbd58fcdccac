/* Writing a file so that it is there whole or not at all. */
#define _GNU_SOURCE
#include "base/file_write.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/system.h"

enum { BUFFER_BYTES = 256 * 1024, WRITE_MAX = 64 << 20 };

struct file_writer {
    int fd, dir_fd;          /* -1: closed */
    char *path;              /* links resolved */
    const char *name;        /* its last part */
    char temp[NAME_MAX + 1]; /* the temporary file's name; empty while it has none */
    size_t n_buffered;
    uint64_t n_written; /* bytes in the file */
    bool has_failed;
    unsigned char *buffer;
    file_rules rules;
};

/* ---- The system's calls, which a test can make fail ------------------------------------------ */

static atomic_long fail_index = -1, n_calls = 0;
static atomic_bool fail_short = false;

void file_writer_fail_at(long index, bool is_short)
{
    atomic_store(&n_calls, 0);
    atomic_store(&fail_short, is_short);
    atomic_store(&fail_index, index);
}

long file_writer_calls(void)
{
    return atomic_load(&n_calls);
}

/* Counts a call; true if it must fail, with errno set. */
static bool must_fail(void)
{
    long i = atomic_fetch_add(&n_calls, 1);
    if (i != atomic_load(&fail_index))
        return false;
    errno = ENOSPC;
    return true;
}

static lace_status io_error(file_writer *w, const char *what, lace_error *err)
{
    w->has_failed = true;
    /* What is to be written may lie in a mapped file, and the system then does the reading. */
    if (errno == EFAULT)
        return error_set(err, LACE_E_IO,
                         "%s: was not written: an input file was truncated while it was read; "
                         "restore that file and start again",
                         w->path);
    return error_set(err, LACE_E_IO, "%s: cannot %s: %s", w->path, what, strerror(errno));
}

static int sync_fd(int fd)
{
    int rc;
    do {
        rc = must_fail() ? -1 : fsync(fd);
    } while (rc != 0 && errno == EINTR);
    return rc;
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* The path itself, or what it leads to if it is a symbolic link. Refuses what is not a file. */
static lace_status resolve(const char *path, char **out, mode_t *mode, lace_error *err)
{
    struct stat st;
    char real[PATH_MAX];
    *out = NULL;
    *mode = 0;
    if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) {
        if (!realpath(path, real))
            return error_set(err, LACE_E_IO, "%s: cannot follow the link: %s", path,
                             strerror(errno));
        path = real;
    }
    if (stat(path, &st) == 0) {
        if (!S_ISREG(st.st_mode))
            return error_set(err, LACE_E_IO, "%s: exists and is not a regular file", path);
        *mode = st.st_mode & 07777;
    }
    *out = mem_strdup(path);
    return *out ? LACE_OK : error_nomem(err, "a file to write");
}

static void make_temp_name(file_writer *w)
{
    uint64_t random = 0;
    if (!system_random(&random, sizeof random))
        random = (uintptr_t)w ^ (uint64_t)getpid();
    /* Hidden, and short enough for any name. */
    snprintf(w->temp, sizeof w->temp, ".%.100s.%016llx.tmp", w->name, (unsigned long long)random);
}

static lace_status open_temp(file_writer *w, mode_t mode, lace_error *err)
{
    if (must_fail())
        return io_error(w, "create", err);
    /* A nameless file gets its name through /proc. */
    if (access("/proc/self/fd", X_OK) == 0)
        w->fd = openat(w->dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    for (int i = 0; w->fd < 0 && i < 100; i++) {
        make_temp_name(w);
        w->fd = openat(w->dir_fd, w->temp, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
        if (w->fd < 0)
            w->temp[0] = 0;
        if (w->fd < 0 && errno != EEXIST)
            break;
    }
    if (w->fd < 0)
        return io_error(w, "create a file beside it", err);
    if (mode && fchmod(w->fd, mode) != 0)
        return io_error(w, "set the permissions", err);
    return LACE_OK;
}

static lace_status open_directory(file_writer *w, lace_error *err)
{
    char *slash = strrchr(w->path, '/');
    w->name = slash ? slash + 1 : w->path;
    if (w->name[0] == 0 || strlen(w->name) > NAME_MAX)
        return error_set(err, LACE_E_ARG, "%s: is not the name of a file", w->path);
    if (!slash) {
        w->dir_fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } else {
        /* Shorten the path for a moment; the root keeps its slash. */
        char kept = slash[1];
        slash[1] = 0;
        w->dir_fd = open(w->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        slash[1] = kept;
    }
    return w->dir_fd < 0 ? io_error(w, "open the directory", err) : LACE_OK;
}

lace_status file_writer_create(const char *path, file_writer **out, lace_error *err)
{
    return file_writer_create_by(path, NULL, out, err);
}

static lace_status refuse_old(const char *path, lace_error *err)
{
    return error_set(err, LACE_E_IO, "%s: exists already and was left as it is", path);
}

lace_status file_writer_create_by(const char *path, const file_rules *rules, file_writer **out,
                                  lace_error *err)
{
    *out = NULL;
    file_writer *w = mem_calloc(1, sizeof *w);
    if (!w)
        return error_nomem(err, "a file to write");
    w->fd = w->dir_fd = -1;
    if (rules)
        w->rules = *rules;
    mode_t mode;
    lace_status status;
    TRY_GOTO(status, done, resolve(path, &w->path, &mode, err));
    if (w->rules.keeps_old && access(w->path, F_OK) == 0) {
        status = refuse_old(w->path, err);
        goto done;
    }
    w->buffer = mem_alloc(BUFFER_BYTES);
    if (!w->buffer) {
        status = error_nomem(err, "a file to write");
        goto done;
    }
    TRY_GOTO(status, done, open_directory(w, err));
    TRY_GOTO(status, done, open_temp(w, mode, err));
done:
    return GIVE_OR_FREE(status, w, out, file_writer_abort);
}

/* ---- Writing --------------------------------------------------------------------------------- */

static lace_status write_all(file_writer *w, const unsigned char *data, size_t n_bytes,
                             lace_error *err)
{
    while (n_bytes > 0) {
        size_t want = n_bytes < WRITE_MAX ? n_bytes : WRITE_MAX;
        if (atomic_load(&fail_short) && want > 1)
            want = want / 2;
        ssize_t n = must_fail() ? -1 : write(w->fd, data, want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            return io_error(w, "write", err);
        data += n;
        n_bytes -= (size_t)n;
        w->n_written += (uint64_t)n;
    }
    return LACE_OK;
}

static lace_status flush(file_writer *w, lace_error *err)
{
    size_t n = w->n_buffered;
    w->n_buffered = 0;
    return write_all(w, w->buffer, n, err);
}

lace_status file_writer_write(file_writer *w, const void *data, size_t n_bytes, lace_error *err)
{
    if (w->has_failed)
        return error_set(err, LACE_E_IO, "%s: an earlier write failed", w->path);
    if (n_bytes > BUFFER_BYTES - w->n_buffered)
        TRY(flush(w, err));
    if (n_bytes >= BUFFER_BYTES) {
        TRY(write_all(w, data, n_bytes, err));
    } else if (n_bytes > 0) {
        memcpy(w->buffer + w->n_buffered, data, n_bytes);
        w->n_buffered += n_bytes;
    }
    return LACE_OK;
}

/* ---- Ending ---------------------------------------------------------------------------------- */

/* Give a nameless file its name, or a temporary one if the name is taken. */
static lace_status link_name(file_writer *w, lace_error *err)
{
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", w->fd);
    if (must_fail())
        return io_error(w, "link", err);
    if (linkat(AT_FDCWD, self, w->dir_fd, w->name, AT_SYMLINK_FOLLOW) == 0)
        return LACE_OK;
    if (errno == EEXIST && w->rules.keeps_old)
        return refuse_old(w->path, err);
    /* Linking does not replace, renaming does. */
    for (int i = 0; errno == EEXIST && i < 100; i++) {
        make_temp_name(w);
        if (linkat(AT_FDCWD, self, w->dir_fd, w->temp, AT_SYMLINK_FOLLOW) == 0)
            return LACE_OK;
        w->temp[0] = 0;
    }
    return io_error(w, "link", err);
}

/* From the temporary name to the real one. */
static lace_status rename_temp(file_writer *w, lace_error *err)
{
    int rc = -1;
    if (must_fail())
        return io_error(w, "rename", err);
    if (w->rules.keeps_old) {
        rc = system_rename_new(w->dir_fd, w->temp, w->name);
        /* Some file systems cannot: then a moment is left in which another could come. */
        bool cannot = rc != 0 && (errno == EINVAL || errno == ENOSYS);
        if ((rc != 0 && errno == EEXIST) ||
            (cannot && faccessat(w->dir_fd, w->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0))
            return refuse_old(w->path, err);
        if (rc != 0 && !cannot)
            return io_error(w, "rename", err);
    }
    if (rc != 0 && renameat(w->dir_fd, w->temp, w->dir_fd, w->name) != 0)
        return io_error(w, "rename", err);
    w->temp[0] = 0;
    return LACE_OK;
}

static lace_status check(file_writer *w, lace_error *err)
{
    span bytes = {NULL, (size_t)w->n_written};
    void *map = NULL;
    if (!w->rules.check)
        return LACE_OK;
    if (bytes.size > 0) {
        map = must_fail() ? MAP_FAILED : mmap(NULL, bytes.size, PROT_READ, MAP_SHARED, w->fd, 0);
        if (map == MAP_FAILED)
            return io_error(w, "map", err);
        bytes.data = map;
    }
    lace_status status = w->rules.check(w->rules.user, bytes, err);
    if (map)
        munmap(map, bytes.size);
    return status;
}

/* The file goes to the caller, without a name. */
static lace_status hand_over(file_writer *w, lace_error *err)
{
    if (w->temp[0] && system_forget_name(w->dir_fd, w->temp, &w->fd) != 0)
        return io_error(w, "take the name from", err);
    w->temp[0] = 0;
    *w->rules.fd = w->fd;
    w->fd = -1;
    return LACE_OK;
}

static lace_status commit(file_writer *w, lace_error *err)
{
    if (w->has_failed)
        return error_set(err, LACE_E_IO, "%s: an earlier write failed", w->path);
    TRY(flush(w, err));
    TRY(check(w, err));
    if (w->rules.fd)
        return hand_over(w, err);
    if (sync_fd(w->fd) != 0)
        return io_error(w, "flush", err);
    if (!w->temp[0])
        TRY(link_name(w, err));
    if (w->temp[0])
        TRY(rename_temp(w, err));
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0)
        return io_error(w, "close", err);
    /* Some file systems do not flush directories; they say EINVAL. */
    if (sync_fd(w->dir_fd) != 0 && errno != EINVAL)
        return io_error(w, "flush the directory", err);
    return LACE_OK;
}

lace_status file_writer_commit(file_writer *w, lace_error *err)
{
    lace_status status = commit(w, err);
    file_writer_abort(w);
    return status;
}

void file_writer_abort(file_writer *w)
{
    if (!w)
        return;
    if (w->temp[0])
        unlinkat(w->dir_fd, w->temp, 0);
    if (w->fd >= 0)
        close(w->fd);
    if (w->dir_fd >= 0)
        close(w->dir_fd);
    mem_free_all(w->buffer, w->path, w);
}

lace_status file_write_whole(const char *path, const file_rules *rules, const void *data,
                             size_t n_bytes, lace_error *err)
{
    file_writer *w;
    TRY(file_writer_create_by(path, rules, &w, err));
    lace_status status = file_writer_write(w, data, n_bytes, err);
    if (status != LACE_OK) {
        file_writer_abort(w);
        return status;
    }
    return file_writer_commit(w, err);
}
