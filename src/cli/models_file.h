/*
 * Which models a server has: a folder of them, or a file in a small part of TOML.
 *
 *     memory = "12G"                  # of all loaded models together; --models-memory goes first
 *     keep_alive = "10m"              # of those that do not say otherwise; --keep-alive likewise
 *     default = "small"               # for requests that name none; otherwise the first one
 *
 *     [models.small]                  # what clients call it
 *     path = "tales-4m.gguf"          # a file beside this one, any path, a name, or hf:ORG/REPO:QUANT
 *     pin = true                      # loaded at once, never unloaded to make room
 *
 *     [models."org/large:q4"]
 *     path = "hf:org/large:Q4_K_M"
 *     keep_alive = "1h"
 *     ctx-size = 8192                 # options of lace serve, by their names
 *     lookup = true
 *
 * Values are strings in quotes, whole numbers, decimals, true and false.
 */
#ifndef LACE_CLI_MODELS_FILE_H
#define LACE_CLI_MODELS_FILE_H

#include "base/arena.h"
#include "base/bytes.h"

enum { MODELS_MAX = 256, MODELS_MAX_ARGS = 64 };

typedef struct models_entry {
    const char *name, *path;
    const char *args[2 * MODELS_MAX_ARGS]; /* for lace serve: "--ctx-size", "8192" */
    size_t n_args;
    bool is_pinned;
    const char *keep_alive; /* NULL: as for all */
} models_entry;

typedef struct models_list {
    arena a;
    models_entry *entries; /* [n_entries] */
    size_t n_entries;
    size_t default_index;
    uint64_t memory_bytes;  /* 0: not said */
    const char *keep_alive; /* NULL: not said */
} models_list;

/* `folder` is where the file is; paths that are there are taken from it. */
lace_status models_parse(text source, const char *folder, models_list *out, lace_error *err);

/* A folder (NAME.gguf, NAME/config.json) or a file. */
lace_status models_read(const char *path, models_list *out, lace_error *err);
void models_deinit(models_list *l);

#endif
