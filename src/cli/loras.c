/* The options --lora and --lora-scaled. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static lace_status add(lace_model *model, const char *path, float scale, lace_error *err)
{
    int32_t id;
    return lace_model_add_adapter(model, path, scale, &id, err);
}

/* Files with numbers: "a.gguf", "0.5", or "a.gguf:0.5", "0.5". */
static lace_status add_scaled(lace_model *model, const arg_texts *scaled, lace_error *err)
{
    for (size_t i = 0; i + 1 < scaled->n; i += 2) {
        const char *file = scaled->at[i], *scale = scaled->at[i + 1];
        size_t n = strlen(file), n_end = strlen(scale) + 1;
        bool is_joined = n > n_end && file[n - n_end] == ':' && file + n - n_end + 1 == scale;
        char path[4096];
        if (n >= sizeof path)
            return error_set(err, LACE_E_ARG, "--lora-scaled: the path is too long");
        snprintf(path, sizeof path, "%.*s", (int)(is_joined ? n - n_end : n), file);
        TRY(add(model, path, strtof(scale, NULL), err));
    }
    return LACE_OK;
}

lace_status cli_add_loras(lace_model *model, const cli_loras *l, lace_error *err)
{
    for (size_t i = 0; i < l->files.n; i++)
        TRY(add(model, l->files.at[i], 1, err));
    return add_scaled(model, &l->scaled, err);
}

/* Where the file begins in "NAME=FILE"; at the beginning where there is no name. */
static const char *file_of(const char *word)
{
    const char *equals = strchr(word, '='), *slash = strchr(word, '/');
    bool is_named = equals && equals > word && (!slash || equals < slash);
    return is_named ? equals + 1 : word;
}

lace_status cli_add_named_loras(lace_model *model, const cli_loras *l, const char **names,
                                char *room, size_t n_room, lace_error *err)
{
    size_t n_used = 0;
    for (size_t i = 0; i < l->files.n; i++) {
        const char *word = l->files.at[i], *file = file_of(word);
        size_t n = file > word ? (size_t)(file - word) - 1 : 0;
        TRY(add(model, file, n ? 0 : 1, err));
        if (n == 0)
            continue;
        if (n_used + n + 1 > n_room)
            return error_set(err, LACE_E_ARG, "--lora: the names are too long");
        names[i] = room + n_used;
        memcpy(room + n_used, word, n);
        room[n_used + n] = 0;
        for (size_t k = 0; k < i; k++)
            if (names[k] && strcmp(names[k], names[i]) == 0)
                return error_set(err, LACE_E_ARG, "--lora: two adapters are called %.60s",
                                 names[i]);
        n_used += n + 1;
    }
    return add_scaled(model, &l->scaled, err);
}
