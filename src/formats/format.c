/* The table of model formats: which one a path is, and what opens it. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/store.h"
#include "formats/weights_impl.h"

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_anything(const char *path)
{
    return true;
}

/* The first row that takes the path. */
static const struct {
    bool (*takes)(const char *path);
    lace_status (*open)(const char *path, weights **out, lace_error *err);
} formats[] = {
    {is_directory, hf_dir_open},
    {is_anything, gguf_files_open},
};

lace_status weights_open(const char *path, weights **out, lace_error *err)
{
    *out = NULL;
    char found[STORE_MAX_PATH];
    TRY(store_resolve(path, found, err));
    path = found;
    size_t i = 0;
    while (!formats[i].takes(path))
        i++;
    return formats[i].open(path, out, err);
}

/* The directory of a file of that name; false: it is another file, or the path is too long. */
static bool directory_of(const char *path, const char *file, char out[STORE_MAX_PATH])
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strcmp(name, file) != 0)
        return false;
    int n = slash ? snprintf(out, STORE_MAX_PATH, "%.*s/", (int)(slash - path), path)
                  : snprintf(out, STORE_MAX_PATH, ".");
    return n > 0 && n < STORE_MAX_PATH;
}

lace_status weights_open_adapter(const char *path, weights **out, lace_error *err)
{
    char found[STORE_MAX_PATH], directory[STORE_MAX_PATH];
    *out = NULL;
    TRY(store_resolve(path, found, err));
    if (directory_of(found, "adapter_model.safetensors", directory))
        return hf_adapter_open(directory, out, err);
    if (!is_directory(found))
        return gguf_files_open(found, out, err);
    if (!hf_adapter_is(found))
        return error_set(err, LACE_E_IO,
                         "%s: is a directory without " ADAPTER_CONFIG ", no adapter", path);
    return hf_adapter_open(found, out, err);
}
