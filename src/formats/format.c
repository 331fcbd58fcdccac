/* The table of model formats: which one a path is, and what opens it. */
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
