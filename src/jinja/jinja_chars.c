/* Text by characters instead of bytes, for templates. */
#define _GNU_SOURCE /* memmem */
#include <string.h>

#include "base/utf8.h"
#include "jinja/jinja_value.h"

/* A byte that does not go on with a character begins one; templates see valid UTF-8 only. */
static bool begins_char(char c)
{
    return ((unsigned char)c & 0xC0) != 0x80;
}

size_t chars_count(text t)
{
    size_t n = 0;
    for (size_t i = 0; i < t.size; i++)
        n += begins_char(t.data[i]);
    return n;
}

size_t chars_offset(text t, size_t n_chars)
{
    size_t at = 0;
    while (at < t.size && n_chars > 0) {
        at++;
        while (at < t.size && !begins_char(t.data[at]))
            at++;
        n_chars--;
    }
    return at;
}

bool chars_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool is_stripped(text c, const text *set)
{
    uint32_t code;
    if (set)
        return chars_find(*set, c, 0) != SIZE_MAX;
    utf8_decode(c.data, c.size, &code);
    return chars_is_space(code);
}

bool chars_strip_one(text *t, const text *set, bool at_end)
{
    if (t->size == 0)
        return false;
    size_t n = 1;
    while (n < t->size && !begins_char(t->data[at_end ? t->size - n : n]))
        n++;
    text edge = {at_end ? t->data + t->size - n : t->data, n};
    if (!is_stripped(edge, set))
        return false;
    t->data += at_end ? 0 : n;
    t->size -= n;
    return true;
}

text chars_strip(text t, bool left, bool right)
{
    while (left && chars_strip_one(&t, NULL, false))
        continue;
    while (right && chars_strip_one(&t, NULL, true))
        continue;
    return t;
}

size_t chars_find(text t, text needle, size_t from)
{
    if (from > t.size)
        return SIZE_MAX;
    /* memmem is linear in the worst case, which a loop over memchr is not. */
    const char *found = memmem(t.data + from, t.size - from, needle.data, needle.size);
    return needle.size == 0 ? from : found ? (size_t)(found - t.data) : SIZE_MAX;
}
