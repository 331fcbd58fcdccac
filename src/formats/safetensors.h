/*
 * safetensors, the file format of Hugging Face: a JSON directory of tensors, and their data.
 *
 *     u64 n
 *     n bytes of JSON: { "__metadata__": { text: text },
 *                        name: { "dtype": "F16", "shape": [rows, columns], "data_offsets": [b, e] }
 * } data: each tensor at its offsets from here
 *
 * Parsing takes a span and does no I/O. What was parsed borrows the span for the data and owns the
 * names. After safetensors_parse has returned LACE_OK, every tensor lies inside the span, has the
 * size that its type and shape say, and its name is unique, without control characters, and valid
 * UTF-8.
 *
 * Where the format leaves a choice, these are the rules:
 *
 *   header      At most 32 MiB; begins with '{'; spaces may follow the JSON.
 *   data        The tensors cover it exactly, without overlaps, holes or bytes left over.
 *   shapes      Up to 4 dimensions, each 1 or more, given slowest first; here dims[0] is the
 *               fastest, as everywhere in lace. A scalar is a vector of one value.
 *   types       All types of the format are listed, also those that nobody computes with.
 *   alignment   None: data may lie at any address.
 */
#ifndef LACE_FORMATS_SAFETENSORS_H
#define LACE_FORMATS_SAFETENSORS_H

#include "base/bytes.h"
#include "tensor/tensor.h"

enum {
    SAFETENSORS_MAX_HEADER = 32 << 20,
    SAFETENSORS_MAX_NAME = 255, /* bytes of a tensor's name */
};

typedef struct safetensors safetensors;

lace_status safetensors_parse(span bytes, safetensors **out, lace_error *err);
void safetensors_free(safetensors *s);

/* In the order of the data. */
size_t safetensors_count(const safetensors *s);
const tensor *safetensors_at(const safetensors *s, size_t i); /* NULL past the end */

#endif
