/* The page store: files in a directory, a thread that writes them, and which of them go. */
#define _GNU_SOURCE
#include "state/page_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

enum {
    NAME_BYTES = 2 * DIGEST_BYTES + 32, /* of a file, its ending too */
    MOST_WAITING = 256 << 20,           /* bytes that wait to be written */
    STALE_S = 600,                      /* after which a file without a name is nobody's */
};

typedef struct job {
    struct job *next;
    digest key;
    uint64_t n_bytes;
    uint8_t bytes[];
} job;

struct page_store {
    char *directory;
    int fd; /* of the directory */
    uint64_t max_bytes;
    digest model;
    pthread_t writer;
    bool is_started;

    pthread_mutex_t lock;
    pthread_cond_t wake;
    job *first, **end;
    uint64_t n_waiting; /* bytes of jobs, also of those that are being filled */
    bool is_ending;

    uint64_t n_bytes; /* of all files, about; the writer's */
};

/* ---- Names ----------------------------------------------------------------------------------- */

static void write_name(const digest *key, const char *ending, char name[NAME_BYTES])
{
    for (int i = 0; i < DIGEST_BYTES; i++)
        snprintf(name + 2 * i, 3, "%02x", key->bytes[i]);
    strcpy(name + 2 * DIGEST_BYTES, ending);
}

/* A name that the store made, with this ending. */
static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), n_ending = strlen(ending);
    return n >= 2 * DIGEST_BYTES + n_ending && n < NAME_BYTES &&
           strspn(name, "0123456789abcdef") == 2 * DIGEST_BYTES &&
           strcmp(name + n - n_ending, ending) == 0;
}

bool page_store_root(const page_store *s, uint64_t owner, digest *out)
{
    return digest_of(s->model.bytes, sizeof s->model.bytes, &owner, sizeof owner, out);
}

/* ---- Room ------------------------------------------------------------------------------------ */

