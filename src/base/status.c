/* Errors: the sentences of the status list, and one-line messages. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *lace_version(void)
{
    return LACE_VERSION;
}

const char *lace_status_name(lace_status status)
{
    switch (status) {
#define CASE(name, value, text)                                                                    \
    case LACE_##name:                                                                              \
        return #name;
        LACE_STATUS_LIST(CASE)
#undef CASE
    }
    return "E_UNKNOWN";
}

const char *lace_status_text(lace_status status)
{
    switch (status) {
#define CASE(name, value, text)                                                                    \
    case LACE_##name:                                                                              \
        return text;
        LACE_STATUS_LIST(CASE)
#undef CASE
    }
    return "an unknown status";
}

static void keep_to_one_line(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            *p = '?';
}

lace_status error_set(lace_error *err, lace_status status, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        keep_to_one_line(err->text);
        err->status = status;
    }
    return status;
}

lace_status error_prefix(lace_error *err, lace_status status, const char *prefix)
{
    if (err) {
        char old[sizeof err->text];
        memcpy(old, err->text, sizeof old);
        /* Both parts may be long; the end of the message matters more than the
         * end of the prefix. */
        snprintf(err->text, sizeof err->text, "%.200s: %.300s", prefix, old);
        keep_to_one_line(err->text);
        err->status = status;
    }
    return status;
}

lace_status error_nomem(lace_error *err, const char *what)
{
    return error_set(err, LACE_E_NOMEM, "out of memory for %s", what);
}
