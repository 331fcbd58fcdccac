/* Base64: bytes as letters, which JSON can hold. */
#ifndef LACE_BASE_BASE64_H
#define LACE_BASE_BASE64_H

#include "base/bytes.h"

/*
 * Decode groups of four digits, of which the last may end in one or two '='. `out` has room for
 * three bytes for each group. False: it is something else.
 */
bool base64_decode(text in, uint8_t *out, size_t *n_out);

#endif