typedef struct listed {
    char name[NAME_BYTES];
    struct timespec used;
    uint64_t n_bytes;
} listed;

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const listed *)a)->used, *y = &((const listed *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* All page files; what a killed process left half written is removed. NULL: none, or no memory. */
static listed *list_files(page_store *s, size_t *n_out)
{
    listed *files = NULL;
    size_t n = 0, capacity = 0;
    int fd = dup(s->fd);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d && fd >= 0)
        close(fd);
    if (d)
        rewinddir(d);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        bool is_page = ends_with(e->d_name, ".page"), is_part = ends_with(e->d_name, ".part");
        if ((!is_page && !is_part) || fstatat(s->fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (is_part && st.st_mtime + STALE_S < time(NULL))
            unlinkat(s->fd, e->d_name, 0);
        if (!is_page || !mem_grow(&files, n, &capacity, sizeof *files, 256))
            continue;
        files[n] = (listed){.used = st.st_mtim, .n_bytes = (uint64_t)st.st_size};
        strcpy(files[n++].name, e->d_name);
    }
    if (d)
        closedir(d);
    *n_out = n;
    return files;
}

/* Count what is there; where it is too much, the oldest go, and a tenth more. */
static void make_room(page_store *s)
{
    size_t n;
    listed *files = list_files(s, &n);
    s->n_bytes = 0;
    for (size_t i = 0; i < n; i++)
        s->n_bytes += files[i].n_bytes;
    if (s->n_bytes > s->max_bytes) {
        qsort(files, n, sizeof *files, by_use);
        for (size_t i = 0; i < n && s->n_bytes > s->max_bytes - s->max_bytes / 10; i++)
            if (unlinkat(s->fd, files[i].name, 0) == 0)
                s->n_bytes -= files[i].n_bytes;
    }
    mem_free(files);
}

/* ---- Writing --------------------------------------------------------------------------------- */

static bool write_all(int fd, const uint8_t *bytes, uint64_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, bytes, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        bytes += done;
        n -= (uint64_t)done;
    }
    return true;
}

/*
 * The file is not flushed to the disk: what a power failure spoils, the digest shows. A killed process
 * spoils nothing.
 */
static void write_file(page_store *s, job *j)
{
    char part[NAME_BYTES], name[NAME_BYTES], ending[24];
    snprintf(ending, sizeof ending, ".%ld.part", (long)getpid());
    write_name(&j->key, ending, part);
    write_name(&j->key, ".page", name);
    if (faccessat(s->fd, name, F_OK, 0) == 0 || !page_file_seal(j->bytes, j->n_bytes))
        return;
    int fd = openat(s->fd, part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    bool is_done = write_all(fd, j->bytes, j->n_bytes);
    is_done = close(fd) == 0 && is_done;
    if (is_done && renameat(s->fd, part, s->fd, name) == 0) {
        s->n_bytes += j->n_bytes;
        if (s->n_bytes > s->max_bytes)
            make_room(s);
    } else {
        unlinkat(s->fd, part, 0);
    }
}

static void count_off(page_store *s, uint64_t n_bytes)
{
    pthread_mutex_lock(&s->lock);
    s->n_waiting -= n_bytes;
    pthread_mutex_unlock(&s->lock);
}

static void *run_writer(void *arg)
{
    page_store *s = arg;
    make_room(s);
    for (;;) {
        pthread_mutex_lock(&s->lock);
        while (!s->first && !s->is_ending)
            pthread_cond_wait(&s->wake, &s->lock);
        job *j = s->first;
        if (j)
            s->first = j->next;
        if (!s->first)
            s->end = &s->first;
        pthread_mutex_unlock(&s->lock);
        if (!j)
            return NULL;
        write_file(s, j);
        count_off(s, j->n_bytes);
        mem_free(j);
    }
}

uint8_t *page_store_take(page_store *s, uint64_t n_bytes)
{
    pthread_mutex_lock(&s->lock);
    bool has_room = s->n_waiting == 0 || s->n_waiting + n_bytes <= MOST_WAITING;
    s->n_waiting += has_room ? n_bytes : 0;
    pthread_mutex_unlock(&s->lock);
    job *j = has_room ? mem_alloc(sizeof *j + n_bytes) : NULL;
    if (has_room && !j)
        count_off(s, n_bytes);
    return j ? j->bytes : NULL;
}

static job *job_of(uint8_t *bytes)
{
    return (job *)(bytes - offsetof(job, bytes));
}

void page_store_give_back(page_store *s, uint8_t *bytes, uint64_t n_bytes)
{
    mem_free(job_of(bytes));
    count_off(s, n_bytes);
}

void page_store_write(page_store *s, const digest *key, uint8_t *bytes, uint64_t n_bytes)
{
    job *j = job_of(bytes);
    j->key = *key;
    j->n_bytes = n_bytes;
    j->next = NULL;
    pthread_mutex_lock(&s->lock);
    *s->end = j;
    s->end = &j->next;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

/* ---- Reading --------------------------------------------------------------------------------- */

bool page_store_read(page_store *s, const digest *key, uint64_t max_bytes, buf *out)
{
    char name[NAME_BYTES];
    struct stat st;
    write_name(key, ".page", name);
    int fd = openat(s->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    buf_clear(out);
    bool is_done = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                   (uint64_t)st.st_size <= max_bytes &&
                   buf_reserve(out, (size_t)st.st_size) == LACE_OK;
    while (is_done && out->size < (size_t)st.st_size) {
        ssize_t n = read(fd, out->data + out->size, (size_t)st.st_size - out->size);
        is_done = n > 0 || (n < 0 && errno == EINTR);
        out->size += n > 0 ? (size_t)n : 0;
    }
    if (is_done)
        futimens(fd, (const struct timespec[2]){{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}});
    close(fd);
    return is_done && out->size > 0;
}

void page_store_remove(page_store *s, const digest *key)
{
    char name[NAME_BYTES];
    write_name(key, ".page", name);
    unlinkat(s->fd, name, 0);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static lace_status open_directory(page_store *s, lace_error *err)
{
    if (mkdir(s->directory, 0700) != 0 && errno != EEXIST)
        return error_set(err, LACE_E_IO, "%s: %s", s->directory, strerror(errno));
    s->fd = open(s->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->fd < 0 || faccessat(s->fd, ".", W_OK, 0) != 0)
        return error_set(err, LACE_E_IO, "%s: %s", s->directory, strerror(errno));
    return LACE_OK;
}

lace_status page_store_open(const char *directory, uint64_t max_bytes, const digest *model,
                            page_store **out, lace_error *err)
{
    *out = NULL;
    page_store *s = mem_calloc(1, sizeof *s);
    if (!s)
        return error_nomem(err, "a page store");
    s->fd = -1;
    s->max_bytes = max_bytes;
    s->model = *model;
    s->end = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    s->directory = mem_strdup(directory);
    lace_status status = s->directory ? open_directory(s, err) : error_nomem(err, "a page store");
    if (status == LACE_OK) {
        s->is_started = pthread_create(&s->writer, NULL, run_writer, s) == 0;
        if (!s->is_started)
            status = error_set(err, LACE_E_NOMEM, "cannot start the thread of a page store");
    }
    return GIVE_OR_FREE(status, s, out, page_store_close);
}

void page_store_close(page_store *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->is_ending = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    if (s->is_started)
        pthread_join(s->writer, NULL);
    if (s->fd >= 0)
        close(s->fd);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    mem_free_all(s->directory, s);
}
