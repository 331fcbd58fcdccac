/*
 * Fetching models by name: from Hugging Face into its own cache, from Ollama's registry into its
 * store, so that other programs see the files as if they had fetched them.
 *
 *     CACHE/models--ORG--REPO/blobs/HASH                the bytes, under their hash
 *                             blobs/HASH.lace-part      on their way (part_file.h)
 *                             snapshots/COMMIT/PATH     a link to the blob
 *                             refs/main                 the commit
 *
 *     STORE/blobs/sha256-HASH                           the same for Ollama's
 *           manifests/registry.ollama.ai/OWNER/MODEL/TAG
 *
 * A blob gets its name when its hash is right, and not before. Whatever ends a pull, a cut, a full
 * disk or a kill -9, the next one goes on where it was.
 */
#ifndef LACE_HUB_HUB_H
#define LACE_HUB_HUB_H

#include "hub/hub_name.h"

typedef struct hub_options {
    int n_connections; /* at the same time; default 8 */
    bool skips_mmproj; /* of models that see images, leave that part out; default false */
    /* Several times a second, with bytes of all files; false: stop. May be NULL. */
    bool (*on_progress)(void *user, const char *what, uint64_t n_done, uint64_t n_total);
    void (*on_note)(void *user, const char *line); /* what a person should know; may be NULL */
    void *user;
} hub_options;

hub_options hub_options_default(void);

typedef struct hub_result {
    char path[HUB_MAX_PATH]; /* what to open */
    uint64_t n_bytes;        /* of all files */
    uint64_t n_fetched;      /* of them, now */
    size_t n_files;
} hub_result;

/* LACE_E_IO, LACE_E_ARG or LACE_E_UNSUPPORTED with one line that says what to do. */
lace_status hub_pull(const char *name, const hub_options *options, hub_result *out,
                     lace_error *err);

#endif
