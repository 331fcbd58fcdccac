/*
 * Fuzzing the list of a repository's files: whatever a hub answers, it is refused with a line, or
 * every path stays inside a folder, every hash is plain, and the chosen files are among the listed.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hub/hub_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_file(const hub_file *f)
{
    size_t n_hash = f->kind == PART_SHA256 ? 64 : 40;
    if (strlen(f->hash) != n_hash || strspn(f->hash, "0123456789abcdef") != n_hash)
        abort();
    if (f->path[0] == '/' || f->path[0] == '.' || f->path[0] == 0 || strstr(f->path, "/.") ||
        strstr(f->path, "//"))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const hub_file *chosen[HUB_MAX_CHOSEN];
    static const char *const tags[] = {"", "Q4_K_M", "f16", "0"};
    hub_listing list;
    lace_error err = {0};
    lace_status status = hub_listing_parse((span){data, size}, &list, &err);
    if (status != LACE_OK && (err.status != status || err.text[0] == 0 || strchr(err.text, '\n')))
        abort();
    for (size_t i = 0; i < list.n_files; i++)
        check_file(&list.files[i]);
    for (size_t i = 0; status == LACE_OK && i < sizeof tags / sizeof *tags; i++) {
        size_t n = 0;
        bool is_folder;
        if (hub_choose(&list, tags[i], true, chosen, &n, &is_folder, &err) != LACE_OK)
            continue;
        for (size_t k = 0; k < n; k++)
            if (chosen[k] < list.files || chosen[k] >= list.files + list.n_files)
                abort();
        if (n == 0 || (is_folder && tags[i][0]))
            abort();
    }
    hub_listing_deinit(&list);
    return 0;
}
