/* UTF-8: decoding, encoding and repair. */
#ifndef LACE_BASE_UTF8_H
#define LACE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT 0xFFFD

/*
 * Decode the character at the start of n bytes (n > 0). Returns its length in bytes and sets *out.
 * Malformed input (overlong, surrogate, above U+10FFFF, truncated) gives U+FFFD and the length of
 * the longest prefix that could have begun a character, at least 1, as browsers do it.
 */
int utf8_decode(const char *s, size_t n, uint32_t *out);

/* Encode a code point (not a surrogate, <= U+10FFFF); returns the 1 to 4 bytes written. */
int utf8_encode(uint32_t code, char out[4]);

bool utf8_is_valid(const char *s, size_t n);

/*
 * The length of the longest prefix of s that does not end inside a character: for a stream, what
 * may be given out now. Malformed bytes count as complete.
 */
size_t utf8_complete_prefix(const char *s, size_t n);

#endif
