/*
 * The tensors and metadata of a model on disk, whatever the format and however many files: the
 * rest of lace sees one directory of names.
 */
#ifndef LACE_FORMATS_WEIGHTS_H
#define LACE_FORMATS_WEIGHTS_H

#include "formats/gguf.h"
#include "tensor/tensor.h"

typedef struct weights weights;

/* Map and parse a model. For a split GGUF any part will do; the others are found beside it. */
lace_status weights_open(const char *path, weights **out, lace_error *err);

/* The same for a GGUF in memory that outlives the result; `name` is for messages. */
lace_status weights_open_memory(span bytes, const char *name, weights **out, lace_error *err);

void weights_close(weights *w);

const gguf *weights_gguf(const weights *w); /* metadata (of the first part) */

size_t weights_count(const weights *w);
const tensor *weights_at(const weights *w, size_t i);
const tensor *weights_find(const weights *w, const char *name); /* NULL if absent */

const char *weights_name(const weights *w);         /* for messages: the path as given */
uint64_t weights_file_bytes(const weights *w);      /* of all files */

/* The tensor's pages are not needed for now (it was packed elsewhere). */
void weights_release(const weights *w, const tensor *t);

#endif
