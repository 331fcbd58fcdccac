/*
 * GGUF, the file format of llama.cpp: metadata (typed key-value pairs), a directory of tensors, and
 * their data. Versions 2 and 3, little-endian.
 *
 *     "GGUF" u32 version  u64 n_tensors  u64 n_kv
 *     n_kv x      { string key, u32 type, value }
 *     n_tensors x { string name, u32 n_dims, u64 dims[n_dims], u32 type, u64 offset }
 *     padding up to the next multiple of general.alignment (32) at or after this point
 *     data: each tensor at its offset from here
 *
 * Parsing takes a span and does no I/O. A parsed gguf borrows the span: names and values point into
 * it. Of a mapped file, which others may change, only the data of tensors is borrowed: what comes
 * before it is copied, and the copy is parsed (gguf_parse_file). After gguf_parse has returned
 * LACE_OK, every string, array and tensor lies inside the span, and names are unique, without
 * control characters, and valid UTF-8.
 *
 * Where the format leaves a choice, or files differ, these are the rules:
 *
 *   alignment   general.alignment is a u32 and a power of two; tensors lie at its multiples, in any
 *               order, and do not overlap.
 *   the end     Bytes after the last tensor are ignored, as llama.cpp does; the padding after
 *               it may be missing.
 *   scalars     A tensor has 1 to 4 dimensions, each 1 or more.
 *   booleans    0 is false, all else is true.
 *   names       Keys have 1 to 65,535 bytes, tensor names 1 to 63.
 *   strings     Values may hold any bytes: vocabularies contain halves of characters.
 *   limits      The counts below bound what a file can cost: parsing takes at most 64 MiB, and
 *               what comes before the data at most 256 MiB.
 */
#ifndef LACE_FORMATS_GGUF_H
#define LACE_FORMATS_GGUF_H

#include "base/bytes.h"
#include "tensor/tensor.h"

enum {
    GGUF_MAX_KEY_BYTES = 65535,
    GGUF_MAX_NAME_BYTES = 63, /* of a tensor */
    GGUF_MAX_VALUES = 1 << 18,
    GGUF_MAX_TENSORS = 1 << 17,
    GGUF_MAX_TEXTS = 1 << 24, /* strings in all arrays together */
    GGUF_MAX_HEAD = 1 << 28,  /* bytes before the data */
};

/* clang-format off */
typedef enum gguf_type {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL,
    GGUF_STRING, GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64,
    GGUF_N_TYPES
} gguf_type;
/* clang-format on */

typedef struct gguf_value {
    text key;
    gguf_type type;      /* GGUF_ARRAY for arrays */
    gguf_type item_type; /* of an array's items; never GGUF_ARRAY */
    uint64_t n_items;    /* of an array; 1 otherwise */
    span bytes;      /* the value as stored; for a string its characters; for an array its items */
    uint64_t offset; /* where it begins in the file, for messages */
} gguf_value;

typedef struct gguf gguf;

lace_status gguf_parse(span bytes, gguf **out, lace_error *err);

/* The same for a file that may change at any time: no byte of it is looked at twice. */
lace_status gguf_parse_file(span file, gguf **out, lace_error *err);

void gguf_free(gguf *g);

uint32_t gguf_version(const gguf *g);
uint64_t gguf_alignment(const gguf *g);
uint64_t gguf_data_offset(const gguf *g); /* where the data section begins */

size_t gguf_n_values(const gguf *g);
const gguf_value *gguf_value_at(const gguf *g, size_t i);
const gguf_value *gguf_find(const gguf *g, const char *key); /* NULL if absent */

size_t gguf_n_tensors(const gguf *g);
const tensor *gguf_tensor_at(const gguf *g, size_t i);
const tensor *gguf_find_tensor(const gguf *g, const char *name);

/*
 * Typed getters. An absent key leaves *out unchanged and sets *out_found (which may be NULL) to
 * false. A value of another type, or outside [low, high], or not finite, is LACE_E_META with the
 * key, what was found and what was expected. Integers of any width and sign are taken as integers;
 * floats are taken from F32 and F64 only.
 */
lace_status gguf_get_int(const gguf *g, const char *key, int64_t low, int64_t high, int64_t *out,
                         bool *out_found, lace_error *err);
lace_status gguf_get_float(const gguf *g, const char *key, double low, double high, double *out,
                           bool *out_found, lace_error *err);
lace_status gguf_get_bool(const gguf *g, const char *key, bool *out, bool *out_found,
                          lace_error *err);
lace_status gguf_get_text(const gguf *g, const char *key, text *out, bool *out_found,
                          lace_error *err);

/* An array whose items have exactly this type; NULL in *out if absent. */
lace_status gguf_get_array(const gguf *g, const char *key, gguf_type item_type,
                           const gguf_value **out, lace_error *err);

/* Item i of a value or array of integers of any width; false if of another type or too large. */
bool gguf_value_int(const gguf_value *value, uint64_t i, int64_t *out);

/* Fill out[n_items] from a string array (already checked by gguf_parse). */
void gguf_array_texts(const gguf_value *array, text *out);

const char *gguf_type_name(gguf_type type); /* "u32" */

/* Why a text cannot be a key or tensor name of up to max_bytes; NULL if it can. */
const char *gguf_name_fault(text name, size_t max_bytes);

#endif
