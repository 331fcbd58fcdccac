/*
 * A small tokenizer.model of SentencePiece, made on the spot: <unk> <s> </s>, 256 bytes, and
 * U+2581, h, i, hi, U+2581 hi as 259 to 263.
 */
#ifndef LACE_TESTS_SPM_FILE_H
#define LACE_TESTS_SPM_FILE_H

#include "base/buf.h"

typedef struct spm_options {
    int model_type; /* 1 unigram, 2 BPE */
    bool has_no_prefix;
    bool is_short; /* without the bytes: 3 to 7 instead of 259 to 263 */
} spm_options;

/* The bytes go to *out, which is initialized here. Aborts without memory. */
void spm_file(const spm_options *options, buf *out);

/* Protocol buffers: a field of bytes, and one with a number. */
void proto_bytes(buf *out, unsigned field, const void *data, size_t n);
void proto_number(buf *out, unsigned field, uint64_t value);

#endif
