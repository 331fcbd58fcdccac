/*
 * A model to be compressed, whatever it lies in: the tensors of a GGUF file or of a Hugging Face
 * directory under the names and in the layouts of GGUF, readable as floats, and its metadata.
 */
#ifndef LACE_COMPRESS_SOURCE_H
#define LACE_COMPRESS_SOURCE_H

#include "compress/mix.h"
#include "formats/gguf_write.h"
#include "model/config.h"

typedef struct source source;

/* Also refuses a model that could not be run: tensors missing, or of other shapes. */
lace_status source_open(const char *path, source **out, lace_error *err);
void source_close(source *s);

const model_config *source_config(const source *s);
size_t source_count(const source *s);
const tensor *source_at(const source *s, size_t i); /* data may be NULL: use source_read */

/*
 * Values [first, first + n) of tensor i as floats; both are whole blocks of the tensor's type. May
 * be called by several threads at once.
 */
void source_read(const source *s, size_t i, uint64_t first, uint64_t n, float *out);

/* The same as bytes in the tensor's own type. */
void source_copy(const source *s, size_t i, uint64_t first, uint64_t n, void *out);

/* Whether it lies in a directory; and whether tensor i of one becomes metadata in a file. */
bool source_is_directory(const source *s);
bool source_is_meta(const source *s, size_t i);

/* What rules of mixes look at. */
mix_context source_mix_context(const source *s, bool has_importance);

/* general.architecture. */
const char *source_architecture(const source *s);

/*
 * The metadata as it is, but for these keys (a directory has none to leave out: LACE_E_UNSUPPORTED
 * if there are any).
 */
lace_status source_add_meta_but(const source *s, const char *const *keys, size_t n_keys,
                                gguf_writer *w, lace_error *err);

/* The metadata of the compressed file: all of the model's, with this general.file_type. */
lace_status source_add_meta(const source *s, int file_type, gguf_writer *w, lace_error *err);

#endif
