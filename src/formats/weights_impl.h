/* What a model on disk is made of, for the files that open one format each. */
#ifndef LACE_FORMATS_WEIGHTS_IMPL_H
#define LACE_FORMATS_WEIGHTS_IMPL_H

#include <jansson.h>

#include "base/file.h"
#include "base/hash.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/weights.h"

/* One file: of the two formats, one is not NULL once it is parsed. */
typedef struct part {
    file_map map; /* empty for bytes in memory */
    gguf *g;
    safetensors *st;
} part;

struct weights {
    char *name;
    part *parts;
    size_t n_parts;
    json_t *config;         /* config.json of a directory */
    const tensor **tensors; /* of all parts, in order; or of the view */
    size_t n_tensors;
    map tensor_of_name;
    uint64_t n_bytes;
    weights_view *view; /* NULL: the files' own names */
    bool *is_made;      /* [view->n_tensors] */
    size_t *map_bytes;  /* [view->n_tensors]: of tensors that lie in memory of their own */
};

/* An object with n_parts empty parts. */
lace_status weights_create(const char *name, size_t n_parts, weights **out, lace_error *err);

/* Map the file of part i. */
lace_status weights_map_part(weights *w, size_t i, const char *path, lace_error *err);

/* Join the directories of all parts. */
lace_status weights_join(weights *w, lace_error *err);

/* Show blobs of sparse matrices as the matrices that they are; sparse_view.c. */
lace_status weights_show_sparse(weights *w, lace_error *err);

/* The formats; see format.c. */
lace_status gguf_files_open(const char *path, weights **out, lace_error *err);
lace_status hf_dir_open(const char *path, weights **out, lace_error *err);

/* A directory with an adapter of PEFT: whether it is one, and its config and tensors. */
#define ADAPTER_CONFIG "adapter_config.json"
bool hf_adapter_is(const char *path);
lace_status hf_adapter_open(const char *path, weights **out, lace_error *err);

#endif
