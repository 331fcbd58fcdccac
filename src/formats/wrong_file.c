/* What a file or directory is that was taken for a model. */
#define _DEFAULT_SOURCE
#include "formats/wrong_file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/status.h"

/* ---- Files ----------------------------------------------------------------------------------- */

/* Files that are known by how they begin. */
static const struct {
    const char *begin;
    size_t n_bytes;
    const char *what;
} beginnings[] = {
    {"PK\x03\x04", 4,
     "is a zip archive, perhaps a PyTorch checkpoint; lace reads GGUF and safetensors: look for a "
     "model in one of these"},
    {"\x80\x02", 2,
     "is a Python pickle, which can run code when it is read; lace reads GGUF and safetensors: "
     "look for a model in one of these"},
    {"\x1f\x8b", 2, "is compressed with gzip: unpack it first (gunzip)"},
    {"\x28\xb5\x2f\xfd", 4, "is compressed with zstd: unpack it first (zstd -d)"},
    {"\xfd"
     "7zXZ",
     5, "is compressed with xz: unpack it first (unxz)"},
    {"7z\xbc\xaf", 4, "is a 7z archive: unpack it first (7z x)"},
    {"lmgg", 4, "is a GGML file from before GGUF, which nobody reads any more: get the GGUF"},
    {"fmgg", 4, "is a GGML file from before GGUF, which nobody reads any more: get the GGUF"},
    {"tjgg", 4, "is a GGML file from before GGUF, which nobody reads any more: get the GGUF"},
    {"algg", 4, "is a GGML adapter from before GGUF, which nobody reads any more: get the GGUF"},
    {"GGUF", 4, "is a GGUF file, not safetensors: give its own path, not that of its directory"},
};

static bool begins_with(span bytes, const char *with)
{
    size_t n = strlen(with);
    return bytes.size >= n && strncasecmp((const char *)bytes.data, with, n) == 0;
}

