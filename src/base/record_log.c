/* A record log: reading it from its beginning, and adding to its end. */
#define _GNU_SOURCE
#include "base/record_log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/digest.h"
#include "base/mem.h"

enum { HEAD_BYTES = 4 + DIGEST_BYTES };

struct record_log {
    int fd;
    uint64_t n_bytes, max_bytes;
};

/* The next record; false: there is no good one. */
static bool next_record(cursor *c, span *out)
{
    uint32_t n;
    span sum;
    digest d;
    return cursor_u32(c, &n, "a record's size", NULL) == LACE_OK &&
           cursor_take(c, DIGEST_BYTES, &sum, "a record's digest", NULL) == LACE_OK &&
           cursor_take(c, n, out, "a record", NULL) == LACE_OK &&
           digest_of(out->data, out->size, NULL, 0, &d) &&
           memcmp(d.bytes, sum.data, DIGEST_BYTES) == 0;
}

static bool read_all(int fd, buf *b, size_t n)
{
    if (buf_reserve(b, n) != LACE_OK)
        return false;
    while (b->size < n) {
        ssize_t done = pread(fd, b->data + b->size, n - b->size, (off_t)b->size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        b->size += (size_t)done;
    }
    return true;
}

/* Give out all good records; the file ends behind them then. */
static lace_status read_records(record_log *l, record_log_fn fn, void *user, lace_error *err)
{
    struct stat st;
    buf b;
    if (fstat(l->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return error_set(err, LACE_E_IO, "not a file");
    buf_init(&b, SIZE_MAX / 2);
    if ((uint64_t)st.st_size <= l->max_bytes && read_all(l->fd, &b, (size_t)st.st_size)) {
        cursor c = {.bytes = {(const uint8_t *)b.data, b.size}};
        span record;
        while (next_record(&c, &record)) {
            l->n_bytes = c.at;
            fn(user, record);
        }
    }
    buf_deinit(&b);
    if (l->n_bytes < (uint64_t)st.st_size && ftruncate(l->fd, (off_t)l->n_bytes) != 0)
        return error_set(err, LACE_E_IO, "%s", strerror(errno));
    return LACE_OK;
}

lace_status record_log_open(const char *path, uint64_t max_bytes, record_log_fn fn, void *user,
                            record_log **out, lace_error *err)
{
    *out = NULL;
    record_log *l = mem_calloc(1, sizeof *l);
    if (!l)
        return error_nomem(err, "a log");
    l->max_bytes = max_bytes;
    l->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    lace_status status = l->fd >= 0 ? read_records(l, fn, user, err)
                                    : error_set(err, LACE_E_IO, "%s", strerror(errno));
    if (status != LACE_OK)
        error_prefix(err, status, path);
    return GIVE_OR_FREE(status, l, out, record_log_close);
}

void record_log_close(record_log *l)
{
    if (!l)
        return;
    if (l->fd >= 0)
        close(l->fd);
    mem_free(l);
}

void record_log_add(record_log *l, const void *data, size_t n_bytes)
{
    digest d;
    uint64_t n_all = HEAD_BYTES + (uint64_t)n_bytes;
    if (n_bytes > UINT32_MAX / 2 || n_all > l->max_bytes || !digest_of(data, n_bytes, NULL, 0, &d))
        return;
    if (l->n_bytes + n_all > l->max_bytes) {
        if (ftruncate(l->fd, 0) != 0)
            return;
        l->n_bytes = 0;
    }
    uint8_t *bytes = mem_alloc(n_all);
    if (!bytes)
        return;
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(n_bytes >> 8 * i);
    memcpy(bytes + 4, d.bytes, DIGEST_BYTES);
    memcpy(bytes + HEAD_BYTES, data, n_bytes);
    ssize_t done = write(l->fd, bytes, n_all);
    if (done == (ssize_t)n_all)
        l->n_bytes += n_all;
    else if (done > 0)
        (void)!ftruncate(l->fd, (off_t)l->n_bytes);
    mem_free(bytes);
}
