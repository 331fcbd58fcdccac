/*
 * What the tests of bad files share: a valid tiny model to spoil, and the way in which a spoiled
 * one is loaded.
 */
#ifndef LACE_TESTS_BAD_FILE_H
#define LACE_TESTS_BAD_FILE_H

#include "base/buf.h"
#include "formats/gguf.h"

extern buf bad_seed;        /* 2 layers, 4 heads, 2 KV heads, 64 tokens; at most 64 KiB */
extern gguf *bad_seed_gguf; /* parsed: tells where the fields are */

bool bad_seed_create(void); /* says why on standard output if it fails */
void bad_seed_free(void);

/* Open from memory, read the config, touch every byte. The file's name is "bad". */
lace_status bad_load(const void *data, size_t n_bytes, lace_error *err);

/* The same in a block of exactly this size, so that sanitizers see a read past its end. */
lace_status bad_load_exact(const void *data, size_t n_bytes, lace_error *err);

/* One line, of this status, that begins with the file's name and says where. */
bool bad_message_is_good(const lace_error *err, lace_status status);

void bad_set_u32(buf *b, size_t at, uint64_t value);
void bad_set_u64(buf *b, size_t at, uint64_t value);
void bad_insert(buf *b, size_t at, const void *data, size_t n_bytes);

double bad_cpu_ms(void); /* of this process so far */

#endif
