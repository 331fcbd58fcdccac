/* JSON written by hand into a buffer. */
#include "server/json_out.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

void json_out_init(json_out *o, size_t max)
{
    buf_init(&o->b, max);
    o->has_failed = false;
}

void json_out_deinit(json_out *o)
{
    buf_deinit(&o->b);
}

void json_out_bytes(json_out *o, const void *data, size_t n)
{
    if (buf_append(&o->b, data, n) != LACE_OK)
        o->has_failed = true;
}

void json_out_raw(json_out *o, const char *terminated)
{
    json_out_bytes(o, terminated, strlen(terminated));
}

void json_out_printf(json_out *o, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof line)
        o->has_failed = true;
    else
        json_out_bytes(o, line, (size_t)n);
}

/* Bytes that stand for themselves in a string, from the start. */
static size_t plain_run(const char *data, size_t n)
{
    size_t i = 0;
    while (i < n && (unsigned char)data[i] >= ' ' && (unsigned char)data[i] < 0x80 &&
           data[i] != '"' && data[i] != '\\' && data[i] != 0x7F)
        i++;
    return i;
}

static void write_special(json_out *o, char c)
{
    const char *at = strchr("\"\"\\\\\bb\ff\nn\rr\tt", c);
    if (c && at)
        json_out_printf(o, "\\%c", at[1]);
    else
        json_out_printf(o, "\\u%04x", (unsigned)(unsigned char)c);
}

void json_out_text(json_out *o, const char *data, size_t n)
{
    json_out_bytes(o, "\"", 1);
    for (size_t i = 0; i < n;) {
        size_t run = plain_run(data + i, n - i);
        if (run) {
            json_out_bytes(o, data + i, run);
            i += run;
        } else if ((unsigned char)data[i] < 0x80) {
            write_special(o, data[i++]);
        } else {
            uint32_t code;
            char encoded[4];
            i += (size_t)utf8_decode(data + i, n - i, &code);
            json_out_bytes(o, encoded, (size_t)utf8_encode(code, encoded));
        }
    }
    json_out_bytes(o, "\"", 1);
}

void json_out_string(json_out *o, const char *terminated)
{
    json_out_text(o, terminated, strlen(terminated));
}

void json_out_number(json_out *o, double x)
{
    if (isfinite(x))
        json_out_printf(o, "%.9g", x);
    else
        json_out_raw(o, "null");
}

static json_out *out_at(void *in, size_t offset)
{
    return (json_out *)((char *)in + offset);
}

void json_outs_init(void *in, const size_t *offsets, size_t n, size_t max_bytes)
{
    for (size_t i = 0; i < n; i++)
        json_out_init(out_at(in, offsets[i]), max_bytes);
}

void json_outs_deinit(void *in, const size_t *offsets, size_t n)
{
    for (size_t i = 0; i < n; i++)
        json_out_deinit(out_at(in, offsets[i]));
}
