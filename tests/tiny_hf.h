/*
 * Safetensors files and small Hugging Face directories, made on the spot for tests.
 *
 * The directories are written into the scratch folder: config.json and model.safetensors.
 */
#ifndef LACE_TESTS_TINY_HF_H
#define LACE_TESTS_TINY_HF_H

#include "base/buf.h"

/* A safetensors file in the making. */
typedef struct st_file {
    buf header; /* without the last brace */
    buf data;
} st_file;

void st_begin(st_file *f);
/* `shape` as in JSON: "[2, 3]". The data is copied, or pseudo-random if NULL. */
void st_add(st_file *f, const char *name, const char *type, const char *shape, const void *data,
            size_t n_bytes);
/* The whole file, appended to *out; ends the file. */
void st_end(st_file *f, buf *out);

/* A file of this header (with its size in front) and n zero bytes of data, appended to *out. */
void st_raw(const char *header, size_t n_data, buf *out);

/* A llama of one layer, width 8, 2 heads, FFN 12, 16 tokens, tensors of "F32", "F16" or "BF16". */
bool tiny_hf_llama(const char *type);

/* The same in F32 with one more vector of 8 values, and with more in its config: ",\"key\":1". */
bool tiny_hf_llama_and(const char *more_tensor, const char *more_config);

/* A gpt-oss of one layer with 2 experts, width 32, FFN 32, experts as MXFP4. */
bool tiny_hf_gpt_oss(void);

bool tiny_hf_write(const char *name, const buf *contents); /* into the scratch folder */

#endif
