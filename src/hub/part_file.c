/* A file on its way: pieces, marks behind its end, and the check before it gets its name. */
#define _GNU_SOURCE
#include "hub/part_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/mem.h"

enum { HEADER_BYTES = 32, MOST_PIECES = 64, READ_BYTES = 1 << 20 };
static const uint64_t LEAST_PIECE = 1 << 20;
static const char MAGIC[8] = {'l', 'a', 'c', 'e', 'p', 'a', 'r', 't'};

static lace_status fail(const part_file *p, const char *what, lace_error *err)
{
    const char *why =
        errno == EFBIG ? "files may not be that large here (ulimit -f)" : strerror(errno);
    return error_set(err, LACE_E_IO, "cannot %s %s: %s", what, p->path, why);
}

static lace_status write_at(const part_file *p, uint64_t offset, const void *data, size_t n,
                            lace_error *err)
{
    for (size_t at = 0; at < n;) {
        ssize_t wrote = pwrite(p->fd, (const char *)data + at, n - at, (off_t)(offset + at));
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return fail(p, "write to", err);
        at += (size_t)wrote;
    }
    return LACE_OK;
}

static bool read_at(const part_file *p, uint64_t offset, void *data, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t got = pread(p->fd, (char *)data + at, n - at, (off_t)(offset + at));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += (size_t)got;
    }
    return true;
}

static void store_u64(uint8_t *to, uint64_t x)
{
    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)(x >> 8 * i);
}

static void make_header(const part_file *p, uint8_t out[HEADER_BYTES])
{
    memcpy(out, MAGIC, sizeof MAGIC);
    store_u64(out + 8, p->size);
    store_u64(out + 16, p->piece_bytes);
    store_u64(out + 24, p->n_pieces);
}

uint64_t part_file_piece_size(const part_file *p, size_t piece)
{
    uint64_t begin = piece * p->piece_bytes;
    return p->size - begin < p->piece_bytes ? p->size - begin : p->piece_bytes;
}

static lace_status write_mark(const part_file *p, size_t piece, lace_error *err)
{
    uint8_t mark[8];
    store_u64(mark, p->done[piece]);
    return write_at(p, p->size + HEADER_BYTES + 8 * piece, mark, sizeof mark, err);
}

