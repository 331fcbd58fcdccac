/*
 * The tensors and metadata of a model on disk, whatever the format and however many files: the
 * rest of lace sees one directory of names.
 *
 * A GGUF model has its metadata in the file and its tensors under the names that lace binds. A
 * Hugging Face directory has its metadata in config.json and names of its own; model/ puts a view
 * in front of it, with the names of GGUF.
 */
#ifndef LACE_FORMATS_WEIGHTS_H
#define LACE_FORMATS_WEIGHTS_H

#include "base/digest.h"
#include "formats/gguf.h"
#include "tensor/tensor.h"

typedef struct weights weights;

/*
 * Map and parse a model: a GGUF file (of a split one any part will do; the others are found beside
 * it) or a directory with config.json and model.safetensors or its index. What is no path is looked
 * up as a name (formats/store.h).
 */
lace_status weights_open(const char *path, weights **out, lace_error *err);

/*
 * A LoRA adapter: a GGUF file, or a directory of PEFT (or its file adapter_model.safetensors), whose
 * adapter_config.json weights_config then gives. What is in it is for model/adapter_file.h to say.
 */
lace_status weights_open_adapter(const char *path, weights **out, lace_error *err);

/* The same for a GGUF in memory that outlives the result; `name` is for messages. */
lace_status weights_open_memory(span bytes, const char *name, weights **out, lace_error *err);

void weights_close(weights *w);

const gguf *weights_gguf(const weights *w); /* metadata (of the first part); NULL of a directory */
const struct json_t *weights_config(const weights *w); /* config.json of a directory, or NULL */

size_t weights_count(const weights *w);
const tensor *weights_at(const weights *w, size_t i);
const tensor *weights_find(const weights *w, const char *name); /* NULL if absent */
size_t weights_index(const weights *w, const char *name);       /* for weights_at; or SIZE_MAX */

const char *weights_name(const weights *w);    /* for messages: the path as given */
uint64_t weights_file_bytes(const weights *w); /* of all files */

/*
 * Before the bytes of a tensor are read: those that are made from others (see below) are made now,
 * unless they are there already. The address in t->data is valid all the time.
 */
lace_status weights_prepare(weights *w, const tensor *t, lace_error *err);

/* Whether tensors can be read at any time without that: none is made from others. */
bool weights_stay(const weights *w);

/* The tensor's pages are not needed for now (it was packed elsewhere). */
void weights_release(const weights *w, const tensor *t);

/*
 * What tells the model from others: metadata, names, shapes, and the first bytes of each tensor, as
 * they are in the files. False: memory is out.
 */
bool weights_digest(const weights *w, digest *out);

/* Other tensors in front of the files' own. */
typedef struct weights_view {
    tensor *tensors; /* data is NULL for those that are made when they are needed */
    size_t n_tensors;
    size_t lead_bytes; /* that made tensors have in front of their data */
    lace_status (*make)(void *user, size_t index, uint8_t *out, lace_error *err);
    void (*free)(void *user); /* also frees tensors */
    void *user;
} weights_view;

/*
 * From now on, show the tensors of the view instead. Takes the view, also on failure. Reserves
 * addresses for what will be made, but no memory.
 */
lace_status weights_set_view(weights *w, const weights_view *view, lace_error *err);

#endif
