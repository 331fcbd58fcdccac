/*
 * Errors: how they are made and handed on. The list of statuses is in lace.h, because callers of
 * the library see it; every layer may include that one header for it.
 */
#ifndef LACE_BASE_STATUS_H
#define LACE_BASE_STATUS_H

#include "lace.h"

/* Hand a failure on to the caller. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        lace_status try_status_ = (call);                                                          \
        if (try_status_ != LACE_OK)                                                                \
            return try_status_;                                                                    \
    } while (0)

/* The same in a function that cleans up at `label`; `status` is its
 * variable of type lace_status. */
#define TRY_GOTO(status, label, call)                                                              \
    do {                                                                                           \
        (status) = (call);                                                                         \
        if ((status) != LACE_OK)                                                                   \
            goto label;                                                                            \
    } while (0)

/*
 * The end of a function that makes an object, to be returned: *out = object, or `undo(object)` where
 * `status`, a variable, is a failure.
 */
#define GIVE_OR_FREE(status, object, out, undo)                                                    \
    ((status) == LACE_OK ? (void)(*(out) = (object)) : (void)undo(object), (status))

/*
 * Fill *err (which may be NULL) with a formatted line and return `status`. Control characters in
 * the result, which may come from a hostile file, are replaced by '?', so that it stays one line.
 */
__attribute__((format(printf, 3, 4))) lace_status error_set(lace_error *err, lace_status status,
                                                            const char *format, ...);

/* Put "prefix: " in front of the text of *err, e.g. a file's name. Returns err's status. */
lace_status error_prefix(lace_error *err, lace_status status, const char *prefix);

/* Out of memory, with what it was for. */
lace_status error_nomem(lace_error *err, const char *what);

#endif
