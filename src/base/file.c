/* Files: mapping one to read, and reading a small one whole. */
#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_guard.h"

static lace_status io_error(lace_error *err, const char *path, const char *what)
{
    return error_set(err, LACE_E_IO, "%s: %s: %s", path, what, strerror(errno));
}

/*
 * Large pages, where the system reads the file into such: it does for mappings that ask. Weights in
 * place are read at 44 GB/s from pages of 4 KB where memory gives 60 (two cores of Zen 4).
 */
static void ask_for_large_pages(void *p, size_t n_bytes)
{
#ifdef MADV_HUGEPAGE
    madvise(p, n_bytes, MADV_HUGEPAGE); /* advice: it does not matter if it is not taken */
#endif
}

/* A regular file, open to read. O_NONBLOCK: not to wait for somebody who writes, if it is a pipe;
 * of a file it changes nothing. */
static lace_status open_regular(const char *path, int *out, struct stat *st, lace_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *out = -1;
    if (fd < 0)
        return io_error(err, path, "cannot open");
    lace_status status = LACE_OK;
    if (fstat(fd, st) != 0)
        status = io_error(err, path, "cannot stat");
    else if (!S_ISREG(st->st_mode))
        status = error_set(err, LACE_E_IO, "%s: is not a regular file", path);
    return GIVE_OR_FREE(status, fd, out, close);
}

lace_status file_map_open(const char *path, file_map *out, lace_error *err)
{
    *out = (file_map){{NULL, 0}};
    struct stat st;
    int fd;
    TRY(open_regular(path, &fd, &st, err));
    lace_status status = LACE_OK;
    if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            status = io_error(err, path, "cannot map");
        } else if (!file_guard_add(p, (size_t)st.st_size)) {
            munmap(p, (size_t)st.st_size);
            status = error_nomem(err, path);
        } else {
            ask_for_large_pages(p, (size_t)st.st_size);
            out->bytes = (span){p, (size_t)st.st_size};
        }
    }
    close(fd);
    return status;
}

void file_map_close(file_map *map)
{
    file_guard_remove(map->bytes.data);
    if (map->bytes.data)
        munmap((void *)map->bytes.data, map->bytes.size);
    *map = (file_map){{NULL, 0}};
}

void file_map_release(const file_map *map, const void *data, size_t n_bytes)
{
    const uint8_t *p = data, *begin = map->bytes.data;
    if (!begin) /* bytes that were never a file */
        return;
    const uint8_t *end = begin + map->bytes.size;
    if (p < begin || p > end || n_bytes > (size_t)(end - p))
        return;
    /* Whole pages inside the range only: a neighbour may still be in use. */
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)p + page - 1) & ~(page - 1);
    uintptr_t to = ((uintptr_t)p + n_bytes) & ~(page - 1);
    if (to > from)
        madvise((void *)from, to - from, MADV_DONTNEED);
}

static lace_status read_all(int fd, const char *path, buf *out, lace_error *err)
{
    char chunk[65536];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return io_error(err, path, "cannot read");
        if (n == 0)
            return LACE_OK;
        lace_status status = buf_append(out, chunk, (size_t)n);
        if (status == LACE_E_LIMIT)
            return error_set(err, status, "%s: longer than the limit of %zu bytes", path, out->max);
        if (status != LACE_OK)
            return error_nomem(err, path);
    }
}

lace_status file_read(const char *path, buf *out, lace_error *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return io_error(err, path, "cannot open");
    lace_status status = read_all(fd, path, out, err);
    if (!is_stdin)
        close(fd);
    return status;
}

lace_status file_read_regular(const char *path, buf *out, lace_error *err)
{
    struct stat st;
    int fd;
    TRY(open_regular(path, &fd, &st, err));
    lace_status status = read_all(fd, path, out, err);
    close(fd);
    return status;
}
