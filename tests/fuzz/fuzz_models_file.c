/*
 * Fuzzing files that list models: whatever the bytes are, they are refused with a line, or every
 * model has a name of its own and a path, and every option begins with two dashes.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/models_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    models_list list;
    lace_error err = {0};
    lace_status status = models_parse((text){(const char *)data, size}, "/none", &list, &err);
    if (status != LACE_OK) {
        if (err.status != status || err.text[0] == 0 || strchr(err.text, '\n'))
            abort();
        return 0;
    }
    if (list.n_entries == 0 || list.default_index >= list.n_entries)
        abort();
    for (size_t i = 0; i < list.n_entries; i++) {
        const models_entry *e = &list.entries[i];
        if (!e->name || !e->name[0] || !e->path)
            abort();
        for (size_t k = 0; k < i; k++)
            if (strcmp(e->name, list.entries[k].name) == 0)
                abort();
        if (e->n_args && strncmp(e->args[0], "--", 2) != 0)
            abort();
    }
    models_deinit(&list);
    return 0;
}
