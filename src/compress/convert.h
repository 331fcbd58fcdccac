/*
 * Converting a Hugging Face directory into a GGUF file, with the names, layouts, types and metadata
 * that llama.cpp's converter gives it, so that every reader of GGUF takes the result.
 *
 * Types: matrices get the type asked for; vectors, norms, routers and biases stay F32; a matrix
 * whose rows are not whole blocks of Q8_0 becomes F16; MXFP4 experts stay as they are.
 */
#ifndef LACE_COMPRESS_CONVERT_H
#define LACE_COMPRESS_CONVERT_H

#include "base/file_write.h"
#include "tensor/tensor.h"

typedef struct convert_options {
    bool has_type; /* false (default): the type that most bytes of the directory have */
    dtype type;    /* DTYPE_F32, DTYPE_F16, DTYPE_BF16 or DTYPE_Q8_0 */
    bool no_vocab; /* leave the tokenizer out; default false */
    lace_progress_fn on_progress; /* may be NULL */
    void *progress_user;
    const file_rules *rules; /* for the file to get its name; NULL (default): none */
} convert_options;

convert_options convert_options_default(void);

/* What was written. */
typedef struct convert_result {
    char architecture[64];
    dtype type; /* of the matrices */
    uint64_t n_parameters;
    size_t n_tensors;
} convert_result;

/* The type of a directory's tensor in a file whose matrices keep theirs, or are of main_type. */
dtype convert_type_in_file(const tensor *t, dtype main_type);

/*
 * Convert. The file is there whole or not at all. A tensor that has no place in a GGUF file of its
 * architecture, or whose type cannot be converted, is named; so is what the format cannot express.
 * `out` may be NULL.
 */
lace_status convert_directory(const char *directory, const char *path,
                              const convert_options *options, convert_result *out, lace_error *err);

#endif
