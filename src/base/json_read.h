/*
 * JSON from outside, read strictly: valid UTF-8, no name twice in an object, nothing behind the
 * value, and bounds on depth and on the memory that the result may take.
 *
 * The values are jansson's. Their memory comes through base/mem.h.
 */
#ifndef LACE_BASE_JSON_READ_H
#define LACE_BASE_JSON_READ_H

#include <jansson.h>

#include "base/bytes.h"

enum {
    JSON_READ_MAX_DEPTH = 64,
    JSON_READ_MAX_MEMORY = 64 << 20, /* of the values, as estimated before they are made */
};

/*
 * Parse a text; *out is to be freed with json_decref. LACE_E_UTF8, LACE_E_DUP, LACE_E_OVERFLOW (a
 * number that does not fit), LACE_E_LIMIT (too deep, or too many values), LACE_E_NOMEM or
 * LACE_E_JSON, at the byte counted from `offset`, which is where the text begins in its file.
 */
lace_status json_read(span bytes, uint64_t offset, json_t **out, lace_error *err);

/* The same with another bound on the memory of the values, for files known to be large. */
lace_status json_read_large(span bytes, uint64_t offset, uint64_t max_memory, json_t **out,
                            lace_error *err);

/* The same, and integers become numbers with a fraction: for files with integers
 * that fit no type. */
lace_status json_read_as_reals(span bytes, uint64_t offset, json_t **out, lace_error *err);

/*
 * Whether memory for a value that this thread made, changed or wrote has run out since this was last
 * asked. Members and entries that could not be added are missing then: for code that puts many
 * values together and asks once.
 */
bool json_heap_failed(void);

/* A member that is there and not null; otherwise NULL. Borrowed. */
json_t *json_get(const json_t *object, const char *key);

/* The word in the member "type"; "" if there is none. */
const char *json_type_word(const json_t *object);

/* "object", "an integer", ...: for messages. NULL is "missing". */
const char *json_kind(const json_t *value);

#endif
