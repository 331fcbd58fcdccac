/* A folder for the files that a test writes. */
#define _GNU_SOURCE
#include "scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[512];

const char *scratch_create(void)
{
    const char *root = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/lace-test-XXXXXX", root && root[0] ? root : "/tmp");
    return mkdtemp(folder);
}

const char *scratch_path(const char *name)
{
    static char paths[4][1024];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* Counts the files, and removes them if asked. */
static int walk(bool is_removing)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        n++;
        if (is_removing)
            unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d)
        closedir(d);
    return n;
}

int scratch_count(void)
{
    return walk(false);
}

void scratch_remove(void)
{
    walk(true);
    rmdir(folder);
}

bool scratch_write(const char *name, const char *contents)
{
    FILE *f = fopen(scratch_path(name), "wb");
    if (!f)
        return false;
    bool ok = fputs(contents, f) >= 0;
    return fclose(f) == 0 && ok;
}

bool scratch_holds(const char *name, const char *contents)
{
    char got[256];
    FILE *f = fopen(scratch_path(name), "rb");
    if (!f)
        return false;
    size_t n = fread(got, 1, sizeof got, f);
    fclose(f);
    return n == strlen(contents) && memcmp(got, contents, n) == 0;
}

bool scratch_copy(const char *from, const char *to)
{
    FILE *f = fopen(from, "rb"), *g = fopen(to, "wb");
    bool ok = f && g;
    char block[1 << 14];
    for (size_t n; ok && (n = fread(block, 1, sizeof block, f)) > 0;)
        ok = fwrite(block, 1, n, g) == n;
    if (f) {
        ok = ok && !ferror(f);
        fclose(f);
    }
    return (!g || fclose(g) == 0) && ok;
}

int scratch_empty(const char *path)
{
    int fd = open(path, O_WRONLY);
    if (fd < 0)
        return errno;
    int status = ftruncate(fd, 0) == 0 ? 0 : errno;
    close(fd);
    return status;
}

bool scratch_are_same(const char *a, const char *b)
{
    FILE *f = fopen(scratch_path(a), "rb"), *g = fopen(scratch_path(b), "rb");
    bool is_same = f && g;
    for (int c = 0; is_same && c != EOF;) {
        c = getc(f);
        is_same = getc(g) == c;
    }
    if (f)
        fclose(f);
    if (g)
        fclose(g);
    return is_same;
}
