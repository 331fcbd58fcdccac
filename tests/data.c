/* Where the test data is. */
#define _POSIX_C_SOURCE 200809L
#include "data.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tap.h"

/* The clone's own data, made of tests/data by the build. */
#define OWN_DATA "build/data"

static char *join(const char *root, const char *relative, bool *is_told)
{
    enum { SIZE = 2048 };
    char *path = malloc(SIZE);
    if (!path)
        return NULL;
    int n = snprintf(path, SIZE, "%s/%s", root, relative);
    if (n < 0 || n >= SIZE || access(path, R_OK) != 0) {
        free(path);
        return NULL;
    }
    if (!*is_told)
        tap_note("data: %s", root);
    *is_told = true;
    return path;
}

static const char *beside(void)
{
    const char *shared = getenv("LACE_SHARED");
    return shared && shared[0] ? shared : "../shared";
}

static bool is_told_beside, is_told_own;

char *data_path_if_there(const char *relative)
{
    char *path = join(beside(), relative, &is_told_beside);
    return path ? path : join(OWN_DATA, relative, &is_told_own);
}

char *data_path(const char *relative)
{
    char *path = data_path_if_there(relative);
    if (!CHECK(path))
        tap_note("%s is not in the test data; `make tests` makes it", relative);
    return path;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

enum { MAX_NAMES = 1000, NAME_BYTES = 256 };

/* A list and the names that it points to, in one piece of memory. */
typedef struct name_list {
    const char *names[MAX_NAMES];
    char bytes[MAX_NAMES][NAME_BYTES];
} name_list;

/* Add the names in one place, whose path may be NULL. */
static void add_names(char *path, name_list *list, size_t *n)
{
    DIR *folder = path ? opendir(path) : NULL;
    for (struct dirent *e; folder && (e = readdir(folder)) && *n < MAX_NAMES;)
        if (e->d_name[0] != '.') {
            snprintf(list->bytes[*n], NAME_BYTES, "%s", e->d_name);
            list->names[*n] = list->bytes[*n];
            ++*n;
        }
    if (folder)
        closedir(folder);
    free(path);
}

size_t data_names(const char *folder, const char ***names)
{
    size_t n = 0, n_unique = 0;
    name_list *list = calloc(1, sizeof *list);
    const char **found = (const char **)list;
    *names = found;
    if (!list)
        return 0;
    add_names(join(beside(), folder, &is_told_beside), list, &n);
    add_names(join(OWN_DATA, folder, &is_told_own), list, &n);
    qsort(found, n, sizeof *found, compare_names);
    for (size_t i = 0; i < n; i++)
        if (n_unique == 0 || strcmp(found[n_unique - 1], found[i]) != 0)
            found[n_unique++] = found[i];
    return n_unique;
}
