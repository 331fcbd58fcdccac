/*
 * Quantizing a model: every matrix is written in the type that a mix gives it, each value rounded
 * to the nearest that its block can hold, with scales that were searched for.
 *
 * The result does not depend on the number of threads, and is there whole or not at all.
 */
#ifndef LACE_COMPRESS_QUANTIZE_H
#define LACE_COMPRESS_QUANTIZE_H

#include "base/buf.h"
#include "base/file_write.h"
#include "compress/imatrix.h"
#include "compress/mix.h"

/* Tensors that were quantized already, by calibration, or whose type was chosen. */
typedef struct quantize_made {
    size_t n;
    struct quantize_made_tensor {
        char name[64];
        dtype type;
        uint8_t *blocks; /* NULL: only the type */
    } * tensors;
} quantize_made;

/* An empty list with room for n_most tensors; NULL: no memory. */
quantize_made *quantize_made_create(size_t n_most);
void quantize_made_free(quantize_made *m); /* NULL is fine */

/* Adds a tensor of which only the type is known. */
void quantize_made_add(quantize_made *m, const tensor *t, dtype type);

/* Blocks of the tensors that both know. */
void quantize_made_take_blocks(quantize_made *to, quantize_made *from);
const struct quantize_made_tensor *quantize_made_find(const quantize_made *m, text name);

typedef struct quantize_options {
    const mix *mix;               /* required */
    const quantize_made *made;    /* written as they are; NULL (default): none */
    const imatrix *importance;    /* NULL (default): all inputs count the same */
    const char *importance_path;  /* for the metadata; NULL: none */
    bool allow_requantize;        /* matrices may be quantized already; default false */
    int n_threads;                /* 0 (default): one per core */
    lace_progress_fn on_progress; /* may be NULL */
    void *progress_user;
    const file_rules *rules; /* for the file to get its name; NULL (default): none */
} quantize_options;

quantize_options quantize_options_default(void);

typedef struct quantize_result {
    uint64_t n_parameters;
    uint64_t bytes_before, bytes_after; /* of tensors */
    size_t n_tensors, n_quantized;
    size_t n_without_importance; /* matrices that the importance matrix does not know */
} quantize_result;

/*
 * `input` is a GGUF file or a Hugging Face directory. `out` may be NULL. LACE_E_NUMERIC, with the
 * tensor and the place, for a weight that is not finite or too large for its type.
 */
lace_status quantize_model(const char *input, const char *path, const quantize_options *options,
                           quantize_result *out, lace_error *err);

/* The same into memory, for who measures before writing. */
lace_status quantize_to_buf(const char *input, buf *made, const quantize_options *options,
                            quantize_result *out, lace_error *err);

#endif
