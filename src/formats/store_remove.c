/* Removing a model by name: links, manifests, and the blobs that nobody needs any more. */
#define _GNU_SOURCE
#include "formats/store_remove.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "formats/store.h"

enum { MAX_DEPTH = 12, MAX_NAMES = 64 << 20, MAX_MANIFEST = 1 << 20, N_HASH = 64 };

/* ---- Folders --------------------------------------------------------------------------------- */

/* Calls fn for all that is below a folder, files before their folders; links are not followed. */
typedef bool (*walk_fn)(void *user, const char *path, const struct stat *st);

static bool walk(const char *folder, walk_fn fn, void *user, int depth)
{
    struct dirent **entries;
    int n = depth < MAX_DEPTH ? scandir(folder, &entries, NULL, alphasort) : -1;
    bool ok = true;
    for (int i = 0; i < n; i++) {
        char path[STORE_MAX_PATH];
        struct stat st;
        const char *name = entries[i]->d_name;
        int size = snprintf(path, sizeof path, "%s/%s", folder, name);
        bool is_dots = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
        if (ok && !is_dots && size > 0 && (size_t)size < sizeof path && lstat(path, &st) == 0) {
            if (S_ISDIR(st.st_mode))
                ok = walk(path, fn, user, depth + 1);
            ok = ok && fn(user, path, &st);
        }
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return ok;
}

/* What a removal is about. */
typedef struct removal {
    char name[4 * STORE_MAX_PART];
    char path[STORE_MAX_PATH]; /* of the model; "": not found */
    char origin[16];
    buf names;         /* of blobs, one a line: what is still needed */
    bool has_model;    /* some model is left */
    uint64_t *n_bytes; /* that were freed */
    int code;          /* errno of the first failure */
} removal;

static void count_and_remove(removal *r, const char *path)
{
    struct stat st;
    uint64_t size = lstat(path, &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    if (remove(path) == 0)
        *r->n_bytes += size;
    else if (!r->code && errno != ENOENT)
        r->code = errno;
}

static bool remove_each(void *user, const char *path, const struct stat *st)
{
    count_and_remove(user, path);
    return true;
}

/* ---- A file and its parts -------------------------------------------------------------------- */

/* "x-00001-of-00003.gguf" goes with the parts behind it. */
static void remove_file(removal *r, const char *path)
{
    unsigned count = 1;
    char part[STORE_MAX_PATH + 16];
    size_t n = strlen(path) - (store_is_first_part(path) ? strlen("00001-of-00001.gguf") : 0);
    if (store_is_first_part(path))
        sscanf(path + n, "00001-of-%5u", &count);
    for (unsigned i = 2; i <= count; i++) {
        snprintf(part, sizeof part, "%.*s%05u-of-%05u.gguf", (int)n, path, i, count);
        count_and_remove(r, part);
    }
    count_and_remove(r, path);
}

/* ---- Hugging Face's cache -------------------------------------------------------------------- */

/* A link of a snapshot: its blob is needed. */
static bool note_link(void *user, const char *path, const struct stat *st)
{
    removal *r = user;
    char to[STORE_MAX_PATH];
    ssize_t n = readlink(path, to, sizeof to - 1);
    size_t size = strlen(path);
    const char *ends[] = {".gguf", ".safetensors"};
    for (size_t i = 0; i < 2; i++) {
        size_t m = strlen(ends[i]);
        bool is_it = size > m && strcmp(path + size - m, ends[i]) == 0;
        r->has_model = r->has_model || (is_it && !strcasestr(strrchr(path, '/'), "mmproj"));
    }
    if (n <= 0)
        return true;
    to[n] = 0;
    const char *slash = strrchr(to, '/');
    return buf_printf(&r->names, "%s\n", slash ? slash + 1 : to) == LACE_OK;
}

/* A blob that no link leads to goes. What is on its way ("HASH.lace-part") stays. */
static bool remove_unneeded(void *user, const char *path, const struct stat *st)
{
    removal *r = user;
    const char *name = strrchr(path, '/') + 1;
    char line[STORE_MAX_PART + 2];
    snprintf(line, sizeof line, "%s\n", name);
    bool is_needed = r->names.data && strstr(r->names.data, line);
    if (!is_needed && !strchr(name, '.') && S_ISREG(st->st_mode))
        count_and_remove(r, path);
    return true;
}

static lace_status remove_cached(removal *r, lace_error *err)
{
    char repository[STORE_MAX_PATH], below[STORE_MAX_PATH + 16];
    const char *snapshots = strstr(r->path, "/snapshots/");
    struct stat st;
    if (!snapshots || lstat(r->path, &st) != 0)
        return error_set(err, LACE_E_IO, "%s is not in a snapshot", r->path);
    snprintf(repository, sizeof repository, "%.*s", (int)(snapshots - r->path), r->path);
    if (S_ISDIR(st.st_mode)) {
        walk(r->path, remove_each, r, 0);
        count_and_remove(r, r->path);
    } else {
        remove_file(r, r->path);
    }
    snprintf(below, sizeof below, "%s/snapshots", repository);
    if (!walk(below, note_link, r, 0))
        return error_nomem(err, "a list of files");
    if (r->has_model) {
        snprintf(below, sizeof below, "%s/blobs", repository);
        walk(below, remove_unneeded, r, 0);
    } else {
        walk(repository, remove_each, r, 0);
        count_and_remove(r, repository);
    }
    return LACE_OK;
}

/* ---- Ollama's store -------------------------------------------------------------------------- */

/* The text of a manifest, behind those that were read before. */
static bool note_manifest(void *user, const char *path, const struct stat *st)
{
    removal *r = user;
    buf bytes;
    buf_init(&bytes, MAX_MANIFEST);
    bool ok = !S_ISREG(st->st_mode) || (file_read_regular(path, &bytes, NULL) == LACE_OK &&
                                        buf_append(&r->names, bytes.data, bytes.size) == LACE_OK);
    buf_deinit(&bytes);
    return ok;
}

/* The file "manifests/HOST/OWNER/MODEL/TAG" of the name, whatever the host. */
static bool find_manifest(const char *root, const char *name, char out[STORE_MAX_PATH])
{
    char folder[STORE_MAX_PATH], rest[4 * STORE_MAX_PART + 16];
    struct dirent **hosts;
    const char *slash = strchr(name, '/');
    snprintf(rest, sizeof rest, "%s%s", slash ? "" : "library/", name);
    char *colon = strchr(rest, ':');
    if (colon)
        *colon = '/';
    int size = snprintf(folder, sizeof folder, "%s/manifests", root);
    int n =
        size > 0 && (size_t)size < sizeof folder ? scandir(folder, &hosts, NULL, alphasort) : -1;
    bool is_found = false;
    for (int i = 0; i < n; i++) {
        const char *host = hosts[i]->d_name;
        if (!is_found && store_is_part(host, strlen(host))) {
            size = snprintf(out, STORE_MAX_PATH, "%s/%s/%s%s", folder, host, rest,
                            colon ? "" : "/latest");
            is_found = size > 0 && size < STORE_MAX_PATH && access(out, F_OK) == 0;
        }
        free(hosts[i]);
    }
    if (n >= 0)
        free(hosts);
    return is_found;
}

static lace_status remove_from_ollama(removal *r, lace_error *err)
{
    char root[STORE_MAX_PATH], manifest[STORE_MAX_PATH], path[STORE_MAX_PATH + 128];
    const char *blobs = strstr(r->path, "/blobs/");
    buf ours;
    snprintf(root, sizeof root, "%.*s", (int)(blobs ? blobs - r->path : 0), r->path);
    if (!blobs || !find_manifest(root, r->name, manifest))
        return error_set(err, LACE_E_IO, "the manifest of %s is not found", r->name);
    buf_init(&ours, MAX_MANIFEST);
    lace_status status = file_read_regular(manifest, &ours, err);
    if (status == LACE_OK)
        count_and_remove(r, manifest);
    snprintf(path, sizeof path, "%s/manifests", root);
    if (status == LACE_OK && !r->code && !walk(path, note_manifest, r, 0))
        status = error_nomem(err, "manifests");
    for (const char *at = ours.data; status == LACE_OK && !r->code && at; at++) {
        static const char key[] = "sha256:";
        if (!(at = strstr(at, key)))
            break;
        const char *hash = at + strlen(key);
        char digest[N_HASH + 8];
        snprintf(digest, sizeof digest, "%s%.*s", key, N_HASH, hash);
        if (strspn(hash, "0123456789abcdef") != N_HASH ||
            (r->names.data && strstr(r->names.data, digest)))
            continue;
        snprintf(path, sizeof path, "%s/blobs/sha256-%.*s", root, N_HASH, hash);
        count_and_remove(r, path);
    }
    buf_deinit(&ours);
    return status;
}

/* ---- All of them ----------------------------------------------------------------------------- */

static bool find_entry(void *user, const store_entry *e)
{
    removal *r = user;
    bool is_it = r->path[0] ? strcmp(e->path, r->path) == 0 : strcmp(e->name, r->name) == 0;
    if (!is_it)
        return true;
    snprintf(r->name, sizeof r->name, "%s", e->name);
    snprintf(r->path, sizeof r->path, "%s", e->path);
    snprintf(r->origin, sizeof r->origin, "%s", e->origin);
    return false;
}

lace_status store_remove(const char *name, uint64_t *n_bytes, lace_error *err)
{
    removal r = {.n_bytes = n_bytes};
    struct stat st;
    *n_bytes = 0;
    snprintf(r.name, sizeof r.name, "%s", name);
    store_list(find_entry, &r);
    if (!r.origin[0]) { /* a shorter name: "org/model:q8_0" */
        if (stat(name, &st) == 0)
            return error_set(err, LACE_E_ARG,
                             "%.200s is a path; lace rm takes names of lace list, and rm removes "
                             "files",
                             name);
        TRY(store_find(name, r.path, err));
        store_list(find_entry, &r);
    }
    if (!r.origin[0])
        return error_set(err, LACE_E_IO, "%.200s is not in lace list", name);
    buf_init(&r.names, MAX_NAMES);
    lace_status status = LACE_OK;
    if (strcmp(r.origin, "huggingface") == 0)
        status = remove_cached(&r, err);
    else if (strcmp(r.origin, "ollama") == 0)
        status = remove_from_ollama(&r, err);
    else if (stat(r.path, &st) == 0 && S_ISDIR(st.st_mode))
        status = error_set(err, LACE_E_UNSUPPORTED,
                           "%s is a folder that lace did not make; remove it with rm -r", r.path);
    else
        remove_file(&r, r.path);
    buf_deinit(&r.names);
    if (status == LACE_OK && r.code)
        status = error_set(err, LACE_E_IO, "cannot remove all of %s: %s", name, strerror(r.code));
    return status;
}
