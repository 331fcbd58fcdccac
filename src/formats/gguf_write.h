/*
 * Writing GGUF files: values and tensors are collected, then the whole is written at once, to a
 * file (atomically) or to memory. Version 3.
 *
 * Every function that adds something remembers the first failure, and writing reports it; a caller
 * may therefore add many things and look only at the end.
 */
#ifndef LACE_FORMATS_GGUF_WRITE_H
#define LACE_FORMATS_GGUF_WRITE_H

#include "base/buf.h"
#include "base/file_write.h"
#include "formats/gguf.h"

typedef struct gguf_writer gguf_writer;

lace_status gguf_writer_create(gguf_writer **out, lace_error *err);
void gguf_writer_free(gguf_writer *w);

/* A power of two; default 32. Adds general.alignment if it is another. At most once. */
lace_status gguf_writer_set_alignment(gguf_writer *w, uint32_t alignment, lace_error *err);

/*
 * Values; everything is copied. A key that was given before is LACE_E_DUP. An integer that does not
 * fit its type is LACE_E_ARG; for GGUF_U64 the bits of `value` are taken as they are.
 */
lace_status gguf_writer_add_int(gguf_writer *w, const char *key, gguf_type type, int64_t value,
                                lace_error *err);
lace_status gguf_writer_add_float(gguf_writer *w, const char *key, gguf_type type, double value,
                                  lace_error *err);
lace_status gguf_writer_add_bool(gguf_writer *w, const char *key, bool value, lace_error *err);
lace_status gguf_writer_add_text(gguf_writer *w, const char *key, text value, lace_error *err);

/* Arrays of numbers, each item as the type's C counterpart (uint8_t for GGUF_BOOL); of strings. */
lace_status gguf_writer_add_array(gguf_writer *w, const char *key, gguf_type item_type,
                                  const void *items, size_t n_items, lace_error *err);
lace_status gguf_writer_add_texts(gguf_writer *w, const char *key, const text *items,
                                  size_t n_items, lace_error *err);

/* A value of another file, as it is. */
lace_status gguf_writer_add_value(gguf_writer *w, const gguf_value *value, lace_error *err);

/* Tensors, written in this order. `data` is borrowed until writing. */
lace_status gguf_writer_add_tensor(gguf_writer *w, text name, dtype type, const shape *s,
                                   const void *data, lace_error *err);

/*
 * The same for data that is made while writing: `fn` fills out[n_bytes] with what begins `offset`
 * bytes into the tensor. It is called in order, with pieces of at most GGUF_WRITE_CHUNK bytes, each
 * of whole blocks, once for every writing.
 */
enum { GGUF_WRITE_CHUNK = 4 << 20 };

typedef lace_status (*gguf_produce_fn)(void *user, uint64_t offset, void *out, size_t n_bytes,
                                       lace_error *err);
lace_status gguf_writer_add_tensor_from(gguf_writer *w, text name, dtype type, const shape *s,
                                        gguf_produce_fn fn, void *user, lace_error *err);

/* What must hold for the file to get its name; borrowed until writing. NULL (default): nothing. */
void gguf_writer_set_rules(gguf_writer *w, const file_rules *rules);

/* Write all to a file, whole or not at all. on_progress may be NULL. */
lace_status gguf_writer_to_file(gguf_writer *w, const char *path, lace_progress_fn on_progress,
                                void *user, lace_error *err);

/* Append all to a buffer. */
lace_status gguf_writer_to_buf(gguf_writer *w, buf *out, lace_error *err);

#endif