static bool is_space(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* The bytes after a byte-order mark and white space. */
static span first_word(span bytes)
{
    if (bytes.size >= 3 && memcmp(bytes.data, "\xef\xbb\xbf", 3) == 0)
        bytes = (span){bytes.data + 3, bytes.size - 3};
    while (bytes.size && is_space(bytes.data[0]))
        bytes = (span){bytes.data + 1, bytes.size - 1};
    return bytes;
}

static bool is_all_zero(span bytes)
{
    size_t n = bytes.size < 4096 ? bytes.size : 4096;
    for (size_t i = 0; i < n; i++)
        if (bytes.data[i])
            return false;
    return true;
}

/* Length of the header, then JSON. */
static bool is_safetensors(span bytes)
{
    return bytes.size > 9 && load_u64(bytes.data) < bytes.size && bytes.data[8] == '{';
}

/* A short text, such as what a server answers instead of a file. */
static bool is_short_text(span bytes)
{
    if (bytes.size < 8 || bytes.size > 512)
        return false;
    for (size_t i = 0; i < bytes.size; i++)
        if (bytes.data[i] >= 0x7f || (bytes.data[i] < 0x20 && !is_space(bytes.data[i])))
            return false;
    return true;
}

/* The directory of a path, for "give its directory". */
static int directory_width(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == path ? 1 : slash ? (int)(slash - path) : 0;
}

static lace_status name_text(span bytes, const char *wanted, lace_error *err)
{
    int n = 0;
    while ((size_t)n < bytes.size && n < 80 && bytes.data[n] != '\n' && bytes.data[n] != '\r')
        n++;
    return error_set(err, LACE_E_MAGIC,
                     "is a short text (\"%.*s\"), not a %s file: the download failed; get the file "
                     "again",
                     n, (const char *)bytes.data, wanted);
}

/* True if the first bytes tell; *err then says it. */
static bool tell(const char *path, span bytes, const char *wanted, lace_error *err)
{
    span word = first_word(bytes);
    if (bytes.size == 0)
        error_set(err, LACE_E_MAGIC, "is empty: get the file again");
    else if (is_all_zero(bytes))
        error_set(err, LACE_E_MAGIC,
                  "begins with zeros: its download was not finished; get the file again");
    else if (begins_with(word, "<!doctype html") || begins_with(word, "<html"))
        error_set(err, LACE_E_MAGIC,
                  "is a web page (HTML), not a model: download the file itself, not the page that "
                  "shows it (on Hugging Face, /resolve/ in the address instead of /blob/)");
    else if (begins_with(bytes, "version https://git-lfs"))
        error_set(err, LACE_E_MAGIC,
                  "is a git-lfs pointer, not the file itself: run \"git lfs pull\" in "
                  "its directory");
    else if (is_safetensors(bytes) && strcmp(wanted, "safetensors") != 0)
        error_set(err, LACE_E_MAGIC,
                  "is a safetensors file, the weights alone: give the directory that has "
                  "config.json beside it (%.*s)",
                  directory_width(path) ? directory_width(path) : 1,
                  directory_width(path) ? path : ".");
    else if (begins_with(word, "{") && strcmp(wanted, "GGUF") == 0)
        error_set(err, LACE_E_MAGIC,
                  "is a JSON file, not a model: give the directory that it is in (%.*s)",
                  directory_width(path) ? directory_width(path) : 1,
                  directory_width(path) ? path : ".");
    else if (is_short_text(bytes) && strcmp(wanted, "JSON") != 0)
        name_text(word, wanted, err);
    else
        return false;
    return true;
}

lace_status wrong_file_explain(const char *path, span bytes, const char *wanted, lace_status status,
                               lace_error *err)
{
    bool is_wanted = strcmp(wanted, "safetensors") == 0
                         ? bytes.size > 8 && bytes.data[8] == '{'
                         : bytes.size >= 4 && memcmp(bytes.data, wanted, 4) == 0;
    if (!err || is_wanted) {
        /* Readers of formats say how many bytes "are left" or "follow" where there are too few. */
        if (err && (strstr(err->text, "are left") || strstr(err->text, "bytes that follow"))) {
            char old[sizeof err->text];
            memcpy(old, err->text, sizeof old);
            error_set(err, status, "%.300s: the file is incomplete; get it again", old);
        }
        return status;
    }
    lace_error told = {0};
    if (tell(path, bytes, wanted, &told))
        return error_set(err, status, "%s", told.text);
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (bytes.size >= beginnings[i].n_bytes &&
            memcmp(bytes.data, beginnings[i].begin, beginnings[i].n_bytes) == 0)
            return error_set(err, status, "%s", beginnings[i].what);
    return status;
}

/* ---- Directories ----------------------------------------------------------------------------- */

typedef struct contents {
    int n_files, n_gguf, n_pytorch;
    char first_gguf[256]; /* in the order of the alphabet */
} contents;

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static contents look_into(const char *path)
{
    contents c = {0};
    DIR *directory = opendir(path);
    for (struct dirent *e; directory && (e = readdir(directory));) {
        if (e->d_name[0] == '.')
            continue;
        c.n_files++;
        c.n_pytorch += ends_with(e->d_name, ".bin") || ends_with(e->d_name, ".pth");
        if (!ends_with(e->d_name, ".gguf"))
            continue;
        if (c.n_gguf++ == 0 || strcmp(e->d_name, c.first_gguf) < 0)
            snprintf(c.first_gguf, sizeof c.first_gguf, "%s", e->d_name);
    }
    if (directory)
        closedir(directory);
    return c;
}

lace_status wrong_directory_explain(const char *path, const char *missing, lace_error *err)
{
    contents c = look_into(path);
    size_t n = strlen(path);
    const char *slash = n > 0 && path[n - 1] == '/' ? "" : "/";
    if (c.n_gguf == 1)
        return error_set(err, LACE_E_META,
                         "%s: is a directory with a GGUF file in it; give the file: %s%s%s", path,
                         path, slash, c.first_gguf);
    if (c.n_gguf > 1)
        return error_set(
            err, LACE_E_META,
            "%s: is a directory with %d GGUF files in it; give one of them, for example %s%s%s",
            path, c.n_gguf, path, slash, c.first_gguf);
    if (c.n_files == 0)
        return error_set(err, LACE_E_META, "%s: is an empty directory", path);
    if (c.n_pytorch > 0 && strcmp(missing, "config.json") != 0)
        return error_set(err, LACE_E_META,
                         "%s: has its weights as PyTorch files, which lace does not read; get or "
                         "save the model as safetensors",
                         path);
    return error_set(err, LACE_E_META,
                     "%s: is a directory without %s; a model's directory has config.json, "
                     "tokenizer.json and model.safetensors in it",
                     path, missing);
}