lace_status part_file_reset(part_file *p, lace_error *err)
{
    uint64_t whole = p->size + HEADER_BYTES + 8 * p->n_pieces;
    uint8_t header[HEADER_BYTES];
    make_header(p, header);
    memset(p->done, 0, p->n_pieces * sizeof *p->done);
    p->n_done = 0;
    p->was_resumed = false;
    if (ftruncate(p->fd, 0) != 0)
        return fail(p, "empty", err);
    /* The room is taken now where the file system can do so; where not, writing may fail later. */
    if (fallocate(p->fd, 0, 0, (off_t)whole) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        return fail(p, "make room for", err);
    if (ftruncate(p->fd, (off_t)whole) != 0)
        return fail(p, "make room for", err);
    return write_at(p, p->size, header, sizeof header, err);
}

/* What an earlier try has left. False: nothing that can be used. */
static bool read_marks(part_file *p)
{
    struct stat st;
    uint8_t header[HEADER_BYTES], expected[HEADER_BYTES], mark[8];
    if (fstat(p->fd, &st) != 0)
        return false;
    bool is_cut = p->size && (uint64_t)st.st_size == p->size; /* ended before it was renamed */
    make_header(p, expected);
    if (!is_cut && ((uint64_t)st.st_size != p->size + HEADER_BYTES + 8 * p->n_pieces ||
                    !read_at(p, p->size, header, sizeof header) ||
                    memcmp(header, expected, sizeof header) != 0))
        return false;
    for (size_t i = 0; i < p->n_pieces; i++) {
        uint64_t most = part_file_piece_size(p, i), n = most;
        if (!is_cut && !read_at(p, p->size + HEADER_BYTES + 8 * i, mark, sizeof mark))
            return false;
        if (!is_cut)
            n = load_u64(mark);
        p->done[i] = n <= most ? n : 0;
        p->n_done += p->done[i];
    }
    p->was_resumed = p->n_done > 0;
    return true;
}

/*
 * Open the file and have it alone. *is_busy: another process has it. Between opening and locking
 * another one may have given the file its name, or removed it; then there is a new one to open.
 */
static lace_status open_alone(part_file *p, bool *is_busy, lace_error *err)
{
    *is_busy = false;
    for (;;) {
        struct stat ours, theirs;
        p->fd = open(p->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (p->fd < 0)
            return fail(p, "create", err);
        if (flock(p->fd, LOCK_EX | LOCK_NB) != 0) {
            *is_busy = errno == EWOULDBLOCK;
            return *is_busy ? LACE_OK : fail(p, "lock", err);
        }
        if (fstat(p->fd, &ours) == 0 && lstat(p->path, &theirs) == 0 &&
            ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev)
            return LACE_OK;
        close(p->fd);
    }
}

lace_status part_file_open(const char *path, uint64_t size, part_file **out, lace_error *err)
{
    *out = NULL;
    part_file *p = mem_calloc(1, sizeof *p);
    if (!p)
        return error_nomem(err, "a file");
    p->fd = -1;
    p->size = size;
    p->piece_bytes = size / MOST_PIECES > LEAST_PIECE ? size / MOST_PIECES + 1 : LEAST_PIECE;
    p->n_pieces = (size_t)((size + p->piece_bytes - 1) / p->piece_bytes);
    p->path = mem_strdup(path);
    p->done = mem_calloc(p->n_pieces + 1, sizeof *p->done);
    lace_status status = p->path && p->done ? LACE_OK : error_nomem(err, "a file");
    bool is_busy = false;
    if (status == LACE_OK)
        status = open_alone(p, &is_busy, err);
    if (is_busy) {
        part_file_close(p);
        return LACE_OK;
    }
    if (status == LACE_OK && !read_marks(p))
        status = part_file_reset(p, err);
    return GIVE_OR_FREE(status, p, out, part_file_close);
}

void part_file_close(part_file *p)
{
    if (!p)
        return;
    if (p->fd >= 0)
        close(p->fd);
    mem_free_all(p->path, p->done, p);
}

void part_file_remove(part_file *p)
{
    unlink(p->path);
    part_file_close(p);
}

lace_status part_file_write(part_file *p, uint64_t offset, const void *data, size_t n,
                            lace_error *err)
{
    while (n > 0) {
        size_t piece = (size_t)(offset / p->piece_bytes);
        assert(piece < p->n_pieces && offset == piece * p->piece_bytes + p->done[piece]);
        uint64_t left = part_file_piece_size(p, piece) - p->done[piece];
        size_t now = n < left ? n : (size_t)left;
        TRY(write_at(p, offset, data, now, err));
        p->done[piece] += now;
        p->n_done += now;
        TRY(write_mark(p, piece, err));
        offset += now;
        data = (const char *)data + now;
        n -= now;
    }
    return LACE_OK;
}

/* ---- The check ------------------------------------------------------------------------------- */

static lace_status hash_bytes_of(const part_file *p, EVP_MD_CTX *hash, part_bytes_fn on_bytes,
                                 void *user, lace_error *err)
{
    char *block = mem_alloc(READ_BYTES);
    lace_status status = block ? LACE_OK : error_nomem(err, "a check");
    for (uint64_t at = 0; status == LACE_OK && at < p->size;) {
        size_t n = p->size - at < READ_BYTES ? (size_t)(p->size - at) : READ_BYTES;
        if (!read_at(p, at, block, n))
            status = fail(p, "read", err);
        else if (EVP_DigestUpdate(hash, block, n) != 1)
            status = error_nomem(err, "a check");
        at += n;
        if (status == LACE_OK && on_bytes && !on_bytes(user, n))
            status = error_set(err, LACE_E_CANCELLED, "stopped");
    }
    mem_free(block);
    return status;
}

lace_status part_file_check(const part_file *p, part_hash kind, const char *expected,
                            part_bytes_fn on_bytes, void *user, lace_error *err)
{
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    const EVP_MD *method = kind == PART_SHA256 ? EVP_sha256() : EVP_sha1();
    char begin[64], hex[2 * EVP_MAX_MD_SIZE + 1] = "";
    int n_begin = snprintf(begin, sizeof begin, "blob %llu", (unsigned long long)p->size) + 1;
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    lace_status status =
        hash && EVP_DigestInit_ex(hash, method, NULL) == 1 &&
                (kind == PART_SHA256 || EVP_DigestUpdate(hash, begin, (size_t)n_begin) == 1)
            ? LACE_OK
            : error_nomem(err, "a check");
    if (status == LACE_OK)
        status = hash_bytes_of(p, hash, on_bytes, user, err);
    if (status == LACE_OK && EVP_DigestFinal_ex(hash, sum, &n) != 1)
        status = error_nomem(err, "a check");
    EVP_MD_CTX_free(hash);
    for (unsigned i = 0; i < n; i++)
        snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    if (status == LACE_OK && strcasecmp(hex, expected) != 0)
        status = error_set(err, LACE_E_MAGIC,
                           "the bytes that came have the hash %.16s..., expected %.16s...", hex,
                           expected);
    return status;
}

static lace_status flush_folder(const char *name, lace_error *err)
{
    const char *slash = strrchr(name, '/');
    char *folder = mem_strndup(name, slash ? (size_t)(slash - name) : 0);
    int fd = folder ? open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool ok = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
    lace_status status =
        ok ? LACE_OK
           : error_set(err, LACE_E_IO, "cannot flush the folder of %s: %s", name, strerror(errno));
    if (fd >= 0)
        close(fd);
    mem_free(folder);
    return status;
}

lace_status part_file_finish(part_file *p, const char *name, lace_error *err)
{
    assert(p->n_done == p->size);
    if (ftruncate(p->fd, (off_t)p->size) != 0)
        return fail(p, "cut", err);
    if (fsync(p->fd) != 0)
        return fail(p, "flush", err);
    if (rename(p->path, name) != 0)
        return error_set(err, LACE_E_IO, "cannot rename %s to %s: %s", p->path, name,
                         strerror(errno));
    return flush_folder(name, err);
}
