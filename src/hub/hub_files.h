/* Which files a repository has, as the hub lists them, and which of them make a model. */
#ifndef LACE_HUB_HUB_FILES_H
#define LACE_HUB_HUB_FILES_H

#include "base/bytes.h"
#include "hub/part_file.h"

enum { HUB_MAX_FILES = 20000, HUB_MAX_CHOSEN = 1024, HUB_MAX_FILE_PATH = 512 };

typedef struct hub_file {
    char path[HUB_MAX_FILE_PATH]; /* in the repository: parts of plain letters with '/' between */
    uint64_t size;
    part_hash kind;
    char hash[PART_MAX_HEX + 1]; /* in small hexadecimal digits; the blob's name, too */
} hub_file;

typedef struct hub_listing {
    char commit[41];
    hub_file *files; /* [n_files] */
    size_t n_files;
} hub_listing;

/* What GET /api/models/ORG/REPO/revision/REV?blobs=true answers. Paths and hashes are checked. */
lace_status hub_listing_parse(span json, hub_listing *out, lace_error *err);
void hub_listing_deinit(hub_listing *l);

/*
 * The files of a model, the one to open first. GGUF: the file whose name has the tag (without one
 * Q4_K_M, or else what there is), all parts of a split one, and the mmproj of models that see images
 * unless has_mmproj is false. Without GGUF files: the tensors of a Hugging Face directory and what
 * describes them; *is_folder is then true.
 */
lace_status hub_choose(const hub_listing *l, const char *tag, bool has_mmproj,
                       const hub_file *chosen[HUB_MAX_CHOSEN], size_t *n_chosen, bool *is_folder,
                       lace_error *err);

#endif
