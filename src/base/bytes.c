/* Spans and the checked cursor. */
#include "base/bytes.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

text text_of(const char *terminated)
{
    return (text){terminated, strlen(terminated)};
}

bool text_equals(text a, text b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

bool text_is(text a, const char *terminated)
{
    return text_equals(a, text_of(terminated));
}

int text_width(text t)
{
    return t.size < 64 ? (int)t.size : 64;
}

size_t cursor_left(const cursor *c)
{
    return c->bytes.size - c->at;
}

uint16_t load_u16(const void *p)
{
    const uint8_t *b = p;
    return (uint16_t)(b[0] | b[1] << 8);
}

uint32_t load_u32(const void *p)
{
    const uint8_t *b = p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

uint64_t load_u64(const void *p)
{
    return load_u32(p) | (uint64_t)load_u32((const uint8_t *)p + 4) << 32;
}

float load_f32(const void *p)
{
    uint32_t bits = load_u32(p);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

lace_status error_at(lace_error *err, lace_status status, uint64_t offset, const char *format, ...)
{
    char what[400];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return error_set(err, status, "at byte %" PRIu64 ": %s", offset, what);
}

lace_status cursor_take(cursor *c, uint64_t n, span *out, const char *field, lace_error *err)
{
    size_t left = cursor_left(c);
    if (n > left) {
        *out = (span){NULL, 0};
        return error_at(err, LACE_E_TRUNC, c->at, "%s: needs %" PRIu64 " bytes, %zu are left",
                        field, n, left);
    }
    *out = (span){c->bytes.data + c->at, (size_t)n};
    c->at += (size_t)n;
    return LACE_OK;
}

lace_status cursor_u32(cursor *c, uint32_t *out, const char *field, lace_error *err)
{
    span s;
    *out = 0;
    TRY(cursor_take(c, 4, &s, field, err));
    *out = load_u32(s.data);
    return LACE_OK;
}

lace_status cursor_u64(cursor *c, uint64_t *out, const char *field, lace_error *err)
{
    span s;
    *out = 0;
    TRY(cursor_take(c, 8, &s, field, err));
    *out = load_u64(s.data);
    return LACE_OK;
}
