/* The metadata of a converted model. */
#ifndef LACE_COMPRESS_CONVERT_META_H
#define LACE_COMPRESS_CONVERT_META_H

#include "formats/gguf_write.h"
#include "hf/hf_names.h"

/* What general.file_type says of matrices of a plain type. */
int convert_file_type(hf_tensors *tensors, dtype type);

/* "general.*", and the numbers of the architecture. */
lace_status convert_add_meta(const char *directory, const hf_config *config, hf_tensors *tensors,
                             int file_type, gguf_writer *w, lace_error *err);

/* Whether a tensor of a directory is written as metadata. */
bool convert_is_meta(const tensor *t);

/* The vocabulary; a directory without a tokenizer becomes a file that says so. */
lace_status convert_add_vocab(const char *directory, const weights *files, int32_t n_vocab,
                              gguf_writer *w, lace_error *err);

/* "qwen3-moe-instruct" is "Qwen3 Moe Instruct"; words with capitals and numbers stay. */
void convert_title(const char *name, char *out, size_t n_out);

/* convert_encoder.c: encoders, and the keys that they alone have. */
bool convert_is_encoder(const model_config *c);
lace_status convert_add_encoder(const model_config *c, gguf_writer *w, lace_error *err);

#endif
